"""What is acknowledged is in the sum, once; what is not is not: for all schedules, and for servers that are killed."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
import time as wall
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from reticent.privacy import Query
from reticent.protocol import Refused, statements
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.counting.collection import ContributionResult
from tests.agg.broken_stores import AcknowledgesBeforeCommit, CommitsLate, ForgetsReceipts
from tests.parties import aggregation
from tests.parties.aggregation import Phone, Time

PHONES, ATTEMPTS = 6, 2
SURE = (6, 7)  # two phones that always contribute: a sum of fewer is burnt, and not looked at
DEADLINE = 60.0  # seconds for a process


@dataclass(frozen=True)
class Step:
    """Some contributions at once, with what happens to the server meanwhile, or afterwards.

    Args:
        sent: Each one's phone and attempt.
        fault: Before which statement of SQL the disk fails; None if it does not.
        crash: Whether the server is dropped afterwards, and begun anew from its file.
    """

    sent: Sequence[tuple[int, int]]
    fault: int | None
    crash: bool


schedules = st.lists(
    st.builds(
        Step,
        sent=st.lists(st.tuples(st.integers(0, PHONES - 1), st.integers(0, ATTEMPTS - 1)), min_size=1, max_size=5),
        fault=st.none() | st.integers(0, 12),
        crash=st.booleans(),
    ),
    max_size=6,
)

Opened = Callable[[Path, Time], AggregationServer]


def place_of(phone: int, attempt: int) -> int:
    """Each attempt of each phone has a digit of its own in the sum."""
    return phone * ATTEMPTS + attempt


def message(query: Query, phone: int, attempt: int) -> wire.Contribution:
    return Phone(phone).contribution(query, ciphertexts=aggregation.ciphertexts_of(place_of(phone, attempt), 0, 1))


def check_exactly_once(schedule: Sequence[Step], opened: Opened = aggregation.opened) -> None:
    """Run a schedule, close, decrypt: the sum is that of what was acknowledged."""
    with TemporaryDirectory() as folder, contextlib.ExitStack() as servers:
        path, time = Path(folder) / "aggregation.db", Time()
        server = servers.enter_context(contextlib.closing(opened(path, time)))
        query = aggregation.collecting(server, aggregation.make_query(population=PHONES + len(SURE)))
        stands = {phone: 0 for phone in SURE if server.collection.contribute([message(query, phone, 0)])}
        for step in schedule:
            outcomes = attempt(server, [message(query, *each) for each in step.sent], step.fault)
            for (phone, number), outcome in zip(step.sent, outcomes, strict=False):
                if isinstance(outcome, Refused):
                    assert outcome.refusal.name == "CONFLICT"
                    assert stands.get(phone, number) != number, "what stands is refused"
                else:
                    assert stands.setdefault(phone, number) == number, "two contributions of a phone are acknowledged"
            if step.crash:
                aggregation.database_of(server)._connection.close()  # as the system does for a process that is killed
                server = servers.enter_context(contextlib.closing(opened(path, time)))
        (head,) = aggregation.closed(server, time, query)
        expected = {place_of(phone, number) for phone, number in stands.items()}
        assert aggregation.phones_in(head) == expected, "the sum is not that of what was acknowledged"
        assert head.contributors == len(stands)
        assert {each.phone for each in aggregation.receipts_of(server, head)} == {Phone(phone).id for phone in stands}


def attempt(server: AggregationServer, sent: list[wire.Contribution], fault: int | None) -> list[ContributionResult]:
    """Contribute while the disk fails before some statement; nothing comes of it then."""
    database = aggregation.database_of(server)
    honest, left = database._execute, fault

    def execute(sql: str, values: Any = ()) -> sqlite3.Cursor:
        nonlocal left
        if left is not None and not sql.startswith("ROLLBACK"):
            if left == 0:
                raise sqlite3.OperationalError("disk I/O error")
            left -= 1
        return honest(sql, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_execute", execute)
        try:
            return server.collection.contribute(sent)
        except OSError:
            assert left == 0
            return []


@given(schedules)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_acknowledged_is_counted_exactly_once(schedule: list[Step]) -> None:
    check_exactly_once(schedule)


@pytest.mark.slow
@given(schedules)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_acknowledged_is_counted_exactly_once_for_many_schedules(schedule: list[Step]) -> None:
    check_exactly_once(schedule)


@pytest.mark.parametrize("broken", [AcknowledgesBeforeCommit, ForgetsReceipts, CommitsLate])
def test_the_check_above_finds_a_broken_store(broken: type[SqlStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.parties.aggregation.SqlStore", broken)

    def is_found(schedule: list[Step]) -> bool:
        try:
            check_exactly_once(schedule)
        except AssertionError:
            return True
        return False

    found = find(
        schedules,
        is_found,
        settings=settings(max_examples=2000, deadline=None, phases=[Phase.generate], database=None),
        random=random.Random(1),  # noqa: S311  # so that it finds what it found before
    )
    monkeypatch.undo()
    check_exactly_once(found)  # the right store passes


class Workers:
    """Processes that have the same contributions taken in, over one file or PostgreSQL database."""

    def __init__(self, folder: Path, phones: int, database: str | None = None, *, claims: bool = True) -> None:
        self.folder, self.time, self.database = folder, Time(), database
        self._claims = claims
        server = self.opened()
        self.query = aggregation.collecting(server, aggregation.make_query(population=phones))
        server.close()
        for number in range(phones):
            (folder / f"{number}.message").write_bytes(Phone(number).contribution(self.query).SerializeToString())

    def opened(self) -> AggregationServer:
        return aggregation.opened(self.database or self.folder / "aggregation.db", self.time)

    def _database(self) -> list[str]:
        return [] if self.database is None else [self.database, *([] if self._claims else ["without a claim"])]

    def start(self, seeds: Iterable[int], most: int) -> list[subprocess.Popen[str]]:
        """Processes that begin together: each has claimed its slot before one of them contributes."""
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.agg.worker", str(self.folder), str(seed), str(most), *self._database()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]
        for each in started:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in started:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return started

    def check(self, acknowledged: set[int]) -> None:
        """All that was acknowledged is in the sum, and nothing is in it twice."""
        server = self.opened()
        (head,) = aggregation.closed(server, self.time, self.query)
        assert acknowledged <= aggregation.phones_in(head)
        assert len(aggregation.phones_in(head)) == head.contributors == len(aggregation.receipts_of(server, head))
        server.close()

    def digest(self, number: int) -> str:
        sent = Phone(number).contribution(self.query)
        return statements.digest(statements.contribution(sent, self.query.key_id)).hex()


def acknowledged_in(lines: Sequence[str], workers: Workers) -> set[int]:
    """What a worker says is acknowledged; a last line may be cut off."""
    whole = [line.split() for line in lines if line.endswith("\n") and line != "done\n"]
    assert all(digest == workers.digest(int(place)) for place, digest in whole)
    return {int(place) for place, _ in whole}


def check_two_processes_may_race(workers: Workers) -> None:
    for each in workers.start((1, 2), 4):
        lines = each.communicate("", timeout=DEADLINE)[0].splitlines(keepends=True)
        assert lines[-1] == "done\n"
        assert acknowledged_in(lines, workers) == set(range(60))
    workers.check(set(range(60)))


def test_two_processes_may_race(tmp_path: Path) -> None:
    check_two_processes_may_race(Workers(tmp_path, 60))


@pytest.mark.slow
def test_two_processes_may_race_on_postgresql(tmp_path: Path, postgres: str) -> None:
    check_two_processes_may_race(Workers(tmp_path, 60, postgres))


@pytest.mark.slow
def test_two_processes_that_add_to_one_sum_may_race_on_postgresql(tmp_path: Path, postgres: str) -> None:
    """As if both had claimed the same slot: the row of the sum is locked."""
    check_two_processes_may_race(Workers(tmp_path, 60, postgres, claims=False))
    with psycopg.connect(postgres) as raw:
        assert raw.execute("SELECT shard, contributors FROM reticent_agg.sums").fetchall() == [(0, 60)]


def check_processes_may_be_killed(workers: Workers, side_by_side: int) -> None:
    """Several at a time; each is killed at a moment of its own, and followed by another one."""
    chance = random.Random(7)  # noqa: S311  # moments
    acknowledged: set[int] = set()
    interrupted = 0
    for first in range(0, 24, side_by_side):
        for process in workers.start(range(first, first + side_by_side), 3):
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randint(1, 12))]
            wall.sleep(chance.random() * 0.004)  # the length of a transaction
            process.kill()
            lines += process.stdout.readlines()
            process.communicate(timeout=DEADLINE)
            interrupted += "done\n" not in lines
            acknowledged |= acknowledged_in(lines, workers)
    assert interrupted >= 24 // side_by_side // 2
    assert len(acknowledged) >= 60
    workers.check(acknowledged)


@pytest.mark.slow
def test_a_process_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    check_processes_may_be_killed(Workers(tmp_path, 120), 1)


@pytest.mark.slow
def test_processes_on_postgresql_may_be_killed_at_any_moment(tmp_path: Path, postgres: str) -> None:
    workers = Workers(tmp_path, 120, postgres)
    check_processes_may_be_killed(workers, 3)
    with psycopg.connect(postgres) as raw:
        (shards,) = raw.execute("SELECT count(DISTINCT shard) FROM reticent_agg.sums").fetchone() or (0,)
        assert 1 < shards <= 3  # a process that is killed early may have added nothing
