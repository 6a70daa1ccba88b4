"""The privacy budget that each subject has spent, by query, so that nothing is spent twice or beyond the limit.

    ReticentError
    └── LedgerError
        ├── BudgetExceeded    a query would cost more than is left
        ├── Contradiction     the request contradicts the entries of the ledger
        └── UnreadableLedger  the file is damaged, foreign, or of another version

A query is first reserved, then spent when it is released, or given back when it failed. A reservation counts as spent
until then, so that no order of events overspends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from reticent.arguments import checked_positive
from reticent.errors import ExitCode, ReticentError
from reticent.privacy._cost import REMEMBERED, Cost, decimal, epsilon_of, log_delta_of, renyi_of, sum_of_costs
from reticent.storage.database import Database
from reticent.storage.sql import Execute, FileFormat

Composition = Literal["addition", "renyi"]
"""The rule by which a ledger adds up costs."""

EntryState = Literal["reserved", "spent"]

SELF = "self"
"""The default subject: the owner of the ledger, as on a phone."""

APPLICATION = 0x5245544C  # "RETL"

_SCHEMA = """
CREATE TABLE entries (
    subject TEXT NOT NULL, query TEXT NOT NULL, cost TEXT NOT NULL, spent INTEGER NOT NULL,
    PRIMARY KEY (subject, query)
) WITHOUT ROWID
"""
_NAMED = 5  # queries that a refusal lists


@dataclass(frozen=True)
class Quote:
    """The effect of a query on a budget.

    Args:
        spent: By the queries before it, reserved ones included.
        extra: What this one takes on top; nothing, where it is reserved or spent already.
        left: What remains of the limit before it.
        fits: Whether it may be reserved.
    """

    spent: Cost
    extra: Cost
    left: Cost
    fits: bool


@dataclass(frozen=True)
class Entry:
    """A query that a subject has taken part in, or is about to."""

    subject: str
    query: str
    cost: Cost
    state: EntryState


class LedgerError(ReticentError):
    """A ledger refuses a request, or cannot be used."""


class Contradiction(LedgerError):
    """A query is reserved at two costs, given back after it was spent, or spent without a reservation."""


class UnreadableLedger(LedgerError):
    """The file is not a ledger that this program can trust."""

    exit_code = ExitCode.BAD_INPUT


class BudgetExceeded(LedgerError):
    """A query costs more than is left of a budget.

    Args:
        subject: The owner of the budget.
        query: The refused query.
        quote: Its cost, and what is left of the budget.
        entries: The queries that spent the budget.
    """

    def __init__(self, subject: str, query: str, quote: Quote, entries: Sequence[Entry]) -> None:
        self.subject = subject
        self.query = query
        self.quote = quote
        self.entries = tuple(entries)
        names = [repr(entry.query) for entry in self.entries[:_NAMED]]
        if len(self.entries) > _NAMED:
            names.append(f"{len(self.entries) - _NAMED} more")
        by = f" by {', '.join(names)}" if names else ""
        super().__init__(
            f"{query!r} takes {_pair(quote.extra)} of the budget of {subject!r}, and {_pair(quote.left)} is left: "
            f"{_pair(quote.spent)} was spent{by}"
        )

    def __reduce__(self) -> tuple[type[BudgetExceeded], tuple[str, str, Quote, tuple[Entry, ...]]]:
        return type(self), (self.subject, self.query, self.quote, self.entries)  # so that it crosses processes


_KIND = FileFormat("a ledger", APPLICATION, _SCHEMA, UnreadableLedger)


class Ledger:
    """The spending of each subject, never above a limit, through concurrent use and kills.

    With a path the ledger is one SQLite file, readable by its owner only. The effect of a method is on disk when it
    returns, and several processes may use one file. The limit and the composition are not in the file: they are
    arguments.

    Both ways to compose hold when each query is chosen after the answers to those before it. By addition, epsilons
    and deltas add. Through Rényi divergences, they are added at one order, fixed by the limit before anything is
    spent; that fits many more small queries, and a few less large ones. What is then said to be spent is the epsilon
    at the limit's delta, and delta itself is not divided.

    Args:
        limit: How much any one subject may spend, in the sense in which costs are meant.
        path: Where the file is or will be; in memory, for as long as it is used, unless given. Or an open database with
            the table of `SCHEMA`, which outlives the ledger: what is done here within a change of it is a part of that.
        composition: "addition" or "renyi"; the latter needs costs that say their noise, or have no delta.
        subject: Whose budget it is where a method is not told.

    >>> ledger = Ledger(Cost(1.0, 1e-6))
    >>> ledger.reserve("steps", Cost(0.75, 1e-7)).left.epsilon
    1.0
    >>> ledger.spend("steps")
    >>> ledger.quote("sleep", Cost(0.5, 1e-7)).fits
    False
    >>> ledger.close()
    """

    SCHEMA = _SCHEMA
    """The table of the entries, in SQL."""

    def __init__(
        self,
        limit: Cost,
        path: str | Path | Database | None = None,
        *,
        composition: Composition = "addition",
        subject: str = SELF,
    ) -> None:
        if composition not in get_args(Composition):
            raise ValueError(f"costs compose by {' or '.join(get_args(Composition))}: got {composition!r}")
        self.limit = Cost(limit.epsilon, limit.delta)
        self.composition = composition
        self.subject = _name("subject", subject)
        self._rule = _Addition(self.limit) if composition == "addition" else _Renyi(self.limit)
        self._owns_database = not isinstance(path, Database)
        self._database = path if isinstance(path, Database) else Database(None if path is None else Path(path), _KIND)
        self.path = self._database.path

    def quote(self, query: str, cost: Cost, *, subject: str | None = None) -> Quote:
        """The cost of a query, without reserving it.

        Raises:
            Contradiction: The query is there, at another cost.
        """
        with self._database.reading() as run:
            return self._quote(run, _name("query", query), cost, self._whose(subject))

    def reserve(self, query: str, cost: Cost, *, subject: str | None = None) -> Quote:
        """Set apart what a query costs; reserving it again at the same cost changes nothing.

        Returns:
            How it stood before.

        Raises:
            BudgetExceeded: It does not fit, and nothing was set apart.
            Contradiction: The query is there, at another cost.
        """
        subject = self._whose(subject)
        with self._database.transaction() as run:
            quote = self._quote(run, _name("query", query), cost, subject)
            if not quote.fits:
                raise BudgetExceeded(subject, query, quote, self._entries(run, subject))
            run("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, 0)", (subject, query, cost.to_text()))
        return quote

    def spend(self, query: str, *, subject: str | None = None) -> None:
        """Say that a reserved query was released; saying it again changes nothing.

        Raises:
            Contradiction: Nothing was reserved for it.
        """
        subject = self._whose(subject)
        with self._database.transaction() as run:
            found = run("UPDATE entries SET spent = 1 WHERE subject = ? AND query = ?", (subject, query))
            if found.rowcount == 0:
                raise Contradiction(f"{query!r} cannot be spent by {subject!r}: nothing is reserved for it")

    def give_back(self, query: str, *, subject: str | None = None) -> None:
        """Take back what a query reserved that never was released and never will be.

        Where nothing is reserved, nothing happens: it was given back before.

        Raises:
            Contradiction: The query was spent.
        """
        subject = self._whose(subject)
        with self._database.transaction() as run:
            named = (subject, query)
            run("DELETE FROM entries WHERE subject = ? AND query = ? AND spent = 0", named)
            if run("SELECT 1 FROM entries WHERE subject = ? AND query = ?", named).fetchone():
                raise Contradiction(f"{query!r} cannot be given back to {subject!r}: it was spent")

    def entries(self, *, subject: str | None = None) -> tuple[Entry, ...]:
        """The reserved and spent costs, by subject and query; of one subject, or of all."""
        with self._database.reading() as run:
            return self._entries(run, subject)

    def close(self) -> None:
        """Let go of the file, unless the database was given."""
        if self._owns_database:
            self._database.close()

    def _whose(self, subject: str | None) -> str:
        return self.subject if subject is None else _name("subject", subject)

    def _quote(self, run: Execute, query: str, cost: Cost, subject: str) -> Quote:
        entries = self._entries(run, subject)
        held = next((entry for entry in entries if entry.query == query), None)
        if held is not None and held.cost != cost:
            raise Contradiction(f"{query!r} is {held.state} by {subject!r} at {held.cost}: it cannot cost {cost}")
        before = [entry.cost for entry in entries]
        spent = self._rule.total(before)
        after = spent if held is not None else self._rule.total([*before, cost])
        fits = held is not None or self._rule.allows([*before, cost])
        return Quote(spent, _less(after, spent), self._rule.left(spent), fits)

    def _entries(self, run: Execute, subject: str | None) -> tuple[Entry, ...]:
        if subject is None:
            rows = run("SELECT subject, query, cost, spent FROM entries ORDER BY subject, query")
        else:  # a statement of its own, for which SQLite uses the index: a file may hold many subjects
            rows = run("SELECT subject, query, cost, spent FROM entries WHERE subject = ? ORDER BY query", (subject,))
        return tuple(self._entry(row) for row in rows)

    def _entry(self, row: tuple[str, str, str, int]) -> Entry:
        subject, query, cost, spent = row
        try:
            return Entry(subject, query, Cost.from_text(cost), "spent" if spent else "reserved")
        except ValueError as error:
            raise UnreadableLedger(f"{self.path} is damaged: {error}") from error


class _Addition:
    """Epsilons add, and deltas add."""

    def __init__(self, limit: Cost) -> None:
        self.limit = limit

    def total(self, costs: Sequence[Cost]) -> Cost:
        epsilon, delta = sum_of_costs(costs)
        return Cost(float(epsilon), min(float(delta), math.nextafter(1, 0)))

    def allows(self, costs: Sequence[Cost]) -> bool:
        epsilon, delta = sum_of_costs(costs)
        return epsilon <= decimal(self.limit.epsilon) and delta <= decimal(self.limit.delta)

    def left(self, spent: Cost) -> Cost:
        return _less(self.limit, spent)


class _Renyi:
    """Divergences add at one order.

    It is the one at which the most noise of the Gaussian kind fits. It may depend on the limit only: choosing it by
    what earlier answers have cost, or taking the better of several, would void the bound for queries that are chosen
    by those answers.
    """

    def __init__(self, limit: Cost) -> None:
        checked_positive("the limit's epsilon", limit.epsilon)
        checked_positive("the limit's delta", limit.delta)
        self.limit = limit
        self.order = _best_order(limit)

    def total(self, costs: Sequence[Cost]) -> Cost:
        divergence = self._divergence(costs)
        if divergence == 0:
            return Cost(0.0, 0.0)
        return Cost(epsilon_of(divergence, self.order, self.limit.delta), self.limit.delta)

    def allows(self, costs: Sequence[Cost]) -> bool:
        log_delta = log_delta_of(self._divergence(costs), self.order, self.limit.epsilon)
        return log_delta <= math.log(self.limit.delta)

    def left(self, spent: Cost) -> Cost:
        return Cost(max(0.0, self.limit.epsilon - spent.epsilon), self.limit.delta)

    def _divergence(self, costs: Sequence[Cost]) -> float:
        divergence = renyi_of(costs, self.order)
        if divergence is None:
            without = next(cost for cost in costs if cost.renyi(self.order) is None)
            raise ValueError(f"a cost without its noise does not compose through Rényi divergences: got {without}")
        return divergence


def _best_order(limit: Cost) -> int:
    """The whole order a + 1 that maximises (epsilon - c/a) / (a + 1), what fits of sensitivity²/(2 variance)."""
    c = math.log1p(math.exp(-limit.epsilon)) - math.log(limit.delta)
    best = (c + math.sqrt(c * (c + limit.epsilon))) / limit.epsilon
    return 1 + max({max(1, math.floor(best)), math.ceil(best)}, key=lambda a: (limit.epsilon - c / a) / (a + 1))


@lru_cache(maxsize=REMEMBERED)
def _less(one: Cost, other: Cost) -> Cost:
    epsilon = decimal(one.epsilon) - decimal(other.epsilon)
    delta = decimal(one.delta) - decimal(other.delta)
    return Cost(max(0.0, float(epsilon)), max(0.0, float(delta)))


def _pair(cost: Cost) -> str:
    return f"({cost.epsilon:.6g}, {cost.delta:.3g})"


def _name(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a {what} is named by text that is not empty: got {value!r}")
    return value
