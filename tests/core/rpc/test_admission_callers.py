"""Which callers are admitted: by certificate, role and address."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import grpc
import pytest

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import ANALYST, KEY_SERVER, channel_credentials
from reticent.rpc import Admission, Caller
from reticent.rpc._connections import Peer
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate
from tests.core.rpc.scenes import HELLO, play, refusal
from tests.core.rpc.services import Echo, calling, certified, served


def test_callers_are_known_by_their_certificates(folder: Path, phone: grpc.ChannelCredentials) -> None:
    """A listener that asks for none lets nobody through an admission that wants one."""

    async def scene() -> None:
        ada = Certificate.load(folder, "ada").channel_credentials()
        keys = Certificate.load(folder, "keys").channel_credentials()
        async with served(folder, names=(ANALYST,), mutual=True) as (echo, listener):
            async with calling(listener, ada) as calls:
                await reply_of(calls.once(HELLO))
                assert echo.callers[0].name == "analyst ada"
            async with calling(listener, keys) as calls:
                assert (await refusal(calls.once(HELLO))).refusal is Refusal.NOT_PERMITTED
                assert len(echo.callers) == 1
        async with served(folder, names=(KEY_SERVER, ANALYST)) as (echo, listener):
            for credentials in (ada, keys, phone):
                async with calling(listener, credentials) as calls:
                    assert (await refusal(calls.once(HELLO))).refusal is Refusal.NOT_PERMITTED
            assert not echo.callers

    play(scene())


def test_mutual_tls_keeps_strangers_out(folder: Path, tmp_path: Path, phone: grpc.ChannelCredentials) -> None:
    """One without a certificate, one with another authority's of the same name, one that expects another server."""
    strangers = certified(tmp_path / "strangers", "ada")
    authority = (folder / "ca.crt").read_bytes()
    forged = grpc.ssl_channel_credentials(
        authority, (strangers / "ada.key").read_bytes(), (strangers / "ada.crt").read_bytes()
    )
    misled = Certificate.load(strangers, "ada").channel_credentials()

    async def scene() -> None:
        async with served(folder, names=(ANALYST,), mutual=True) as (echo, listener):
            for credentials in (phone, forged, misled):
                async with calling(listener, credentials) as calls:
                    with pytest.raises(Unreachable):
                        await reply_of(calls.once(HELLO))
            async with calling(listener, None) as calls:
                with pytest.raises(Unreachable):
                    await reply_of(calls.once(HELLO))
            assert not echo.callers
            async with calling(listener, Certificate.load(folder, "ada").channel_credentials()) as calls:
                await reply_of(calls.once(HELLO))

    play(scene())


def test_an_analyst_cannot_impersonate_a_server(folder: Path) -> None:
    """Its certificate names no host, and is not for serving."""

    async def scene() -> None:
        ada = Certificate.load(folder, "ada")
        echo = Echo(Admission())
        async with Listener("127.0.0.1:0", echo.services(), credentials=ada.server_credentials(False)) as listener:
            async with calling(listener, channel_credentials(ada.authority)) as calls:
                with pytest.raises(Unreachable):
                    await reply_of(calls.once(HELLO))
            assert not echo.callers

    play(scene())


@pytest.mark.parametrize(
    ("name", "may"),
    [("analyst ada", True), ("analyst", True), ("analysta", False), ("key server", False), ("", False), (None, False)],
)
def test_a_role_may_be_followed_by_a_space_and_a_name(name: str | None, may: bool) -> None:
    async def scene() -> None:
        entering = Admission((ANALYST,)).admit(_Stands(name), Peer("127.0.0.1", 1, 7101))  # type: ignore[arg-type]
        with nullcontext() if may else pytest.raises(Refused, match="NOT_PERMITTED"), entering as (caller, _):
            assert caller.name == name

    play(scene())


class _Stands:
    """The context that admission reads."""

    def __init__(self, name: str | None) -> None:
        self._names = None if name is None else [name.encode()]

    def auth_context(self) -> dict[str, list[bytes]]:
        return {} if self._names is None else {"x509_common_name": self._names}


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:5000", "10.1.2.3"),
        ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"),
        ("unix:", "unix"),
    ],
)
def test_a_caller_is_known_by_its_machine(peer: str, address: str) -> None:
    async def scene() -> None:
        with Admission().admit(_Stands(None), Peer.parse(peer, 7101)) as (caller, _):  # type: ignore[arg-type]
            assert caller == Caller(address)

    play(scene())
