"""Both servers killed again and again, in the middle of what they do: what was acknowledged is counted once."""

import asyncio
import contextlib
import random
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reticent.protocol import Refusal
from tests.system.campaign import ALLOWED, COHORTS, MIN_IN_FLIGHT, START, Campaign
from tests.system.processes import RETICENT, Servers, running

SEED = 5


@dataclass(frozen=True)
class Size:
    """How much a campaign does."""

    key_bits: int
    phones: int
    queries: int
    kills_joining: int
    kills_contributing: int
    kills_deciding: int

    @property
    def kills(self) -> int:
        """All of them; the aggregation server is killed at each closing, too."""
        return self.kills_joining + self.kills_contributing + self.kills_deciding + self.queries


MANY_KILLS = Size(1024, phones=240, queries=6, kills_joining=10, kills_contributing=20, kills_deciding=16)
LONG_KEYS = Size(3072, phones=80, queries=2, kills_joining=3, kills_contributing=6, kills_deciding=5)


async def campaign(servers: Servers, chance: random.Random, size: Size) -> None:
    """All of it, in the order of a query's life."""
    held = Campaign(servers, chance)
    await held.join(size.phones, kills=size.kills_joining)
    await held.announce([False, True] * (size.queries // 2))
    servers.keys.kill()  # so that nothing is decided yet
    await held.contribute(kills=size.kills_contributing)
    await asyncio.to_thread(servers.keys.start)
    await held.decide(kills=size.kills_deciding)
    servers.aggregation.restart()
    decided = await held.decisions()
    assert not held.wrong(decided)
    assert len(held.kills) == size.kills
    assert min(held.kills) >= MIN_IN_FLIGHT
    assert {len(each) for each in held.answers.values()} == {1}, "two answers about one cohort"
    for place, decision in decided.items():
        assert held.answers[place] == {decision.SerializeToString(deterministic=True)}
    refusals = {refusal for asked in held.asked for refusal in asked.refused.values()}
    assert refusals <= {Refusal.LATE}
    assert all(not asked.refused for asked in held.asked if not asked.by_clock)
    with contextlib.closing(sqlite3.connect(servers.journal)) as journal:
        for question, answer in (
            ("SELECT count(*) FROM phones", size.phones),
            ("SELECT count(*) FROM decisions", size.queries * COHORTS),
            ("SELECT count(DISTINCT answer) FROM decisions", size.queries * COHORTS),
        ):
            assert journal.execute(question).fetchone() == (answer,), question


@pytest.mark.slow
@pytest.mark.parametrize("size", [MANY_KILLS, LONG_KEYS], ids=["52 kills", "3072 bits"])
def test_whatever_is_killed_what_was_acknowledged_is_counted_once(tmp_path: Path, size: Size) -> None:
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it where the test fails
    with running(tmp_path, clock=START, keys_options=ALLOWED, key_bits=size.key_bits) as servers:
        asyncio.run(campaign(servers, random.Random(SEED), size))  # noqa: S311  # when to kill is no secret


HASTY = """
import sys, threading
from reticent import cli
from reticent.storage.database import Database

honest = Database._execute

def commit(database):
    with database._lock:
        if database._connection.in_transaction:
            honest(database, "COMMIT")
        database.hasty = False

def execute(database, statement, values=()):
    if statement.startswith("INSERT INTO receipts") and not getattr(database, "hasty", False):
        database.hasty = True
        threading.Timer(0.05, commit, (database,)).start()
    begun = statement == "BEGIN IMMEDIATE" and database._connection.in_transaction
    if begun or statement == "COMMIT" and getattr(database, "hasty", False):
        statement = "SELECT 1"
    return honest(database, statement, values)

Database._execute = execute
sys.exit(cli.main(sys.argv[1:]))
"""
"""An aggregation server that acknowledges contributions a moment before it commits them."""


async def smaller(servers: Servers, chance: random.Random) -> list[str]:
    """The same with fewer phones and kills, at the aggregation server only: what is wrong in the end."""
    held = Campaign(servers, chance)
    await held.join(120, kills=0)
    await held.announce([True] * 3)
    await held.contribute(kills=3)
    decided = await held.decisions(patience=30)  # a server that loses what it wrote may lose what it asked, too
    assert len(held.kills) == 6
    return held.wrong(decided)


@pytest.mark.slow
@pytest.mark.parametrize("hasty", [False, True], ids=["committed, then acknowledged", "acknowledged, then committed"])
def test_what_is_acknowledged_before_it_is_committed_is_seen_to_be_missing(tmp_path: Path, hasty: bool) -> None:
    (tmp_path / "hasty.py").write_text(HASTY)
    program = (sys.executable, tmp_path / "hasty.py") if hasty else RETICENT
    with running(tmp_path, clock=START, keys_options=ALLOWED, aggregation_program=program) as servers:
        wrong = asyncio.run(smaller(servers, random.Random(SEED)))  # noqa: S311  # as above
    missing = [each for each in wrong if each.endswith("is counted 0 times, not 1")]
    assert bool(missing) == hasty, wrong
    assert hasty or not wrong, wrong
