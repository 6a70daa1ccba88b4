"""The soak: contributions while servers are killed, each counted once; and whether the soak notices mistakes."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import soak as module
from benchmarks.load import LoadResult, OpenQuery, value_of
from benchmarks.phones import exact_query
from benchmarks.soak import GROWTH, Soak, SoakResult, failures, mistakes, sampled, soak
from reticent.protocol import SigningKey, statements
from reticent.v1 import counting_pb2 as wire
from reticent_sim.engine import ServerPair
from tests.parties.waiting import block_until

PHONES = 30
IDENTITY = SigningKey(bytes(32))
PLAN = Soak(rate=100, seconds=60, kill_every=15, phones=1000, loads=2, key_bits=2048)  # on PostgreSQL


@pytest.mark.slow
def test_a_minute_of_contributions_and_kills_counts_each_contribution_once(tmp_path: Path) -> None:
    result = soak(PLAN, tmp_path)
    assert result.wrong == []
    assert result.acknowledged == result.sent == 6000
    assert len(result.latencies) == result.sent
    assert len(result.kills) >= 3
    assert "PostgreSQL" in result.kills
    assert result.retries > 0, "no kill has met a contribution"
    assert result.quantile(0.5) < 1.0
    assert result.lasting == ["keys", "aggregation"]
    assert all(result.growth(server) < GROWTH for server in result.lasting)


@pytest.mark.slow
def test_the_memory_of_servers_is_sampled_while_another_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLE_EVERY", 0.01)
    monkeypatch.setattr(module, "WARM_UP", 0.0)
    with ServerPair(tmp_path) as servers, sampled([servers.aggregation, servers.keys]) as samples:
        servers.keys.start()  # the other one never runs
        block_until(lambda: len(samples["keys"]) >= 3)
        servers.keys.kill()
        seen = len(samples["keys"])
        servers.keys.start()
        block_until(lambda: len(samples["keys"]) >= seen + 3)
    assert set(samples) == {"keys"}


QUERY = OpenQuery(exact_query("query 0", "00" * 32, PHONES, closes_after=60), bytes(32))
SUM = sum(value_of(phone, 0) for phone in range(PHONES))


def decision(**changes: object) -> wire.Decision:
    """The decision that is right, or another one, signed by the key server."""
    made = wire.Decision(query=QUERY.query.digest, outcome=wire.RELEASED, contributors=PHONES)
    made.sums.append(statements.integer_to(SUM))
    made.MergeFrom(wire.Decision(**changes))  # type: ignore[arg-type]
    made.signature = IDENTITY.sign(statements.decision(made))
    return made


def mistakes_of(found: wire.Decision | None, acknowledged: int = PHONES) -> list[str]:
    result = LoadResult([acknowledged], [SUM], np.zeros(acknowledged), retries=0)
    decisions = {} if found is None else {QUERY.query.digest: found}
    return mistakes(IDENTITY.public, [QUERY], [result], decisions, PHONES)


def test_a_right_decision_is_no_mistake() -> None:
    assert mistakes_of(decision()) == []


@pytest.mark.parametrize(
    ("found", "acknowledged", "mistake"),
    [
        (decision(), PHONES - 1, "29 of 30 contributions are acknowledged"),
        (None, PHONES, "it is not decided"),
        (decision(contributors=PHONES - 1), PHONES, "29 contributions are counted, 30 were acknowledged"),
        (decision(contributors=PHONES + 1), PHONES, "31 contributions are counted, 30 were acknowledged"),
        (decision(outcome=wire.VOID, reason="another sum"), PHONES, "VOID, another sum"),
    ],
    ids=["not acknowledged", "not decided", "lost", "counted twice", "void"],
)
def test_a_lost_or_repeated_contribution_is_a_mistake(
    found: wire.Decision | None, acknowledged: int, mistake: str
) -> None:
    assert mistakes_of(found, acknowledged) == [f"query 0: {mistake}"]


def test_another_sum_is_a_mistake() -> None:
    other = decision()
    other.sums[0] = statements.integer_to(SUM + 1)
    other.signature = IDENTITY.sign(statements.decision(other))
    assert mistakes_of(other) == [f"query 0: the sum is {SUM + 1}, that of the acknowledged contributions {SUM}"]


def test_a_decision_of_somebody_else_is_a_mistake() -> None:
    other = decision()
    other.contributors += 1
    assert mistakes_of(other) == ["query 0: the decision is not signed by the key server"]


@pytest.mark.parametrize(("size", "growth"), [(100.0, 0.0), (80.0, 0.5)], ids=["flat", "growing"])
def test_growing_memory_is_noticed(size: float, growth: float) -> None:
    """From 80 MB to 130 MB within 100 seconds, and to 105 MB in the first half."""
    samples = [(float(second), size + growth * second) for second in range(101)]
    result = SoakResult(0, 0, 0.0, np.zeros(0), 0, [], {"keys": samples})
    assert result.growth("keys") == pytest.approx(130 / 105 - 1 if growth else 0.0)


def test_a_run_that_is_too_slow_or_grows_fails() -> None:
    flat, growing = ([(float(second), 80 + rise * second) for second in range(101)] for rise in (0.0, 0.5))
    memory = {"keys": flat, "aggregation": growing, "aggregation-2": growing}
    result = SoakResult(0, 0, 96.0, np.zeros(0), 0, ["aggregation-2"], memory, ["query 0: it is not decided"])
    assert failures(PLAN, result) == [
        "query 0: it is not decided",
        "96 contributions a second are acknowledged, 100 are planned",
        "the memory of aggregation grows by 23.8%",
    ]
    good = SoakResult(0, 0, 98.0, np.zeros(0), 0, ["aggregation-2"], memory | {"aggregation": flat})
    assert failures(PLAN, good) == []
