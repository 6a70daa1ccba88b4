"""A phone takes no server for another one, though one authority has made the certificates of both."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.channels import AD_SERVICE, AGGREGATION_SERVER, KEY_SERVER, channel
from reticent.protocol.invitation import Invitation
from reticent.rpc import Admission, unary
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.servers import Servers

NAMES = ["keys", "aggregation", "ads", "ann"]
ROLES = {"keys": KEY_SERVER, "aggregation": AGGREGATION_SERVER, "ads": AD_SERVICE}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house") / "certs"
    create(folder, hosts=["localhost", "127.0.0.1"], analysts=["ann"])
    return folder


def served(certs: Path, holder: str, messages: list[Any]) -> Listener:
    """Whoever holds this certificate listens for all that a phone says."""

    async def note(message: Any, _: object) -> Any:
        messages.append(message)
        raise Refused(Refusal.UNAVAILABLE)

    admission = Admission()
    services = {
        "reticent.v1.Enrolment": {"Join": unary(admission, wire.JoinRequest, note)},
        "reticent.v1.Collecting": {"Contribute": unary(admission, wire.Contribution, note)},
        "reticent.v1.Deciding": {"GetTerms": unary(admission, wire.TermsRequest, note)},
    }
    credentials = Certificate.load(certs, holder).server_credentials(mutual=False)
    return Listener("127.0.0.1:0", services, credentials=credentials)


@pytest.mark.parametrize("holder", NAMES)
def test_a_phone_speaks_to_who_has_the_certificate_of_the_role(certs: Path, holder: str) -> None:
    async def attempt() -> set[str]:
        messages: list[Any] = []
        async with served(certs, holder, messages) as listener:
            authority = (certs / "ca.crt").read_text()
            invitation = Invitation(bytes(16), bytes(32), authority, listener.address, listener.address)
            async with Servers(invitation, deadline=2.0) as servers:
                for call in (
                    servers.join(wire.JoinRequest(invitation=bytes(16))),
                    servers.contribute(wire.Contribution(ciphertexts=b"secret")),
                ):
                    with pytest.raises((Refused, Unreachable)):
                        await call
        return {type(each).__name__ for each in messages}

    expected = {"keys": {"JoinRequest"}, "aggregation": {"Contribution"}, "ads": set(), "ann": set()}
    assert asyncio.run(attempt()) == expected[holder]


@pytest.mark.parametrize("holder", NAMES)
@pytest.mark.parametrize("wanted", ROLES)
def test_a_channel_reaches_its_role_only(certs: Path, holder: str, wanted: str) -> None:
    async def attempt() -> int:
        messages: list[Any] = []
        async with served(certs, holder, messages) as listener:
            credentials = Certificate.load(certs, "ann").channel_credentials()
            async with channel(listener.address, credentials, ROLES[wanted]) as way:
                call: Any = way.unary_unary("/reticent.v1.Deciding/GetTerms")
                with pytest.raises(Exception, match=r"UNAVAILABLE|DEADLINE_EXCEEDED"):
                    await call(b"", timeout=2.0)
        return len(messages)

    assert asyncio.run(attempt()) == (holder == wanted)
