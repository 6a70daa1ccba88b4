"""Strangers at all listeners of both servers, which are real processes with TLS; and at servers that lack a guard."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from reticent.v1 import counting_pb2 as wire
from reticent_sim.engine import ANALYST, ServerPair, launched
from tests.attacks import large_query
from tests.attacks.honest import Honest, Service
from tests.attacks.strangers import hold_connections, services, take_no_answers
from tests.attacks.target import Finding, Target
from tests.parties.callers import enrolled, members

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # real processes, a quarter of a minute each

OPTIONS = ("--min-honest", "2", "--min-liars-share", "0")
MEGABYTE = 1 << 20
ROOT = Path(__file__).parents[2]
ANNOUNCEMENTS = wire.AnnouncementsRequest(phone=bytes(16)).SerializeToString()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    with launched(ServerPair(tmp_path_factory.mktemp("strangers"), keys_options=OPTIONS)) as made:
        yield made


def attacked(servers: ServerPair, listener: str) -> Service:
    return services(Target.of(servers), ANALYST)[listener]


async def flood(servers: ServerPair, *, connections: int, calls: int) -> Finding:
    """Calls for announcements, whose replies are not read."""
    return await take_no_answers(
        attacked(servers, "collecting"),
        path="/reticent.v1.Collecting/Announcements",
        message=ANNOUNCEMENTS,
        connections=connections,
        calls=calls,
    )


def test_whoever_takes_no_answers_keeps_nobody_out(servers: ServerPair) -> None:
    """Anybody can ask for the health of a server, and be answered. Both servers are attacked at the same time."""

    async def attacks() -> list[Finding]:
        listeners = [attacked(servers, listener) for listener in ("enrolment", "collecting")]
        return await asyncio.gather(*(take_no_answers(each, connections=5) for each in listeners))

    findings = asyncio.run(attacks())
    assert not any(finding.succeeded for finding in findings), findings


@pytest.mark.parametrize(("connections", "calls"), [(20, 600), (100, 8)])
def test_many_connections_with_many_calls_keep_nobody_out(servers: ServerPair, connections: int, calls: int) -> None:
    """Neither at the attacker's address nor at another one. All calls wait for admission in one queue."""
    elsewhere = Honest(attacked(servers, "collecting"), "127.0.0.2")

    async def attack() -> Finding:
        async with elsewhere.calling():
            return await flood(servers, connections=connections, calls=calls)

    for finding in (asyncio.run(attack()), elsewhere.finding("replies not read", "the same")):
        assert not finding.succeeded, finding


@pytest.mark.parametrize("listeners", [("enrolment", "collecting"), ("deciding", "counting")], ids="-".join)
def test_whoever_holds_connections_keeps_nobody_out(servers: ServerPair, listeners: tuple[str, str]) -> None:
    """Each server is attacked at one of its listeners, by a process of its own."""
    with ThreadPoolExecutor() as attackers:
        for done in attackers.map(partial(connections_held, servers), listeners):
            assert (done.returncode, done.stderr) == (0, ""), done.stdout
            assert "connections: stopped" in done.stdout


def connections_held(servers: ServerPair, listener: str) -> subprocess.CompletedProcess[str]:
    target = Target.of(servers)
    where: tuple[str | Path, ...] = (
        *("--certs", servers.certs, "--enrolment", target.enrolment, "--deciding", target.deciding),
        *("--collecting", target.collecting, "--counting", target.counting),
    )
    command = [
        sys.executable,
        "-m",
        "tests.attacks",
        "connections",
        *where,
        "--analyst",
        ANALYST,
        "--listener",
        listener,
    ]
    return subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_no_phone_is_lost_while_connections_are_cut(tmp_path: Path) -> None:
    """A server that lists its connections keeps the locks of its files, though a command of the operator writes too."""
    chance = random.Random(1)  # noqa: S311  # when callers call again is no secret
    with launched(ServerPair(tmp_path, keys_options=OPTIONS)) as servers:
        asyncio.run(hold_connections(attacked(servers, "enrolment"), connections=1500, seconds=2.0))
        phones = [phone for _ in range(2) for phone in asyncio.run(enrolled(servers, 5, chance))]
        servers.keys.restart()
        assert asyncio.run(members(servers, phones, chance)) == len(phones)


@pytest.mark.parametrize(("connections", "calls", "most"), [(1, 600, 64 * MEGABYTE), (40, 8, 320 * MEGABYTE)])
def test_a_phone_that_does_not_read_large_queries_takes_a_bounded_memory(
    tmp_path: Path, connections: int, calls: int, most: int
) -> None:
    """It is enrolled, and fetches a query of half a megabyte again and again. Strangers cannot fetch it at all.

    All connections may leave 64 MiB unread, those that are being cut as much again, and that is in memory about twice.
    """
    with launched(ServerPair(tmp_path, keys_options=OPTIONS)) as servers:  # of its own: it measures memory
        finding, grown = fetched(servers, connections, calls)
    assert not finding.succeeded, finding
    assert grown < most


def fetched(servers: ServerPair, connections: int, calls: int) -> tuple[Finding, int]:
    """The attack by a phone that fetches a large query, and by how much it made the server larger."""
    target = Target.of(servers)
    phones, query = large_query.announced(target, servers.invitations(large_query.MIN_PHONES), ANALYST)
    before = servers.aggregation.memory()
    servers.aggregation.reset_peak_memory()
    finding = asyncio.run(large_query.fetch(target, phones, query, connections, calls))
    return finding, servers.aggregation.peak_memory() - before


LACKING = """
import sys
from reticent.console.program import main
from reticent.protocol import Refusal, Refused
from reticent.rpc._call_limits import CallLimits
from reticent.rpc._connections import ConnectionLimits, Connections

def refuse(limits, network):
    raise Refused(Refusal.BUSY, "too many concurrent calls", retry_after=1.0)

{guard}
sys.exit(main(sys.argv[1:]))
"""


def lacking(folder: Path, guard: str) -> tuple[str | Path, ...]:
    """An aggregation server without one of its guards."""
    (folder / "lacking.py").write_text(LACKING.format(guard=guard))
    return sys.executable, folder / "lacking.py"


def test_a_server_whose_unread_replies_give_way_to_nobody_keeps_honest_callers_out(tmp_path: Path) -> None:
    program = lacking(tmp_path, "CallLimits._evict_one = refuse")
    with launched(ServerPair(tmp_path, keys_options=OPTIONS, aggregation_program=program)) as servers:
        finding = asyncio.run(flood(servers, connections=100, calls=8))
    assert finding.succeeded, finding


def test_a_server_that_limits_no_connections_keeps_honest_callers_out(tmp_path: Path) -> None:
    program = lacking(tmp_path, "ConnectionLimits.enforce = lambda limits: 0")
    with launched(ServerPair(tmp_path, keys_options=OPTIONS, aggregation_program=program)) as servers:
        finding = asyncio.run(hold_connections(attacked(servers, "collecting"), honest="127.0.0.2"))
    assert finding.succeeded, finding


def test_a_server_that_cuts_no_connection_keeps_honest_callers_out(tmp_path: Path) -> None:
    program = lacking(tmp_path, "Connections.cut = lambda connections, peer: None")
    with launched(ServerPair(tmp_path, keys_options=OPTIONS, aggregation_program=program)) as servers:
        finding, _ = fetched(servers, large_query.CONNECTIONS, large_query.CALLS)
    assert finding.succeeded, finding
