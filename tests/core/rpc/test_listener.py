"""How a listener starts, reports its health, and stops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from reticent.address import AddressError, is_local
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel, channel_credentials
from reticent.rpc import Admission, Limits, RateLimit
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from tests.core.rpc.services import SERVICE, Echo, Once, calling, certified, served, until

HELLO = wire.KeyRequest(key_id=b"hello")


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:50", True),
        ("127.9.9.9:0", True),
        ("[::1]:50", True),
        ("localhost:50", True),
        ("unix:/tmp/socket", True),
        ("unix-abstract:name", True),
        ("0.0.0.0:50", False),
        ("[::]:50", False),
        ("10.0.0.1:50", False),
        ("example.org:50", False),
        ("localhost.example.org:50", False),
        ("::1:50", False),  # an address without a port
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.0.0.1:50,10.0.0.1:50", False),
        ("dns:///127.0.0.1:50", False),
        ("[::ffff:10.0.0.1]:50", False),
        ("", False),
    ],
)
def test_an_address_is_local_where_no_other_machine_reaches_it(address: str, local: bool) -> None:
    assert is_local(address) is local


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"])
def test_other_machines_need_tls(address: str) -> None:
    with pytest.raises(ValueError, match="can be reached from other machines"):
        Listener(address, {}, credentials=None)
    with pytest.raises(ValueError, match="may be another machine: it needs certificates"):
        channel(address, None)


@pytest.mark.parametrize("address", ["nowhere.invalid:1", "localhost:notaport", "unix:/nowhere/at/all"])
def test_an_address_that_cannot_be_used_is_named(tmp_path: Path, address: str) -> None:
    async def scene() -> None:
        credentials = _credentials(certified(tmp_path / "certs"))
        with pytest.raises(AddressError, match=f"cannot listen at {address}"):
            async with Listener(address, {}, credentials=credentials):
                pass

    asyncio.run(scene())


def test_two_servers_do_not_share_a_port() -> None:
    async def scene() -> None:
        async with Listener("127.0.0.1:0", {}, credentials=None) as first:
            with pytest.raises(AddressError, match="is it taken"):
                async with Listener(first.address, {}, credentials=None):
                    pass
        async with Listener(first.address, {}, credentials=None):  # and it is free again
            pass

    asyncio.run(scene())


def test_a_socket_in_a_folder_serves_too(tmp_path: Path) -> None:
    async def scene() -> None:
        echo = Echo(Admission())
        address = f"unix:{tmp_path}/socket"
        async with Listener(address, echo.services(), credentials=None) as listener, calling(listener, None) as calls:
            assert listener.address == address
            assert (await reply_of(calls.once(HELLO))).public_key == b"hello"
            assert echo.callers[0].address == "unix"

    asyncio.run(scene())


def test_each_service_reports_its_health(tmp_path: Path) -> None:
    async def scene() -> None:
        folder = certified(tmp_path / "certs")
        authority = channel_credentials((folder / "ca.crt").read_bytes())
        async with served(folder) as (_, listener), channel(listener.address, authority) as open_channel:
            check = open_channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            for service in ("", SERVICE, "grpc.health.v1.Health"):
                reply = await reply_of(check(health_pb2.HealthCheckRequest(service=service)))
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(Refused) as caught:
                await reply_of(check(health_pb2.HealthCheckRequest(service="another")))
            assert caught.value.refusal is Refusal.UNAVAILABLE

    asyncio.run(scene())


def test_health_checks_are_rate_limited() -> None:
    async def scene() -> None:
        limits = Limits(call_rate=RateLimit(per_second=0.1, burst=2.0))
        async with (
            Listener("127.0.0.1:0", {}, credentials=None, limits=limits) as listener,
            channel(listener.address, None) as open_channel,
        ):
            check: Once = open_channel.unary_unary("/grpc.health.v1.Health/Check")
            await reply_of(check(b""))
            await reply_of(check(b""))
            with pytest.raises(Refused) as caught:
                await reply_of(check(b""))
            assert caught.value.refusal is Refusal.BUSY

    asyncio.run(scene())


def test_calls_in_progress_are_answered_when_a_server_stops(tmp_path: Path) -> None:
    async def scene() -> None:
        folder = certified(tmp_path / "certs")
        authority = channel_credentials((folder / "ca.crt").read_bytes())
        async with served(folder) as (echo, listener), calling(listener, authority) as calls:
            echo.may.clear()
            begun = asyncio.ensure_future(reply_of(calls.once(HELLO)))
            await until(lambda: echo.inside == 1)
            stopping = asyncio.ensure_future(listener.__aexit__(None, None, None))
            await asyncio.sleep(0.1)
            with pytest.raises(Unreachable):
                await reply_of(calls.once(HELLO))
            assert not begun.done()
            echo.may.set()
            assert (await begun).public_key == b"hello"
            await asyncio.wait_for(stopping, 2.0)

    asyncio.run(scene())


def test_a_server_stops_after_its_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.rpc.listener.GRACE", 0.2)

    async def scene() -> None:
        echo = Echo(Admission())
        echo.may.clear()
        async with (
            Listener("127.0.0.1:0", echo.services(), credentials=None) as listener,
            calling(listener, None) as calls,
        ):
            stuck = asyncio.ensure_future(reply_of(calls.once(HELLO)))
            await until(lambda: echo.inside == 1)
            await asyncio.wait_for(listener.__aexit__(None, None, None), 2.0)
            with pytest.raises(Unreachable):
                await stuck
        assert echo.inside == 0

    asyncio.run(scene())


def test_no_call_is_left_when_a_server_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What those inside use is closed next; here they wait for callers who take nothing."""
    monkeypatch.setattr("reticent.rpc.listener.GRACE", 0.2)

    async def scene() -> None:
        echo = Echo(Admission())
        async with (
            Listener("127.0.0.1:0", echo.services(), credentials=None) as listener,
            calling(listener, None) as calls,
        ):
            unread = [calls.many(wire.KeyRequest(key_id=bytes(100_000)).SerializeToString()) for _ in range(20)]
            for each in unread:
                await each.read()
            await asyncio.sleep(0.2)  # until no more can be written
            assert echo.inside == len(unread)
            await listener.__aexit__(None, None, None)
            assert echo.inside == 0

    asyncio.run(scene())


def test_one_machine_cannot_take_all_calls_of_a_listener() -> None:
    """Calls that never bring their message, of all services, health included, are bounded and go away."""

    async def scene() -> None:
        limits = Limits(timeout=0.5, in_flight=100, in_flight_per_network=10)
        echo = Echo(Admission(limits=limits))
        async with Listener("127.0.0.1:0", echo.services(), credentials=None, limits=limits) as listener:
            async with channel(listener.address, None) as open_channel:
                names = ("grpc.health.v1.Health/Check", f"{SERVICE}/Once") * 15
                idle = [_opened(open_channel, name) for name in names]
                outcomes = await asyncio.gather(*map(reply_of, idle), return_exceptions=True)
                details = [each.detail for each in outcomes if isinstance(each, Refused)]
                assert details.count("evicted by newer calls while waiting for a message") == 10
                assert details.count("the message took too long to arrive") == 20
            async with calling(listener, None) as calls:
                await reply_of(calls.once(HELLO))

    asyncio.run(scene())


def _opened(open_channel: grpc.aio.Channel, name: str) -> grpc.aio.StreamUnaryCall[bytes, bytes]:
    call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = open_channel.stream_unary(f"/{name}")
    return call()


def _credentials(folder: Path) -> grpc.ServerCredentials:
    return Certificate.load(folder, "keys").server_credentials(False)


def test_a_phone_needs_no_health_service() -> None:
    """It takes its channels from the protocol, and has no extra."""
    code = """
        import sys
        sys.modules["grpc_health"] = sys.modules["cyclopts"] = None
        from reticent.protocol.channels import channel, channel_credentials
        try:
            from reticent.rpc.listener import Listener
        except ModuleNotFoundError:
            print("no listener")
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert run.stdout == "no listener\n"
