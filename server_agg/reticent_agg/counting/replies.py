"""What the aggregation server tells phones and analysts of its queries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.keys import PHONE_BYTES
from reticent.protocol.phases import phase_of
from reticent.storage.database import Execute, Readable
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire

__all__ = ["Telling", "refuse_odd_phone", "refuse_too_many"]

REPLY_BYTES = 3 << 20
"""Replies stop before they have more: gRPC's clients take messages of 4 MiB unless told otherwise."""
ANONYMOUS_REPLY_BYTES = 1 << 16
"""And these before they have more, which are for whoever asks: a phone has not proved who it is. But one is sent."""
MAX_WANTED = 1000
"""Decisions that may be asked for at once."""

Piece = TypeVar("Piece", bound=Message)


class Telling:
    """Reads what is there, and changes nothing.

    Args:
        database: The aggregation server's.
        now: The time, in UTC.
        again: When phones are to ask again.
    """

    def __init__(self, database: Readable, now: Now, again: dt.timedelta) -> None:
        self._database = database
        self._now = now
        self._again = again

    def announcements(self, phone: bytes) -> wire.AnnouncementsReply:
        """Which queries a phone is asked at present, first those that it has not answered yet."""
        refuse_odd_phone(phone)
        now = milliseconds(self._now())
        with self._database.reading() as run:
            rows = run(_ANNOUNCED, (phone, wire.COLLECTING, now)).fetchall()
        found = (
            wire.Announcement(
                query=digest, agreement_key=key, countersignature=signature, cohort=cohort, closes_in_ms=closes - now
            )
            for digest, key, signature, cohort, closes in rows
        )
        return wire.AnnouncementsReply(
            announcements=_that_fit(found, ANONYMOUS_REPLY_BYTES),
            again_in_ms=self._again // dt.timedelta(milliseconds=1),
        )

    def query(self, asked: wire.QueryRequest) -> wire.QueryReply:
        """A query, for a phone to which it was dealt.

        Raises:
            Refused: MALFORMED, UNKNOWN_QUERY, NOT_ASKED, BAD_SIGNATURE; LATE where nobody remembers who was asked.
        """
        refuse_odd_phone(asked.phone)
        with self._database.reading() as run:
            row = run(_CONTENT, (asked.phone, asked.query)).fetchone()
        if row is None:
            raise Refused(Refusal.UNKNOWN_QUERY)
        content, pruned, verify_key = row
        if verify_key is None:
            raise Refused(Refusal.LATE if pruned else Refusal.NOT_ASKED)
        if not signed_by(verify_key, statements.fetching(asked.query, asked.phone), asked.signature):
            raise Refused(Refusal.BAD_SIGNATURE)
        return wire.QueryReply(query=content)

    def decisions(self, wanted: Sequence[wire.DecisionWanted]) -> wire.DecisionsReply:
        """Those of the wanted decisions that are made, from the first one on as many as fit a message.

        That a cohort was burnt is not told where the key server has had its sum: nobody but the key server knows
        whether it has decrypted it, so phones must not take their budget back.
        """
        refuse_too_many(wanted)
        with self._database.reading() as run:  # one after the other: what does not fit is not even read
            rows = (run(_DECISION, (each.query, each.cohort)).fetchone() for each in wanted)
            return wire.DecisionsReply(
                decisions=_that_fit(
                    (wire.Decision.FromString(row[0]) for row in rows if row is not None), ANONYMOUS_REPLY_BYTES
                )
            )

    def refuse_others(self, query_id: str, analyst: str | None) -> None:
        """Refuse an analyst whose query it is not.

        Raises:
            Refused: NOT_PERMITTED; UNKNOWN_QUERY where there is no such query.
        """
        with self._database.reading() as run:
            row = run("SELECT owner FROM queries WHERE id = ?", (query_id,)).fetchone()
        if row is None:
            raise Refused(Refusal.UNKNOWN_QUERY, f"there is no query of the name {query_id!r}")
        if row[0] != analyst:
            raise Refused(Refusal.NOT_PERMITTED, f"{query_id!r} is another analyst's query")

    def status(self, query_id: str) -> wire.QueryStatus:
        """Where a query is.

        Raises:
            Refused: There is none; or the key server would not countersign it, for the reason that is given.

        """
        with self._database.reading() as run:
            row = run(f"{_QUERIES} WHERE id = ?", (query_id,)).fetchone()
            if row is None:
                raise Refused(Refusal.UNKNOWN_QUERY, f"there is no query of the name {query_id!r}")
            if row[4] is not None and row[2] == wire.ANNOUNCED:
                raise Refused(Refusal[row[4]], row[5])
            return self._status(run, row)

    def queries(self, owner: str | None = None) -> wire.ListReply:
        """An analyst's queries, the latest first, as many as fit a message; also those that were refused."""
        with self._database.reading() as run:
            rows = run(f"{_QUERIES} WHERE owner IS ? ORDER BY number DESC", (owner,))
            return wire.ListReply(queries=_that_fit((self._status(run, row) for row in rows), REPLY_BYTES))

    def _status(
        self, run: Execute, row: tuple[int, bytes, int, int | None, str | None, str | None]
    ) -> wire.QueryStatus:
        number, content, phase, closes, refusal, _ = row
        left = 0
        where = phase_of(phase, is_refused=refusal is not None)
        if where == wire.ANNOUNCED:
            left = Query.from_bytes(content).closes_after * 1000
        elif where == wire.COLLECTING and closes is not None:
            left = max(0, closes - milliseconds(self._now()))
        cohorts = [
            wire.CohortStatus(
                contributors=contributors, decision=None if answer is None else wire.Decision.FromString(answer)
            )
            for contributors, answer in run(_COHORTS, (number,)).fetchall()
        ]
        return wire.QueryStatus(query=content, phase=where, closes_in_ms=left, cohorts=cohorts)


def refuse_odd_phone(phone: bytes) -> None:
    """Refuse whoever is no phone."""
    if len(phone) != PHONE_BYTES:
        raise Refused(Refusal.MALFORMED, f"the id of a phone has {PHONE_BYTES} bytes: got {len(phone)}")


def refuse_too_many(wanted: Sequence[wire.DecisionWanted]) -> None:
    """Refuse to look for more decisions than a phone can want."""
    if len(wanted) > MAX_WANTED:
        raise Refused(Refusal.OVERSIZED, f"{MAX_WANTED} decisions can be asked for at once: got {len(wanted)}")


_ANNOUNCED = """
SELECT digest, queries.agreement_key, countersignature, dealt.cohort, closes FROM queries
JOIN dealt ON dealt.query = number AND dealt.phone = ?
LEFT JOIN receipts ON receipts.query = number AND receipts.cohort = dealt.cohort AND receipts.phone = dealt.phone
WHERE phase = ? AND closes > ? ORDER BY receipts.phone IS NOT NULL, closes, number
"""
_CONTENT = """
SELECT content, pruned, verify_key FROM queries LEFT JOIN dealt ON dealt.query = number AND dealt.phone = ?
WHERE digest = ? AND countersignature IS NOT NULL
"""
_DECISION = """
SELECT answer FROM decisions JOIN queries ON query = number WHERE digest = ? AND cohort = ? AND NOT withheld
"""
_COHORTS = """
SELECT contributors, answer FROM sums LEFT JOIN decisions USING (query, cohort) WHERE query = ? ORDER BY cohort
"""
_QUERIES = "SELECT number, content, phase, closes, refusal, detail FROM queries"


def _that_fit(pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
    """From the first one on as many as fit a reply, and one in any case."""
    size = 0
    for piece in pieces:
        size += piece.ByteSize()
        if size > most and size > piece.ByteSize():
            return
        yield piece
