"""What a phone remembers of the queries that it was asked, in its store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reticent.privacy import Cost, Norms, Query
from reticent.times import instant, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_client.errors import Declined, FileError, Reason
from reticent_client.store import SqliteStore

__all__ = ["LIVE", "SPENT", "UNDECIDED", "DeclinedQueries", "Record", "Records", "State"]

REMEMBERED = 1000
"""Announcements that were declined: those from longest ago are forgotten."""


class State(Enum):
    """How far a query has come, for this phone."""

    INTENDED = "about to be answered: nothing was sent"
    STORED = "answered, and the answer may not have got through"
    ACKNOWLEDGED = "answered, and the answer is kept by the server"
    REFUSED = "answered, and the server does not take the answer"
    RELEASED = "released: spent"
    VOID = "decrypted and not released: spent"
    BURNT = "burnt: given back"


UNDECIDED = (State.STORED, State.ACKNOWLEDGED, State.REFUSED)
"""Of these the phone waits for the decision."""

SPENT = (State.RELEASED, State.VOID)

LIVE = UNDECIDED + SPENT
"""What was sent in these, or may have been, is decrypted or may still be: it counts."""


@dataclass(frozen=True)
class Record:
    """One query that this phone has answered, or is about to.

    Args:
        query: The digest.
        id: The query's id.
        account: Under which name the ledger books it.
        terms: What all queries of a sequence have in common, as text.
        cost: What it costs.
        cohort: The phone's.
        identity: The key that signs the decision.
        state: How far it has come.
        norms: The size of what was said, for the other queries of a sequence; 0 without one.
        contribution: The digest of the signed contribution.
        message: Its bytes, until it is decided.
        size: How many those are, or were.
        seeded: Whether its noise could be replayed.
        attempts: How often it was sent without an answer.
        not_before: When to send it again.
        made: When it was made.
        detail: The server's refusal, or the decision's reason.
        settled: Whether the ledger knows the decision.
    """

    query: bytes
    id: str
    account: str
    terms: str
    cost: Cost
    cohort: int
    identity: bytes
    state: State
    norms: Norms
    contribution: bytes
    message: bytes | None
    size: int
    seeded: bool
    attempts: int
    not_before: dt.datetime
    made: dt.datetime
    detail: str
    settled: bool


_COLUMNS = (
    "query, id, account, terms, cost, cohort, identity, state, l1, l2_squared, contribution, message, size, seeded, "
    "attempts, not_before, made, detail, settled"
)


class Records:
    """The queries that a phone has answered."""

    def __init__(self, store: SqliteStore) -> None:
        self._database = store.database

    def intend(self, query: Query, terms: str, cohort: int, identity: bytes, now: dt.datetime) -> None:
        """Write down that a query is about to be answered, before its budget is reserved."""
        with self._database.transaction() as run:
            run(
                f"INSERT OR IGNORE INTO contributions ({_COLUMNS}) "  # noqa: S608  # constants
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, x'', NULL, 0, 0, 0, 0, ?, '', 0)",
                (
                    query.digest,
                    query.id,
                    query.account,
                    terms,
                    query.cost.to_text(),
                    cohort,
                    identity,
                    State.INTENDED.name,
                    milliseconds(now),
                ),
            )

    def keep(self, message: wire.Contribution, contribution: bytes, norms: Norms, identity: bytes) -> bool:
        """Keep an answer before it is sent for the first time; whether it is the one that stands.

        Args:
            message: What is sent; of the cohort, and to be decided by the identity, that were intended.
            contribution: Its digest.
            norms: The size of what it says.
            identity: The key that signs the decision.
        """
        content = message.SerializeToString()
        with self._database.transaction() as run:
            kept = run(
                "UPDATE contributions SET state = ?, l1 = ?, l2_squared = ?, contribution = ?, message = ?, size = ?, "
                "seeded = ? WHERE query = ? AND state = ? AND cohort = ? AND identity = ?",
                (
                    State.STORED.name,
                    norms.l1,
                    norms.l2_squared,
                    contribution,
                    content,
                    len(content),
                    message.seeded,
                    message.query,
                    State.INTENDED.name,
                    message.cohort,
                    identity,
                ),
            )
        return kept.rowcount == 1

    def forget(self, query: bytes) -> None:
        """Forget a query that was about to be answered, and was not."""
        with self._database.transaction() as run:
            run("DELETE FROM contributions WHERE query = ? AND state = ?", (query, State.INTENDED.name))

    def unanswered(self, query: bytes, not_before: dt.datetime) -> None:
        """Note that an answer was sent, or could not be, and when to try again."""
        with self._database.transaction() as run:
            run(
                "UPDATE contributions SET attempts = attempts + 1, not_before = ? WHERE query = ?",
                (milliseconds(not_before), query),
            )

    def advance(self, query: bytes, state: State, detail: str = "") -> None:
        """Go on to a state; a decided one needs its message no more."""
        with self._database.transaction() as run:
            run("UPDATE contributions SET state = ?, detail = ? WHERE query = ?", (state.name, detail, query))
            if state not in UNDECIDED:
                run("UPDATE contributions SET message = NULL WHERE query = ?", (query,))

    def revoke(self, query: bytes, state: State, detail: str) -> None:
        """Go back on a decision: the ledger has to be told anew."""
        with self._database.transaction() as run:
            run(
                "UPDATE contributions SET state = ?, detail = ?, settled = 0 WHERE query = ?",
                (state.name, detail, query),
            )

    def settle(self, query: bytes) -> None:
        """Note that the ledger knows how a query was decided."""
        with self._database.transaction() as run:
            run("UPDATE contributions SET settled = 1 WHERE query = ?", (query,))

    def of(self, query: bytes) -> Record | None:
        """The record of a query, by its digest."""
        return next(iter(self._where("query = ?", (query,))), None)

    def with_id(self, query_id: str) -> Record | None:
        """The record of a query, by its id."""
        return next(iter(self._where("id = ?", (query_id,))), None)

    def made(self, contribution: bytes) -> Record | None:
        """The record of a query, by the digest of what was contributed to it."""
        return next(iter(self._where("contribution = ? AND contribution != x''", (contribution,))), None)

    def all(self) -> list[Record]:
        """All of them, the oldest first."""
        return self._where("1", ())

    def within(self, states: Sequence[State], account: str | None = None) -> list[Record]:
        """Those in these states, of one account or of all."""
        marks = ", ".join("?" * len(states))
        names = [state.name for state in states]
        return self._where(f"state IN ({marks}) AND (? IS NULL OR account = ?)", [*names, account, account])

    def unsettled(self) -> list[Record]:
        """Those about which the ledger may have to be told something."""
        return self._where("NOT settled AND state IN ('INTENDED', 'RELEASED', 'VOID', 'BURNT')", ())

    def since(self, instant: dt.datetime) -> tuple[int, int]:
        """How many were made since then, and the bytes of all times that those were sent."""
        with self._database.reading() as run:
            row = run(
                "SELECT count(*), coalesce(sum(size * max(1, attempts)), 0) FROM contributions "
                "WHERE made > ? AND state != 'INTENDED'",
                (milliseconds(instant),),
            ).fetchone()
        return int(row[0]), int(row[1])

    def _where(self, condition: str, values: Sequence[Any]) -> list[Record]:
        with self._database.reading() as run:
            rows = run(
                f"SELECT {_COLUMNS} FROM contributions WHERE {condition} ORDER BY made, id",  # noqa: S608  # constants
                values,
            ).fetchall()
        return [_record(row) for row in rows]


class DeclinedQueries:
    """What a phone has declined of what its key server has countersigned: for the user to see, and not to look again.

    An announcement goes by its digest.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._database = store.database

    def remember(self, announcement: bytes, declined: Declined, policy: str, now: dt.datetime) -> None:
        """Remember why an announcement was declined, and under which policy."""
        query_id = declined.query or f"query {announcement.hex()[:16]}"
        values = (announcement, query_id, declined.reason.name, declined.sentence, policy, milliseconds(now))
        with self._database.transaction() as run:
            if run(
                "SELECT 1 FROM declined WHERE announcement = ? AND reason = ? AND sentence = ? AND policy = ?",
                (announcement, declined.reason.name, declined.sentence, policy),
            ).fetchone():
                return
            run("INSERT OR REPLACE INTO declined VALUES (?, ?, ?, ?, ?, ?)", values)
            run(
                "DELETE FROM declined WHERE announcement IN "
                "(SELECT announcement FROM declined ORDER BY at DESC, announcement LIMIT -1 OFFSET ?)",
                (REMEMBERED,),
            )

    def lasting(self, announcement: bytes, policy: str) -> Declined | None:
        """Why an announcement is declined for good under this policy, where it is."""
        with self._database.reading() as run:
            row = run(
                "SELECT id, reason, sentence FROM declined WHERE announcement = ? AND policy = ?",
                (announcement, policy),
            ).fetchone()
        found = None if row is None else _declined(row)
        return None if found is None or found.reason.passing else found

    def forget(self, announcement: bytes) -> None:
        """Forget what was declined, since it was answered in the end."""
        with self._database.transaction() as run:
            run("DELETE FROM declined WHERE announcement = ?", (announcement,))

    def all(self) -> list[Declined]:
        """All of them, the oldest first."""
        with self._database.reading() as run:
            rows = run("SELECT id, reason, sentence FROM declined ORDER BY at, id").fetchall()
        return [_declined(row) for row in rows]


def _record(row: tuple[Any, ...]) -> Record:
    (query, query_id, account, terms, cost, cohort, identity, state, l1, l2_squared, contribution, *rest) = row
    message, size, seeded, attempts, not_before, made, detail, settled = rest
    try:
        return Record(
            query=query,
            id=query_id,
            account=account,
            terms=terms,
            cost=Cost.from_text(cost),
            cohort=cohort,
            identity=identity,
            state=State[state],
            norms=Norms(l1, l2_squared),
            contribution=contribution,
            message=message,
            size=size,
            seeded=bool(seeded),
            attempts=attempts,
            not_before=instant(not_before),
            made=instant(made),
            detail=detail,
            settled=bool(settled),
        )
    except (KeyError, ValueError) as error:
        raise FileError(f"the store is damaged: its record of {query_id!r} cannot be read ({error})") from error


def _declined(row: tuple[str, str, str]) -> Declined:
    query_id, reason, sentence = row
    try:
        return Declined(Reason[reason], sentence, query_id)
    except KeyError as error:
        raise FileError(f"the store is damaged: {reason!r} is no reason to decline") from error
