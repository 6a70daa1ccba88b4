"""The two servers as processes: started, called, killed, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.calls import failure_of, reply_of
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CountingStub, EnrolmentStub
from reticent_sim.engine import (
    CommandFailed,
    LaunchError,
    ServerExited,
    ServerPair,
    ServerTimeout,
    addresses,
    free_address,
    launched,
)
from tests.parties import phone as phones
from tests.parties.phone import Phone
from tests.parties.waiting import block_until

START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
TIMEOUT, SOON = 30.0, 10.0  # seconds


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    with launched(ServerPair(tmp_path_factory.mktemp("servers"), clock=START)) as made:
        yield made


def joined(servers: ServerPair) -> Phone:
    """A new member, by an invitation."""
    with servers.enrolment.blocking_channel() as channel:
        [phone] = phones.joined(channel, servers.invitations(1))
    return phone


def population(servers: ServerPair) -> int:
    """What the aggregation server tells an analyst."""

    async def ask() -> int:
        async with servers.counting.channel() as channel:
            return (await reply_of(CountingStub(channel).GetTerms(wire.TermsRequest(), timeout=TIMEOUT))).population

    return asyncio.run(ask())


def refusal(error: grpc.RpcError) -> Refusal | None:
    failure = failure_of(error)
    return failure.refusal if isinstance(failure, Refused) else None


@pytest.mark.slow
def test_both_servers_serve_phones_and_analysts(servers: ServerPair) -> None:
    before = population(servers)
    phone = joined(servers)
    statement = statements.membership(phone.id, phone.signing.public, phone.membership.expires)
    assert signed_by(servers.identity, statement, phone.membership.signature)
    assert population(servers) == before + 1


@pytest.mark.slow
def test_a_killed_server_starts_again_at_the_same_address_with_the_same_data(servers: ServerPair) -> None:
    phone, identity = joined(servers), servers.identity
    killed: list[str] = []
    for process in servers.processes:
        process.after_kill = lambda name=process.name: killed.append(name)  # type: ignore[misc]
        before, pid = population(servers), process.pid
        process.kill()
        assert not process.is_running
        assert process.exit_status == -signal.SIGKILL
        with pytest.raises(LaunchError, match="is not running"):
            process.kill()
        process.start()
        assert process.pid != pid
        assert population(servers) == before
        with pytest.raises(LaunchError, match="is running already"):
            process.start()
        process.after_kill = lambda: None
    assert killed == ["keys", "aggregation"]
    assert servers.identity == identity
    with servers.enrolment.blocking_channel() as channel:
        renewed = EnrolmentStub(channel).Renew(phone.renewing(), timeout=TIMEOUT)
    assert renewed.phone == phone.id


@pytest.mark.slow
def test_a_server_stops_of_its_own_accord(servers: ServerPair) -> None:
    servers.aggregation.stop()
    assert servers.aggregation.exit_status == 0
    servers.aggregation.start()


@pytest.mark.slow
def test_clocks_move_forward_only_also_while_a_server_is_down(servers: ServerPair) -> None:
    servers.aggregation.kill()
    later = max(filter(None, (process.clock for process in servers.processes))) + DAY
    servers.move_clocks(later)
    servers.aggregation.start()
    expires = joined(servers).membership.expires
    assert 0 < expires - milliseconds(later) / 1000 < 400 * DAY.total_seconds()
    with pytest.raises(ValueError, match="never goes back"):
        servers.move_clocks(later - DAY)
    [expired] = servers.invitations(1, days=1)
    servers.move_clocks(later + 3 * DAY)
    with servers.enrolment.blocking_channel() as channel, pytest.raises(grpc.RpcError) as error:
        EnrolmentStub(channel).Join(Phone(expired.token).joining(), timeout=TIMEOUT)
    assert refusal(error.value) is Refusal.INVITATION


@pytest.mark.slow
def test_a_certificate_of_another_caller_is_refused(servers: ServerPair) -> None:
    other = servers.credentials("aggregation")
    with servers.counting.blocking_channel(other) as channel, pytest.raises(grpc.RpcError) as error:
        CountingStub(channel).GetTerms(wire.TermsRequest(), timeout=TIMEOUT)
    assert refusal(error.value) is Refusal.NOT_PERMITTED


@pytest.mark.slow
def test_a_command_that_fails_raises_its_error_output(servers: ServerPair) -> None:
    assert '"members"' in servers.run("keys", "status", "--json")
    with pytest.raises(CommandFailed, match="there is no key server in nowhere"):
        servers.run("keys", "status", "--folder", "nowhere")


@pytest.mark.slow
def test_a_server_that_exits_at_its_start_raises_the_end_of_its_log(tmp_path: Path) -> None:
    with ServerPair(tmp_path, keys_options=("--membership-days", "0")) as servers:
        with pytest.raises(ServerExited, match="a membership lasts from 1 to 36500 days"):
            servers.keys.start()
        assert not servers.keys.is_running
        with pytest.raises(LaunchError, match="has not printed its identity"):
            servers.aggregation.start()
        with pytest.raises(LaunchError, match="uses the machine's clock"):
            servers.move_clocks(START)


SILENT = """
import fcntl, time
with open("lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("waiting", flush=True)
    time.sleep(600)
"""
"""A program that does not serve, and holds a lock as long as it runs."""


def until_it_waits(log: Path) -> None:
    block_until(lambda: log.exists() and "waiting" in log.read_text(), "the start of the program", within=TIMEOUT)


def is_gone(folder: Path) -> bool:
    """Whether the program soon runs no more."""
    end = time.monotonic() + SOON
    with (folder / "lock").open() as lock:
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.02)
    return False


def test_a_server_that_does_not_serve_in_time_raises_the_end_of_its_log(tmp_path: Path) -> None:
    with ServerPair(tmp_path, keys_program=(sys.executable, "-c", SILENT)) as servers:
        with pytest.raises(LaunchError, match="was never started"):
            _ = servers.keys.pid
        servers.keys.spawn()
        until_it_waits(servers.keys.log)
        with pytest.raises(ServerTimeout, match=r"(?s)does not serve within 0.1 s.*waiting"):
            servers.keys.wait(0.1)
        assert servers.keys.is_running
    assert is_gone(tmp_path)


def test_an_error_in_the_context_gets_the_ends_of_both_logs(tmp_path: Path) -> None:
    servers = ServerPair(tmp_path)
    servers.keys.log.write_text("the last words")
    with pytest.raises(ZeroDivisionError) as error, servers:
        _ = 1 / 0
    assert "the last words" in error.value.__notes__[0]
    assert "(no output)" in error.value.__notes__[1]


LAUNCHER = f"""
import sys, time
from pathlib import Path
from reticent_sim.engine import ServerPair

with ServerPair(Path(sys.argv[1]), keys_program=(sys.executable, "-c", {SILENT!r})) as servers:
    servers.keys.spawn()
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_no_server_outlives_its_launcher(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, tmp_path], stderr=subprocess.DEVNULL) as launcher:
        until_it_waits(tmp_path / "keys.log")
        launcher.send_signal(number)
        launcher.wait(TIMEOUT)
    assert is_gone(tmp_path)


def test_several_aggregation_servers_need_a_database_that_they_share(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^2 aggregation servers need a PostgreSQL database$"):
        ServerPair(tmp_path, aggregation_servers=2)
    assert not list(tmp_path.iterdir())


def test_free_addresses_differ() -> None:
    assert len({free_address() for _ in range(20)}) > 15


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are reserved on Linux only")
def test_two_processes_that_look_for_an_address_at_once_find_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when both would take the same one: there is no moment before the server listens in which it is free."""
    monkeypatch.setattr(addresses, "_reserved", reserved := deque[socket.socket]())
    monkeypatch.setattr(addresses, "RESERVED", 3)
    monkeypatch.setattr(addresses, "random", SimpleNamespace(Random=lambda: random.Random(7)))  # noqa: S311  # any ports
    mine = [free_address() for _ in range(3)]
    program = f"from {__name__} import *\nseeded = random.Random(7)\naddresses.random.Random = lambda: seeded"
    command = [sys.executable, "-c", f"{program}\nprint(free_address())"]
    other = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT).stdout.strip()
    assert len({*mine, other}) == 4
    assert free_address() not in mine
    assert free_address() == mine[0], "the oldest is free again"
    for each in reserved:
        each.close()
