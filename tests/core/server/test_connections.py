"""How many connections a listener takes, and for how long it keeps those that nobody uses."""

import asyncio
import resource

import pytest

from reticent.server import Limits, Listener, listener


def test_no_more_connections_are_kept_than_a_listener_stands() -> None:
    async def run() -> tuple[int, int]:
        async with Listener("127.0.0.1:0", {}, credentials=None, limits=Limits(connections=5)) as open_listener:
            port = int(open_listener.address.rpartition(":")[2])
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
            greeted = await asyncio.gather(*(_is_greeted(reader) for reader, _ in held))
            for _, writer in held:
                writer.close()
            for _ in range(100):  # until the listener has noticed
                await asyncio.sleep(0.05)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                again = await _is_greeted(reader)
                writer.close()
                if again:
                    return sum(greeted), 1
            return sum(greeted), 0

    assert asyncio.run(run()) == (5, 1)


async def _is_greeted(reader: asyncio.StreamReader) -> bool:
    """Whether the listener begins to speak HTTP/2, rather than hang up."""
    try:
        return bool(await asyncio.wait_for(reader.read(1), 5))
    except OSError:
        return False


def test_a_connection_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE", 0.5)

    async def run() -> None:
        async with Listener("127.0.0.1:0", {}, credentials=None) as open_listener:
            host, _, port = open_listener.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            await asyncio.wait_for(reader.read(), 20)  # until it ends
            writer.close()

    asyncio.run(run())


def test_two_listeners_leave_each_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits()
    for files, most in (
        (1024, 448),
        (10, 1),
        (1 << 20, limits.connections),
        (resource.RLIM_INFINITY, limits.connections),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert listener._connections(limits) == most
