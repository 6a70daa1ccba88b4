"""Both servers killed again and again, in the middle of what they do: what was acknowledged is counted once."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from reticent_sim.engine import RETICENT, ServerPair, launched
from tests.system.campaign import ALLOWED, START, Campaign, campaign

SEED = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key_bits", "phones", "queries", "kills", "database"),
    [
        (1024, 240, 6, (10, 20, 16), "sqlite"),
        (3072, 80, 2, (3, 6, 5), "sqlite"),
        (1024, 160, 4, (5, 10, 8), "postgresql"),
    ],
    ids=["52 kills", "3072 bits", "postgresql"],
)
def test_whatever_is_killed_what_was_acknowledged_is_counted_once(  # noqa: PLR0917  # a campaign's size
    tmp_path: Path,
    key_bits: int,
    phones: int,
    queries: int,
    kills: tuple[int, int, int],
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    address = request.getfixturevalue("postgres") if database == "postgresql" else None
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it where the test fails
    with launched(
        ServerPair(tmp_path, clock=START, keys_options=ALLOWED, key_bits=key_bits, database=address)
    ) as servers:
        chance = random.Random(SEED)  # noqa: S311  # when to kill is no secret
        by_clock = [False, True] * (queries // 2)
        asyncio.run(campaign(servers, chance, phones=phones, by_clock=by_clock, kills=kills, database=address))


HASTY = """
import sys, threading
from reticent.console import program
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
sys.exit(program.main(sys.argv[1:]))
"""
"""An aggregation server that acknowledges contributions a moment before it commits them."""


async def smaller(servers: ServerPair, chance: random.Random) -> list[str]:
    """The same with fewer phones and kills, at the aggregation server only: what is wrong in the end."""
    held = Campaign(servers, chance)
    await held.join(120, kills=0)
    await held.announce([True] * 3)
    await held.contribute(kills=3)
    decided = await held.decisions(within=30)  # a server that loses what it wrote may lose what it asked, too
    assert len(held.kills) == 6
    return held.wrong(decided)


@pytest.mark.slow
@pytest.mark.parametrize("hasty", [False, True], ids=["committed, then acknowledged", "acknowledged, then committed"])
def test_what_is_acknowledged_before_it_is_committed_is_seen_to_be_missing(tmp_path: Path, hasty: bool) -> None:
    (tmp_path / "hasty.py").write_text(HASTY)
    program = (sys.executable, tmp_path / "hasty.py") if hasty else RETICENT
    with launched(ServerPair(tmp_path, clock=START, keys_options=ALLOWED, aggregation_program=program)) as servers:
        wrong = asyncio.run(smaller(servers, random.Random(SEED)))  # noqa: S311  # as above
    missing = [each for each in wrong if each.endswith("is counted 0 times, not 1")]
    assert bool(missing) == hasty, wrong
    assert hasty or not wrong, wrong
