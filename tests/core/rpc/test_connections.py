"""The limits of connections, and how a listener cuts one."""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import grpc
import pytest

from reticent.protocol.calls import reply_of
from reticent.rpc import Limits, listener
from reticent.rpc import _connections as connections
from reticent.rpc._connections import CONNECTIONS, Peer
from reticent.rpc.listener import Listener
from reticent.storage.database import Database
from reticent.storage.sql import FileFormat
from tests.core.rpc.addresses import calling_from
from tests.core.rpc.nonreader import NonReader, unverified_tls
from tests.core.rpc.scenes import HELLO, play
from tests.core.rpc.services import served, until


def test_a_listener_closes_connections_above_its_limit() -> None:
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


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE", 0.5)

    async def run() -> None:
        async with Listener("127.0.0.1:0", {}, credentials=None) as open_listener:
            host, _, port = open_listener.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
            await asyncio.wait_for(reader.read(), 20)  # until it ends
            writer.close()

    asyncio.run(run())


def test_two_listeners_share_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits()
    for files, most in (
        (1024, 448),
        (10, 1),
        (1 << 20, limits.connections),
        (resource.RLIM_INFINITY, limits.connections),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert listener._connections(limits) == most


@contextlib.asynccontextmanager
async def opened(address: str, at: Listener, count: int) -> AsyncIterator[list[NonReader]]:
    """So many connections from one address, with TLS, one after the other."""
    port = int(at.address.rpartition(":")[2])
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(NonReader.connected(address, port, unverified_tls())) for _ in range(count)
        ]


def still_open(held: list[NonReader]) -> list[bool]:
    return [each.is_open for each in held]


def test_connections_of_one_network_are_limited(
    folder: Path, phone: grpc.ChannelCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those go first that are there longest and have no call inside. Connections of others stay."""
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.1)

    async def scene() -> None:
        limits = Limits(connections_per_network=10)
        async with served(folder, limits=limits) as (echo, at), opened("127.0.0.3", at, 5) as others:
            echo.may.clear()
            async with opened("127.0.0.2", at, 2) as calling, opened("127.0.0.2", at, 3) as first:
                for each in calling:
                    await each.call()
                await until(lambda: echo.came == 2)
                await asyncio.sleep(0.3)  # until somebody has looked
                async with opened("127.0.0.2", at, 8) as later:
                    await until(lambda: not any(still_open(first)))
                    assert all(still_open(calling))
                    echo.may.set()
                    async with calling_from("127.0.0.9", at, phone) as calls, asyncio.timeout(2.0):
                        await reply_of(calls.once(HELLO))
                    async with calling_from("127.0.0.2", at, phone) as calls, asyncio.timeout(2.0):
                        await reply_of(calls.once(HELLO))
                    assert sum(still_open(later)) >= 7
            assert all(still_open(others))

    play(scene())


def test_two_networks_leave_room_for_others(
    folder: Path, phone: grpc.ChannelCredentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all together have too many, those lose that have the most."""
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.1)

    async def scene() -> None:
        limits = Limits(connections=32, connections_per_network=16)
        async with (
            served(folder, limits=limits) as (_, at),
            opened("127.0.0.4", at, 4) as few,
            opened("127.0.0.2", at, 14) as many,
            opened("127.0.0.3", at, 14) as as_many,
        ):
            await until(lambda: sum(still_open(many)) <= 12 and sum(still_open(as_many)) <= 12)
            async with calling_from("127.0.0.9", at, phone) as calls, asyncio.timeout(2.0):
                await reply_of(calls.once(HELLO))
            assert all(still_open(few))

    play(scene())


@pytest.mark.parametrize(("here", "there"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_the_connection_of_a_peer_is_cut_and_no_other(here: str, there: str) -> None:
    """Also where an IPv4 address is mapped into IPv6, and among files, pipes and this process's own calls."""
    reading, writing = os.pipe()
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    with socket.create_server((here, 0), family=family, dualstack_ipv6=here == "::") as server:
        port = server.getsockname()[1]
        with socket.create_connection((there, port)) as one, socket.create_connection((there, port)) as other:
            held = [server.accept()[0] for _ in range(2)]
            peer = peer_of(one, port)
            assert {each.peer for each in connections._connections() if each.peer.listener == port} == {
                peer,
                peer_of(other, port),
            }
            CONNECTIONS.cut(peer)
            CONNECTIONS.cut(Peer("192.0.2.1", 1, port))  # who has gone already
            one.settimeout(5.0)
            assert one.recv(1) == b""
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)
            for each in held:
                each.close()
    os.close(reading)
    os.close(writing)


def test_a_descriptor_that_belongs_to_another_connection_by_now_is_left_alone() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        socket.create_connection(server.getsockname()) as other,
    ):
        first, _ = server.accept()
        found = [each for each in connections._connections() if each.peer.port == one.getsockname()[1]]
        second, _ = server.accept()
        os.dup2(second.fileno(), first.fileno())
        connections._shut_down(found)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        first.close()
        second.close()


NOTES = FileFormat("a notebook", 0x4E4F5445, "CREATE TABLE notes (text TEXT);", ValueError)
ADD = """
import sqlite3, sys

connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO notes VALUES (?)", (sys.argv[2],))
connection.commit()
connection.close()
"""


def test_a_database_keeps_its_locks_when_connections_are_listed(tmp_path: Path) -> None:
    """Closing a duplicate of a file's descriptor releases the locks of the process on that file.

    Another process then takes itself for the only one, and deletes the log that this one goes on writing.
    """
    database = Database(tmp_path / "notes.db", NOTES)
    with contextlib.closing(database):
        for number in range(3):
            with database.transaction() as run:
                run("INSERT INTO notes VALUES (?)", (f"ours {number}",))
            connections._connections()
            subprocess.run([sys.executable, "-c", ADD, tmp_path / "notes.db", f"theirs {number}"], check=True)
        with database.reading() as run:
            found = [text for (text,) in run("SELECT text FROM notes")]
    assert found == [f"{owner} {number}" for number in range(3) for owner in ("ours", "theirs")]


def test_a_file_that_takes_the_number_of_a_socket_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the number is duplicated: the duplicate stays open."""
    path = tmp_path / "file"
    with path.open("w") as file, socket.socket() as held:
        duplicates = []

        def dup(_: int) -> int:
            duplicates.append(fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC))
            return duplicates[0]

        monkeypatch.setattr(os, "dup", dup)
        with connections._socket(held.fileno()) as found:
            assert found is None
    (duplicate,) = duplicates
    assert os.fstat(duplicate).st_ino == path.stat().st_ino
    os.close(duplicate)


def peer_of(caller: socket.socket, listener: int) -> Peer:
    """What the listener at this port calls the caller."""
    host, port = caller.getsockname()[:2]
    return Peer(host, port, listener)


def test_only_the_connection_to_the_same_listener_is_cut() -> None:
    """One source, of the same address and port, may be connected to several listeners. A server's own calls stay."""
    with (
        socket.create_server(("127.0.0.1", 0)) as phones,
        socket.create_server(("127.0.0.1", 0)) as analysts,
        connected_from("127.0.0.2", phones) as one,
        connected_from("127.0.0.2", analysts, one.getsockname()[1]) as other,
        socket.create_connection(analysts.getsockname()) as own,
        phones.accept()[0],
        analysts.accept()[0],
        analysts.accept()[0],
    ):
        port = phones.getsockname()[1]
        assert one.getsockname() == other.getsockname()
        CONNECTIONS.cut(
            Peer("127.0.0.1", analysts.getsockname()[1], port)
        )  # as a stranger with that address and port might have it cut
        CONNECTIONS.cut(peer_of(one, port))
        one.settimeout(5.0)
        assert one.recv(1) == b""
        for each in (other, own):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)


def connected_from(address: str, server: socket.socket, port: int = 0) -> socket.socket:
    """A connection from this address and port, which another connection may have as well."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    made.connect(server.getsockname())
    return made


@contextlib.contextmanager
def one_connection() -> Iterator[tuple[socket.socket, Peer]]:
    """The caller's end of a connection, and its name at the other end."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0],
    ):
        yield one, peer_of(one, server.getsockname()[1])


def test_a_connection_is_cut_as_soon_as_the_process_can_list_its_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or a connection that does not read its replies would stay, and its replies would count for ever."""
    monkeypatch.setattr(connections, "_PAUSE", 0.05)
    with one_connection() as (one, peer):
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", _too_many_files)
            CONNECTIONS.cut(peer)
            time.sleep(0.2)
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        assert "connections cannot be cut yet" in caplog.text
        one.settimeout(5.0)
        assert one.recv(1) == b""


def test_a_connection_is_cut_also_where_its_descriptor_cannot_be_duplicated_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_PAUSE", 0.05)
    with one_connection() as (one, peer):
        with monkeypatch.context() as patch:
            patch.setattr(os, "dup", _too_many_files)
            CONNECTIONS.cut(peer)
            time.sleep(0.2)
        one.settimeout(5.0)
        assert one.recv(1) == b""


def _too_many_files(_: object) -> NoReturn:
    raise OSError(errno.EMFILE, "Too many open files")


def test_connections_are_cut_after_an_error_of_the_thread_that_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be cut is cut by the next thread."""
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    with one_connection() as (one, peer), one_connection() as (other, another):
        with monkeypatch.context() as patch:
            patch.setattr(connections, "_shut_down", lambda _: 1 / 0)
            CONNECTIONS.cut(peer)
            while not ended:
                time.sleep(0.01)
        CONNECTIONS.cut(another)
        for each in (one, other):
            each.settimeout(5.0)
            assert each.recv(1) == b""


def test_a_listener_stays_where_its_connections_cannot_be_listed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(connections, "_DESCRIPTORS", "/nowhere")

    async def scene() -> None:
        async with Listener("127.0.0.1:0", {}, credentials=None) as at:
            await until(lambda: caplog.text.count("connections cannot be limited now") >= 2)
            assert at._limiting is not None
            assert not at._limiting.done()

    play(scene())


def test_many_connections_are_cut_in_few_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0
    scan = connections._connections

    def counted() -> list[connections._OpenConnection]:
        nonlocal scans
        scans += 1
        return scan()

    def peers(port: int) -> list[Peer]:
        return [each.peer for each in scan() if each.peer.listener == port]

    monkeypatch.setattr(connections, "_connections", counted)

    async def scene() -> None:
        async with Listener("127.0.0.1:0", {}, credentials=None) as at:
            port = int(at.address.rpartition(":")[2])
            async with contextlib.AsyncExitStack() as stack:
                held = [await stack.enter_async_context(NonReader.connected("127.0.0.2", port)) for _ in range(50)]
                await until(lambda: len(peers(port)) == len(held))  # until all are accepted
                for each in peers(port):
                    CONNECTIONS.cut(each)
                await until(partial(_all_ended, held))

    play(scene())
    assert scans < 50


def _all_ended(held: list[NonReader]) -> bool:
    return not any(still_open(held))
