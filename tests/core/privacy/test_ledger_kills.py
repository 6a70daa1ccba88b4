"""Ledgers that are killed, and used by several at once."""

import contextlib
import itertools
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from reticent.privacy._cost import Cost
from reticent.privacy._ledger import SELF, BudgetExceeded, Contradiction, Entry, Ledger

DEADLINE = 60.0  # seconds a process of a test may take


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


class _Books(RuleBasedStateMachine):
    """Any sequence of reserve, spend, give back and crash, through two handles, against a plain dictionary."""

    queries = Bundle("queries")

    @initialize(limit=st.sampled_from([Cost(1.0, 1e-5), Cost(0.3, 1e-6)]))
    def begin(self, limit: Cost) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger"
        self.limit = limit
        self.handles = [Ledger(limit, self.path), Ledger(limit, self.path)]
        self.books: dict[str, tuple[Cost, bool]] = {}

    @rule(target=queries, name=st.sampled_from("abcdefgh"))
    def name(self, name: str) -> str:
        return name

    @rule(query=queries, tenths=st.integers(0, 4), handle=st.integers(0, 1))
    def reserve(self, query: str, tenths: int, handle: int) -> None:
        cost = Cost(tenths / 10, tenths * 1e-7)
        ledger = self.handles[handle]
        if query in self.books and self.books[query][0] != cost:
            with pytest.raises(Contradiction):
                ledger.reserve(query, cost)
        elif query in self.books:
            assert ledger.reserve(query, cost).extra == Cost(0, 0)
        elif self._spent() + Fraction(tenths, 10) <= Fraction(repr(self.limit.epsilon)):
            assert ledger.quote(query, cost).fits
            ledger.reserve(query, cost)
            self.books[query] = cost, False
        else:
            assert not ledger.quote(query, cost).fits
            with pytest.raises(BudgetExceeded) as refusal:
                ledger.reserve(query, cost)
            assert {entry.query for entry in refusal.value.entries} == set(self.books)

    @rule(query=queries, handle=st.integers(0, 1))
    def spend(self, query: str, handle: int) -> None:
        if query in self.books:
            self.handles[handle].spend(query)
            self.books[query] = self.books[query][0], True
        else:
            with pytest.raises(Contradiction):
                self.handles[handle].spend(query)

    @rule(query=consumes(queries), handle=st.integers(0, 1))
    def give_back(self, query: str, handle: int) -> None:
        if self.books.get(query, (None, False))[1]:
            with pytest.raises(Contradiction):
                self.handles[handle].give_back(query)
        else:
            self.handles[handle].give_back(query)
            self.books.pop(query, None)

    @rule(handle=st.integers(0, 1))
    def crash(self, handle: int) -> None:
        """One handle is gone and another there; the file is what the crash left."""
        abandoned = self.handles[handle]
        self.handles[handle] = Ledger(self.limit, self.path)
        abandoned.close()

    @invariant()
    def both_handles_see_the_books(self) -> None:
        if not hasattr(self, "handles"):
            return
        expected = tuple(
            Entry(SELF, query, cost, "spent" if spent else "reserved")
            for query, (cost, spent) in sorted(self.books.items())
        )
        for handle in self.handles:
            assert handle.entries() == expected
        assert self._spent() <= Fraction(repr(self.limit.epsilon))

    def _spent(self) -> Fraction:
        return sum((Fraction(repr(cost.epsilon)) for cost, _ in self.books.values()), Fraction(0))

    def teardown(self) -> None:
        if hasattr(self, "handles"):
            for handle in self.handles:
                handle.close()
            self.folder.cleanup()


TestBooks = _Books.TestCase
TestBooks.settings = settings(stateful_step_count=20)

WORKER = """
import sys
from reticent.privacy._cost import Cost
from reticent.privacy._ledger import Ledger
ledger = Ledger(Cost(1000.0, 0.5), sys.argv[1])
for number in range(100_000):
    for step in ("reserve", "spend") if number % 2 else ("reserve", "give_back"):
        print("begin", step, number, flush=True)
        getattr(ledger, step)(str(number), *([Cost(0.001, 0.0)] if step == "reserve" else []))
        print("done", step, number, flush=True)
"""


@pytest.mark.parametrize("number", [*range(4), *(pytest.param(each, marks=pytest.mark.slow) for each in range(4, 12))])
def test_a_kill_loses_nothing_that_was_done_and_invents_nothing(path: Path, number: int) -> None:
    """The process dies at any moment; each call it returned from holds, and the one under way did or did not happen."""
    rng = random.Random(number)  # noqa: S311  # only the moment of the kill
    with subprocess.Popen([sys.executable, "-c", WORKER, str(path)], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        lines = list(itertools.islice(worker.stdout, rng.randrange(1, 150)))
        threading.Event().wait(rng.random() * 0.002)
        worker.send_signal(signal.SIGKILL)
        lines += worker.stdout.read().splitlines()
    done: dict[str, str] = {}
    pending: tuple[str, str] | None = None
    for line in lines:
        match = re.fullmatch(r"(begin|done) (\w+) (\d+)\s*", line)
        if match is None:
            continue  # cut off by the kill
        pending = (match[2], match[3]) if match[1] == "begin" else None
        if match[1] == "done":
            done[match[3]] = match[2]
    after = dict(done)
    if pending is not None:
        after[pending[1]] = pending[0]
    with contextlib.closing(Ledger(Cost(1000.0, 0.5), path)) as ledger:
        found = {entry.query: entry.state for entry in ledger.entries()}
        assert found in (_states(done), _states(after))
        ledger.reserve("next", Cost(0.5, 0.0))


def _states(steps: dict[str, str]) -> dict[str, str]:
    names = {"reserve": "reserved", "spend": "spent"}
    return {query: names[step] for query, step in steps.items() if step in names}


RACER = """
import sys
from reticent.privacy._cost import Cost
from reticent.privacy._ledger import BudgetExceeded, Ledger
name, path = sys.argv[1:]
sys.stdin.readline()
ledger = Ledger(Cost(1.0, 0.5), path)
won = 0
for number in range(40):
    try:
        ledger.reserve(f"{name}{number}", Cost(0.03125, 0.0))
    except BudgetExceeded:
        continue
    won += 1
    if number % 3 == 0:
        ledger.give_back(f"{name}{number}")
        won -= 1
    else:
        ledger.spend(f"{name}{number}")
print(won)
"""


def test_processes_at_once_never_overspend(path: Path) -> None:
    """Four open a file that is not there yet, at the same moment, and reserve more than its limit of 32 queries."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, name, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abcd"
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate(timeout=DEADLINE)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 4
    with contextlib.closing(Ledger(Cost(1.0, 0.5), path)) as ledger:
        assert len(ledger.entries()) == sum(won) == 32
        assert {entry.state for entry in ledger.entries()} == {"spent"}


def test_threads_at_once_never_overspend() -> None:
    with contextlib.closing(Ledger(Cost(1.0, 0.0))) as ledger:
        won: list[str] = []

        def take(name: str) -> None:
            for number in range(20):
                with contextlib.suppress(BudgetExceeded):
                    ledger.reserve(f"{name}{number}", Cost(0.125, 0.0))
                    won.append(name)

        threads = [threading.Thread(target=take, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert len(won) == len(ledger.entries()) == 8
