"""What everything that counts, and everything that keeps a budget, has in common, found by looking for it."""

import ast
import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from reticent.privacy import Cost, Counter, Ledger, Query
from reticent.privacy._cost import Noise
from reticent.privacy._counts import AlreadyDecided, Counts, QueryBurnt
from reticent.privacy._ledger import BudgetExceeded, Composition, Contradiction
from reticent.randomness import seeded
from reticent_analyst.analyst import Analyst
from reticent_sim.engine.coordinator import Coordinator
from reticent_sim.local_counts import LocalCounts
from tests.parties.counting_server import CountsOverTls
from tests.parties.queries import bits

ROOT = Path(__file__).parents[3]
COMPOSITIONS: tuple[Composition, ...] = get_args(Composition)
PHONES = 60
LIMIT = Cost(2.5, 1e-5)

Maker = Callable[[Ledger | None, float], Counts]

MAKERS: dict[type, Maker] = {
    Analyst: CountsOverTls,
    LocalCounts: lambda ledger, absent: LocalCounts(seeded("conformance"), ledger=ledger, absent=absent),
}
"""How to make each that counts: with this ledger, and with phones that are absent with this probability."""
DRIVERS: dict[type, type] = {Coordinator: Analyst}
"""What lets simulated phones contribute to the queries of another that counts."""


def _implementations() -> set[str]:
    """Every class of ours that has the method of `Counts`, with its arguments, by file and name."""
    parameters = list(inspect.signature(Counts.count).parameters)
    found = set()
    for path in ROOT.glob("*/reticent*/**/*.py"):
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, ast.ClassDef) and _methods(each).get("count", [])[: len(parameters)] == parameters:
                found.add(f"{path.relative_to(ROOT)}:{each.name}")
    return found - {_place(Counts)}


def _methods(each: ast.ClassDef) -> dict[str, list[str]]:
    functions = [item for item in each.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name: [argument.arg for argument in function.args.args] for function in functions}


def _place(each: type) -> str:
    return f"{Path(inspect.getfile(each)).relative_to(ROOT)}:{each.__name__}"


def test_all_that_count_are_checked() -> None:
    assert _implementations() == {_place(each) for each in [*MAKERS, *DRIVERS]}
    assert set(DRIVERS.values()) <= MAKERS.keys()


def _query(name: str = "gym", epsilon: float = 1.0) -> Query:
    counters = [Counter("visits", 0, 2), Counter("hours", -1, 1)]
    crowd = {"population": PHONES, "cohorts": 3, "min_contributions": 12, "liars": 2}
    return bits(id=name, counters=counters, epsilon=epsilon, l2_squared=4, l1=2, **crowd)


GOOD = np.tile([1, -1], (PHONES, 1))
BAD: dict[str, Any] = {
    "a phone too few": GOOD[1:],
    "a phone too many": np.vstack([GOOD, GOOD[:1]]),
    "a counter too few": GOOD[:, :1],
    "a counter too many": np.hstack([GOOD, GOOD]),
    "no number": np.where(np.arange(2 * PHONES).reshape(-1, 2) == 7, math.nan, GOOD),
    "no end": np.where(np.arange(2 * PHONES).reshape(-1, 2) == 7, math.inf, GOOD),
    "words": GOOD.astype(str),
    "one row": GOOD[0],
}


@contextlib.contextmanager
def _ledger(path: Path | None = None, composition: Composition = "addition", limit: Cost = LIMIT) -> Iterator[Ledger]:
    ledger = Ledger(limit, path, composition=composition)
    try:
        yield ledger
    finally:
        ledger.close()


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=[each.__name__ for each in MAKERS])
class TestCounts:
    def test_spend_exactly_what_a_query_costs(self, make: Maker, composition: Composition) -> None:
        query = _query()
        with _ledger(composition=composition) as ledger:
            foretold = ledger.quote("next", query.cost)
            release = make(ledger, 0.0).count(query, GOOD)
            [entry] = ledger.entries()
            assert (entry.cost, entry.state) == (query.cost, "spent")
            assert "gym" in entry.query
            assert (release.epsilon, release.delta, release.contributors) == (1.0, 1e-6, PHONES)
            assert ledger.quote("next", query.cost).spent == foretold.extra

    def test_ask_each_query_once(self, make: Maker, composition: Composition) -> None:
        with _ledger(composition=composition) as ledger:
            counts = make(ledger, 0.0)
            counts.count(_query(), GOOD)
            before = ledger.entries()
            for again in (_query(), _query(epsilon=0.5)):  # whatever else it says
                with pytest.raises(AlreadyDecided, match="'gym'"):
                    counts.count(again, GOOD)
            assert ledger.entries() == before
            counts.count(_query("pool"), GOOD)
            assert len(ledger.entries()) == 2

    def test_refuse_what_does_not_fit_and_change_nothing(self, make: Maker, composition: Composition) -> None:
        with _ledger(composition=composition, limit=Cost(1.5, 1e-5)) as ledger:
            counts = make(ledger, 0.0)
            counts.count(_query(), GOOD)
            before = ledger.entries()
            for _ in range(2):  # the second time as well: a refusal decides nothing
                with pytest.raises(BudgetExceeded):
                    counts.count(_query("large", epsilon=1.4), GOOD)
            assert ledger.entries() == before
            counts.count(_query("small", epsilon=0.05), GOOD)

    def test_spend_nothing_on_what_is_burnt(self, make: Maker, composition: Composition) -> None:
        with _ledger(composition=composition) as ledger:
            counts = make(ledger, 1.0)
            with pytest.raises(QueryBurnt, match="'gym'"):
                counts.count(_query(), GOOD)
            assert ledger.entries() == ()
            with pytest.raises(AlreadyDecided):
                counts.count(_query(), GOOD)
            assert ledger.entries() == ()

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    def test_refuse_bad_counters_and_spend_nothing(self, make: Maker, composition: Composition, bad: Any) -> None:
        with _ledger(composition=composition) as ledger:
            counts = make(ledger, 0.0)
            with pytest.raises(ValueError, match=r"phone|row|numbers"):
                counts.count(_query(), bad)
            assert ledger.entries() == ()
            assert counts.count(_query(), GOOD).contributors == PHONES  # nothing was decided

    def test_leave_what_they_are_given_as_it_was(self, make: Maker, composition: Composition) -> None:
        with _ledger(composition=composition) as ledger:
            given = 100.0 * GOOD
            given.flags.writeable = False
            make(ledger, 0.0).count(_query(), given)
            assert (given == 100.0 * GOOD).all()


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
class TestLedgers:
    COST = Cost(0.5, 1e-6, Noise("gaussian", 100.0, 1.0, 1.0))
    LARGE = Cost(2.4, 9e-6, Noise("gaussian", 6.0, 1.0, 1.0))

    @pytest.fixture
    def ledger(self, tmp_path: Path, kept: bool, composition: Composition) -> Iterator[Ledger]:
        with _ledger(tmp_path / "ledger" if kept else None, composition) as ledger:
            yield ledger

    def test_a_reservation_takes_what_its_quote_said(self, ledger: Ledger) -> None:
        quote = ledger.quote("a", self.COST)
        assert ledger.entries() == ()
        assert ledger.reserve("a", self.COST) == quote
        assert ledger.quote("b", self.COST).spent == quote.extra
        assert ledger.quote("a", self.COST).extra == Cost(0, 0)

    def test_what_is_given_back_was_never_there(self, ledger: Ledger) -> None:
        before = ledger.quote("b", self.COST)
        ledger.reserve("a", self.COST)
        ledger.give_back("a")
        ledger.give_back("a")
        assert ledger.quote("b", self.COST) == before
        assert ledger.entries() == ()

    def test_spending_changes_no_sum(self, ledger: Ledger) -> None:
        ledger.reserve("a", self.COST)
        before = ledger.quote("b", self.COST)
        ledger.spend("a")
        ledger.spend("a")
        assert ledger.quote("b", self.COST) == before
        with pytest.raises(Contradiction):
            ledger.give_back("a")

    def test_a_refusal_changes_nothing_and_says_what_is_left(self, ledger: Ledger) -> None:
        ledger.reserve("a", self.LARGE)
        before = ledger.entries(), ledger.quote("b", self.LARGE)
        assert not before[1].fits
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.reserve("b", self.LARGE)
        assert refusal.value.quote == before[1]
        assert [entry.query for entry in refusal.value.entries] == ["a"]
        assert (ledger.entries(), ledger.quote("b", self.LARGE)) == before

    def test_it_is_never_overspent_and_always_filled(self, ledger: Ledger) -> None:
        fitted = 0
        with contextlib.suppress(BudgetExceeded):
            for number in range(10_000):
                ledger.reserve(str(number), self.COST)
                fitted += 1
        assert fitted == len(ledger.entries()) > 1
        last = ledger.quote("more", self.COST)
        assert last.spent.epsilon <= LIMIT.epsilon
        assert last.spent.delta <= LIMIT.delta
        assert not last.fits

    def test_subjects_have_budgets_of_their_own(self, ledger: Ledger) -> None:
        ledger.reserve("a", self.LARGE, subject="one")
        assert ledger.reserve("a", self.LARGE, subject="other").spent == Cost(0, 0)
        assert [entry.subject for entry in ledger.entries()] == ["one", "other"]
        assert len(ledger.entries(subject="one")) == 1

    def test_contradictions_change_nothing(self, ledger: Ledger) -> None:
        ledger.reserve("a", self.COST)
        before = ledger.entries()
        for call in (
            lambda: ledger.reserve("a", self.LARGE),
            lambda: ledger.quote("a", self.LARGE),
            lambda: ledger.spend("b"),
        ):
            with pytest.raises(Contradiction):
                call()
        assert ledger.entries() == before

    @pytest.mark.parametrize("name", ["", None, 5, b"a"])
    def test_names_are_text(self, ledger: Ledger, name: Any) -> None:
        refused = "is named by text that is not empty: got"
        with pytest.raises(ValueError, match=refused):
            ledger.reserve(name, self.COST)
        with pytest.raises(ValueError, match=refused):
            ledger.quote(name, self.COST)
        if name is not None:  # the ledger's own subject
            with pytest.raises(ValueError, match=refused):
                ledger.reserve("a", self.COST, subject=name)
        assert ledger.entries() == ()

    def test_a_restart_finds_what_was_left(
        self, ledger: Ledger, tmp_path: Path, kept: bool, composition: Composition
    ) -> None:
        ledger.reserve("a", self.COST)
        ledger.reserve("b", self.COST)
        ledger.spend("a")
        with _ledger(tmp_path / "ledger" if kept else None, composition) as again:
            assert again.entries() == (ledger.entries() if kept else ())
