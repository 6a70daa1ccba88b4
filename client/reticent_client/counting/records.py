"""The contributions of a phone and the queries that it declined, in its store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reticent.privacy import Cost, Norms
from reticent.times import instant, milliseconds
from reticent_client.errors import Declined, FileError, Reason
from reticent_client.store import PhoneStore

__all__ = ["LIVE", "SPENT", "UNDECIDED", "ContributionState", "DeclinedQueries", "Record", "Records"]

REMEMBERED = 1000
"""Announcements that were declined: those from longest ago are forgotten."""


class ContributionState(Enum):
    """The state of a contribution."""

    STORED = "not acknowledged yet"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused by the server"
    RELEASED = "released: spent"
    VOID = "decrypted and not released: spent"
    BURNT = "burnt: given back"


UNDECIDED = (ContributionState.STORED, ContributionState.ACKNOWLEDGED, ContributionState.REFUSED)
"""The phone waits for a decision about these."""

SPENT = (ContributionState.RELEASED, ContributionState.VOID)

LIVE = UNDECIDED + SPENT
"""A contribution in one of these states is decrypted, or may still be: it counts against the budget."""


@dataclass(frozen=True)
class Record:
    """A contribution of this phone.

    Args:
        query: The digest.
        id: The query's id.
        account: The account of its cost in the ledger.
        terms: What all queries of a sequence have in common, as text.
        cost: What it costs.
        cohort: The phone's.
        identity: The key that signs the decision.
        state: How far it has come.
        norms: The size of the values before noise, for the other queries of a sequence; 0 without one.
        contribution: The digest of the signed contribution.
        message: Its bytes, until it is decided.
        size: The number of those bytes.
        seeded: Whether its noise could be replayed.
        attempts: How often sending it has failed.
        not_before: When to send it again.
        made: When it was made.
        detail: The server's refusal, or the decision's reason.
    """

    query: bytes
    id: str
    account: str
    terms: str
    cost: Cost
    cohort: int
    identity: bytes
    state: ContributionState
    norms: Norms
    contribution: bytes
    message: bytes | None
    size: int
    seeded: bool
    attempts: int
    not_before: dt.datetime
    made: dt.datetime
    detail: str


_COLUMNS = (
    "query, id, account, terms, cost, cohort, identity, state, l1, l2_squared, contribution, message, size, seeded, "
    "attempts, not_before, made, detail"
)


class Records:
    """The contributions of a phone, in its store."""

    def __init__(self, store: PhoneStore) -> None:
        self._database = store.database
        self._phone = store.phone

    def add(self, record: Record) -> None:
        """Keep a contribution before it is sent for the first time."""
        values = (
            record.query,
            record.id,
            record.account,
            record.terms,
            record.cost.to_text(),
            record.cohort,
            record.identity,
            record.state.name,
            record.norms.l1,
            record.norms.l2_squared,
            record.contribution,
            record.message,
            record.size,
            record.seeded,
            record.attempts,
            milliseconds(record.not_before),
            milliseconds(record.made),
            record.detail,
        )
        marks = ", ".join("?" * (1 + len(values)))
        with self._database.transaction() as run:
            run(f"INSERT INTO contributions (phone, {_COLUMNS}) VALUES ({marks})", (self._phone, *values))  # noqa: S608  # constants

    def postpone(self, query: bytes, not_before: dt.datetime) -> None:
        """Note that sending failed once more, and when to try again."""
        self._update("attempts = attempts + 1, not_before = ?", (milliseconds(not_before),), query)

    def advance(self, query: bytes, state: ContributionState, detail: str = "") -> None:
        """Go on to a state; a decided contribution needs its message no more."""
        kept = "" if state in UNDECIDED else ", message = NULL"
        self._update(f"state = ?, detail = ?{kept}", (state.name, detail), query)

    def of(self, query: bytes) -> Record | None:
        """The record of a query, by its digest."""
        return next(iter(self._where("query = ?", (query,))), None)

    def with_id(self, query_id: str) -> Record | None:
        """The record of a query, by its id."""
        return next(iter(self._where("id = ?", (query_id,))), None)

    def made(self, contribution: bytes) -> Record | None:
        """The record of a query, by the digest of what was contributed to it."""
        return next(iter(self._where("contribution = ?", (contribution,))), None)

    def all(self) -> list[Record]:
        """All of them, the oldest first."""
        return self._where("1", ())

    def within(self, states: Sequence[ContributionState], account: str | None = None) -> list[Record]:
        """Those in these states, of one account or of all."""
        marks = ", ".join("?" * len(states))
        names = [state.name for state in states]
        return self._where(f"state IN ({marks}) AND (? IS NULL OR account = ?)", [*names, account, account])

    def since(self, instant: dt.datetime) -> tuple[int, int]:
        """The number of contributions since then, and the bytes of all attempts to send them."""
        with self._database.reading() as run:
            row = run(
                "SELECT count(*), coalesce(sum(size * max(1, attempts)), 0) FROM contributions "
                "WHERE phone = ? AND made > ?",
                (self._phone, milliseconds(instant)),
            ).fetchone()
        return int(row[0]), int(row[1])

    def _where(self, condition: str, values: Sequence[Any]) -> list[Record]:
        with self._database.reading() as run:
            rows = run(
                f"SELECT {_COLUMNS} FROM contributions WHERE phone = ? AND {condition} ORDER BY made, id",  # noqa: S608  # constants
                (self._phone, *values),
            ).fetchall()
        return [_record(row) for row in rows]

    def _update(self, changes: str, values: Sequence[Any], query: bytes) -> None:
        with self._database.transaction() as run:
            run(f"UPDATE contributions SET {changes} WHERE phone = ? AND query = ?", (*values, self._phone, query))  # noqa: S608  # constants


class DeclinedQueries:
    """The countersigned queries that a phone has declined: shown to the user, and not fetched again.

    An announcement goes by its digest.
    """

    def __init__(self, store: PhoneStore) -> None:
        self._database = store.database
        self._phone = store.phone

    def remember(self, announcement: bytes, declined: Declined, policy: str, now: dt.datetime) -> None:
        """Remember why an announcement was declined, and under which policy."""
        query_id = declined.query or f"query {announcement.hex()[:16]}"
        key = (self._phone, announcement)
        content = (declined.reason.name, declined.sentence, policy)
        if self._find("reason = ? AND sentence = ? AND policy = ?", announcement, content) is not None:
            return
        with self._database.transaction() as run:
            run(
                "INSERT OR REPLACE INTO declined VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*key, query_id, *content, milliseconds(now)),
            )
            run(
                "DELETE FROM declined WHERE phone = ? AND announcement IN (SELECT announcement FROM declined "
                "WHERE phone = ? ORDER BY at DESC, announcement LIMIT -1 OFFSET ?)",
                (self._phone, self._phone, REMEMBERED),
            )

    def lasting(self, announcement: bytes, policy: str) -> Declined | None:
        """The reason why an announcement is declined for good under this policy, if any."""
        found = self._find("policy = ?", announcement, (policy,))
        return None if found is None or found.reason.passing else found

    def forget(self, announcement: bytes) -> None:
        """Forget what was declined, since the phone contributes after all."""
        with self._database.transaction() as run:
            run("DELETE FROM declined WHERE phone = ? AND announcement = ?", (self._phone, announcement))

    def all(self) -> list[Declined]:
        """All of them, the oldest first."""
        with self._database.reading() as run:
            rows = run(
                "SELECT id, reason, sentence FROM declined WHERE phone = ? ORDER BY at, id", (self._phone,)
            ).fetchall()
        return [_declined(row) for row in rows]

    def _find(self, condition: str, announcement: bytes, values: Sequence[str]) -> Declined | None:
        with self._database.reading() as run:
            row = run(
                f"SELECT id, reason, sentence FROM declined WHERE phone = ? AND announcement = ? AND {condition}",  # noqa: S608  # constants
                (self._phone, announcement, *values),
            ).fetchone()
        return None if row is None else _declined(row)


def _record(row: tuple[Any, ...]) -> Record:
    (query, query_id, account, terms, cost, cohort, identity, state, l1, l2_squared, contribution, *rest) = row
    message, size, seeded, attempts, not_before, made, detail = rest
    try:
        return Record(
            query=query,
            id=query_id,
            account=account,
            terms=terms,
            cost=Cost.from_text(cost),
            cohort=cohort,
            identity=identity,
            state=ContributionState[state],
            norms=Norms(l1, l2_squared),
            contribution=contribution,
            message=message,
            size=size,
            seeded=bool(seeded),
            attempts=attempts,
            not_before=instant(not_before),
            made=instant(made),
            detail=detail,
        )
    except (KeyError, ValueError) as error:
        raise FileError(f"the store is damaged: its record of {query_id!r} cannot be read ({error})") from error


def _declined(row: tuple[str, str, str]) -> Declined:
    query_id, reason, sentence = row
    try:
        return Declined(Reason[reason], sentence, query_id)
    except KeyError as error:
        raise FileError(f"the store is damaged: {reason!r} is no reason to decline") from error
