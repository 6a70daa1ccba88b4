"""Apps that die, stall, flood or talk nonsense: the others hear every step on time."""

import asyncio
import gc
import signal
import socket
import subprocess
import sys
from typing import Any

import grpc
import pytest

from reticent.v1 import phone_pb2
from reticent_client.apps.broker import RATE, SERVICE
from reticent_client.apps.messages import SIZE
from tests.client.apps.phones import App, calling, limited, quiet, read, releasing, served_phone, status, told
from tests.parties.waiting import until

CODE = grpc.StatusCode


# Apps that die or stall


LISTENER = """
import sys, grpc
from reticent.v1 import phone_pb2
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_stream("/reticent.v1.Phone/Subscribe",
    request_serializer=phone_pb2.SubscribeRequest.SerializeToString)(
    phone_pb2.SubscribeRequest(), metadata=(("authorization", "Bearer " + sys.argv[2]),))
call.initial_metadata()
print("listening", flush=True)
for message in call:
    print(len(message), flush=True)
"""


@limited
async def test_an_app_that_is_killed_is_forgotten() -> None:
    async with served_phone() as home, home.app() as app:
        call = await app.listen()
        token = home.phone.apps.add("victim")
        victims = [
            subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-c", LISTENER, home.broker.address, token], stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        try:
            await until(lambda: home.broker.streams == 3)
            await home.live("home")
            for victim in victims:
                victim.send_signal(signal.SIGKILL)
            await home.live("work")
            await until(lambda: home.broker.streams == 1)
            await home.live("home")
            assert told(await read(call, 3)) == [(25, "home"), (26, "work"), (27, "home")]
        finally:
            for victim in victims:
                victim.kill()
                victim.communicate(timeout=10)


@limited
async def test_apps_that_hang_up_leave_nothing_behind() -> None:
    """No stream, no task, no entry in a table."""
    async with served_phone() as home, home.app() as app:
        call = await app.listen()
        await home.live("home")
        await read(call, 1)
        before = len(asyncio.all_tasks())
        for _ in range(30):
            async with calling(home.broker.address, app.token) as other:
                await asyncio.gather(*(other.subscribe().initial_metadata() for _ in range(5)))
        await until(lambda: home.broker.streams == 1)
        gc.collect()
        await until(lambda: len(asyncio.all_tasks()) <= before + 1)
        assert set(home.broker._rates._left) == {"weather"}
        await home.live("work")
        assert told(await read(call, 1)) == [(26, "work")]


class Staller:
    """An app that subscribes by hand, over a socket that takes next to nothing, and does not read."""

    PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def __init__(self, address: str, token: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.connect((host, int(port)))
        block = b"".join(
            self.literal(name, value)
            for name, value in {
                ":method": "POST",
                ":scheme": "http",
                ":path": f"/{SERVICE}/Subscribe",
                ":authority": address,
                "te": "trailers",
                "content-type": "application/grpc",
                "authorization": f"Bearer {token}",
            }.items()
        )
        request = phone_pb2.SubscribeRequest().SerializeToString()
        message = b"\0" + len(request).to_bytes(4, "big") + request
        # The smallest window that HTTP/2 allows to be asked for: a single message does not fit into it.
        settings = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")
        self.socket.sendall(
            self.PREFACE + self.frame(4, 0, 0, settings) + self.frame(1, 0x4, 1, block) + self.frame(0, 0x1, 1, message)
        )

    @staticmethod
    def literal(name: str, value: str) -> bytes:
        """A header without compression."""
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    @staticmethod
    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        """A frame of HTTP/2."""
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def open_window(self) -> None:
        """Take everything from now on."""
        much = (2**24).to_bytes(4, "big")
        self.socket.sendall(self.frame(8, 0, 1, much) + self.frame(8, 0, 0, much) + self.frame(4, 1, 0, b""))

    def messages(self, count: int) -> list[bytes]:
        """The next messages."""
        data, found, buffer = b"", list[bytes](), b""
        self.socket.settimeout(10)
        while len(found) < count:
            while len(buffer) < 9 or len(buffer) < 9 + int.from_bytes(buffer[:3], "big"):
                buffer += self.socket.recv(65536)
            length, kind = int.from_bytes(buffer[:3], "big"), buffer[3]
            payload, buffer = buffer[9 : 9 + length], buffer[9 + length :]
            data += payload if kind == 0 else b""
            while len(data) >= 5 + SIZE:
                found.append(data[5 : 5 + SIZE])
                data = data[5 + SIZE :]
        return found


@limited
async def test_an_app_that_stalls_holds_nobody_up_and_hears_everything_in_the_end() -> None:
    async with served_phone() as home, home.app() as app:
        call = await app.listen()
        staller = Staller(home.broker.address, home.phone.apps.add("staller"))
        await until(lambda: home.broker.streams == 2)
        for step in range(120):
            await home.live("home" if step % 2 else "work")
            assert len(await read(call, 1)) == 1  # at once: before the next step begins
        staller.open_window()
        received = await asyncio.to_thread(staller.messages, 120)
        assert received == list(home.mask.masked._messages)
        staller.socket.close()
        await until(lambda: home.broker.streams == 1)


@limited
async def test_an_app_that_stalls_for_longer_than_steps_are_held_is_told_so() -> None:
    async with served_phone(releasing(4), held_days=1) as home:
        staller = Staller(home.broker.address, home.phone.apps.add("staller"))
        await until(lambda: home.broker.streams == 1)
        await home.live("home", 20)
        staller.open_window()
        await quiet(home)  # the first message, which waited for the window, and OUT_OF_RANGE
        staller.socket.close()


# Apps that flood


async def flooding(app: App, calls: int, at_once: int) -> list[Any]:
    """What an app is told that asks again as soon as it is told anything."""

    async def ask() -> list[Any]:
        return [
            reply
            for _ in range(calls // at_once)
            for reply in await asyncio.gather(app.current(), return_exceptions=True)
        ]

    return [reply for replies in await asyncio.gather(*(ask() for _ in range(at_once))) for reply in replies]


@pytest.mark.slow
@limited
async def test_an_app_that_floods_is_slowed_down_and_nobody_else() -> None:
    async with served_phone() as home, home.app() as app, home.app("flood") as flood:
        call = await app.listen()
        await home.live("home")
        await read(call, 1)

        hammering = asyncio.ensure_future(flooding(flood, calls=800, at_once=100))
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(10):
            await asyncio.sleep(0.02)
            began = loop.time()
            await home.live("work")
            await read(call, 1)
            assert (await app.current()).context == "work"
            waits.append(loop.time() - began)
        replies = await hammering
        refused = [each for each in replies if isinstance(each, grpc.aio.AioRpcError)]
        assert {each.code() for each in refused} == {CODE.RESOURCE_EXHAUSTED}
        assert RATE.burst <= len(replies) - len(refused) <= RATE.burst + 200
        hints = [int(dict(each.trailing_metadata() or ())["retry-after-ms"]) for each in refused]
        assert all(0 < hint <= 60 for hint in hints)
        assert sorted(waits)[5] < 2
        await asyncio.sleep(max(hints) / 1000)
        assert (await flood.current()).context == "work"


@limited
async def test_a_thousand_calls_at_once_hold_nobody_up() -> None:
    """More than fit into a connection are refused by it, without a word of ours."""
    async with served_phone() as home, home.app() as app, home.app("flood") as flood:
        call = await app.listen()
        flooded = asyncio.ensure_future(flooding(flood, calls=2000, at_once=2000))
        for _ in range(5):
            await home.live("work")
            assert told(await read(call, 1))[0][1] == "work"
        replies = [each for each in await flooded if isinstance(each, Exception)]
        codes = {each.code() for each in replies if isinstance(each, grpc.aio.AioRpcError)}
        assert codes <= {CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE, CODE.NOT_FOUND}
        assert len(replies) > 1500
        assert home.broker.streams == 1


@pytest.mark.slow
@limited
async def test_those_without_a_token_share_one_allowance_and_do_not_touch_the_others() -> None:
    async with served_phone() as home, home.app() as app:
        await home.live("home")
        async with calling(home.broker.address, None) as stranger:
            # far fewer at once than gRPC's limit: it counts a call until it has freed it, and refuses by another code
            codes = {each.code() for each in await flooding(stranger, calls=300, at_once=50)}
            assert codes == {CODE.UNAUTHENTICATED, CODE.RESOURCE_EXHAUSTED}
            guesses = [f"{n:043}" for n in range(50)]
            assert (await app.current()).context == "home"
            for guess in guesses:
                async with calling(home.broker.address, guess) as guesser:
                    assert (await status(guesser.current())).code() in codes
        assert set(home.broker._rates._left) == {None, "weather"}


@limited
async def test_an_app_has_only_so_many_streams() -> None:
    async with served_phone() as home, home.app() as app, home.app("other") as other:
        calls = [await app.listen() for _ in range(8)]
        refusal = await status(app.subscribe().read())
        assert refusal.code() is CODE.RESOURCE_EXHAUSTED
        assert refusal.details() == "'weather' has 8 streams open already"
        assert int(dict(refusal.trailing_metadata() or ())["retry-after-ms"]) > 0
        await other.listen()
        calls.pop().cancel()
        await until(lambda: home.broker.streams == 8)
        calls.append(await app.listen())
        await home.live("home")
        assert [told(await read(call, 1)) for call in calls] == [[(25, "home")]] * 8


# Nonsense


@limited
async def test_garbage_in_place_of_a_request_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """After the token was asked for: a stranger cannot even fill the log."""
    async with served_phone() as home, home.app() as app, calling(home.broker.address, None) as stranger:
        for method in ("Current", "Subscribe"):
            refusal = await status(app.raw(method, b"\xff" * 20))
            assert refusal.code() is CODE.INVALID_ARGUMENT
            assert refusal.details() == f"this is no {method}Request"
            assert (await status(stranger.raw(method, b"\xff" * 20))).code() is CODE.UNAUTHENTICATED
        assert (await status(app.raw("Shutdown", b""))).code() is CODE.UNIMPLEMENTED
        await quiet(home)
    assert not [record for record in caplog.records if record.name.startswith("reticent")]


@limited
async def test_what_is_too_large_is_refused() -> None:
    async with served_phone() as home, home.app() as app:
        await home.live("home")
        large = app.raw("Current", b"\0" * 5000)
        assert (await status(large)).code() is CODE.RESOURCE_EXHAUSTED
        header = (*app.metadata, ("x-story", "x" * 100_000))
        wordy = app.raw("Current", b"", header)
        assert (await status(wordy)).code() in {CODE.RESOURCE_EXHAUSTED, CODE.UNAVAILABLE, CODE.INTERNAL}
        assert (await app.current()).context == "home"


@limited
async def test_other_protocols_at_the_same_port_disturb_nobody() -> None:
    async with served_phone() as home, home.app() as app:
        call = await app.listen()
        host, _, port = home.broker.address.rpartition(":")
        for nonsense in (
            b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n",
            b"\x16\x03\x01" * 50,
            b"\0" * 5000,
            b"PRI * HTTP/2.0\r\n",
        ):
            for _ in range(10):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(nonsense)
                writer.close()
        await home.live("home")
        assert told(await read(call, 1)) == [(25, "home")]
