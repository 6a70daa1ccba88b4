"""The end of a query: closed by this server's clock, sent to the key server, decided by it."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from reticent.protocol import Refusal, Refused, signed_by
from reticent.protocol import statements as said
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.protocol.phases import OUTCOMES
from reticent.storage.database import Database, Execute
from reticent.times import Now, instant, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.queries import Asked, Queries
from reticent_agg.errors import BadAnswer

__all__ = ["NEVER", "Closing", "Undecided"]

_log = logging.getLogger(__name__)

RECEIPTS_AT_ONCE = 1000
"""Receipts in a message."""
NEVER = frozenset({Refusal.KEY_RETIRED, Refusal.UNKNOWN_QUERY})
"""Asked to decide, a key server that was restored from a backup says this: nothing will be decided."""


class Undecided(NamedTuple):
    """A cohort that the key server is to decide, by the digest of its query, and whether it is burnt in any case."""

    query: bytes
    cohort: int
    burn: bool


class Closing:
    """Closes queries, and takes in what is decided.

    Args:
        database: The aggregation server's.
        queries: Of the same database.
        identity: The key server's public Ed25519 key.
        now: The time, in UTC.
        rng: What makes a sum look like any other: nobody may be able to replay it.
    """

    def __init__(
        self,
        database: Database,
        queries: Queries,
        identity: bytes,
        now: Now,
        rng: np.random.Generator,
    ) -> None:
        self._database = database
        self._queries = queries
        self._identity = identity
        self._now = now
        self._rng = rng

    def close_due(self) -> list[str]:
        """Close the queries whose time is over, and those with enough contributions; their ids."""
        with self._database.reading() as run:
            due = [digest for (digest,) in run(_DUE, (wire.COLLECTING, milliseconds(self._now()))).fetchall()]
        closed = []
        for digest in due:
            with self._database.transaction() as run:
                if self.close(run, digest, burn=False):
                    closed.append(self._queries.asked(run, digest).query.id)
        return closed

    def next_due(self) -> dt.datetime | None:
        """When the time of a query is over next."""
        with self._database.reading() as run:
            (closes,) = run("SELECT min(closes) FROM queries WHERE phase = ?", (wire.COLLECTING,)).fetchone()
        return None if closes is None else instant(closes)

    def close(self, run: Execute, digest: bytes, *, burn: bool) -> bool:
        """Freeze a query that collects, and write down what the key server will be asked; False if it does not."""
        asked = self._queries.asked(run, digest)
        number, phase = run("SELECT number, phase FROM queries WHERE digest = ?", (digest,)).fetchone()
        if phase != wire.COLLECTING:
            return False
        run("UPDATE queries SET phase = ? WHERE number = ?", (wire.CLOSING, number))
        sums = run("SELECT cohort, contributors, ciphertexts FROM sums WHERE query = ?", (number,)).fetchall()
        for cohort, contributors, content in sums:
            enough = contributors >= asked.query.min_contributions and not burn
            head = wire.DecideHead(query=digest, cohort=cohort, contributors=contributors)
            if enough:
                head.ciphertexts = self._disguised(asked, content)
            run(
                "INSERT INTO requests (query, cohort, head, burn) VALUES (?, ?, ?, ?)",
                (number, cohort, head.SerializeToString(), int(burn)),
            )
        run("UPDATE sums SET ciphertexts = x'' WHERE query = ?", (number,))  # all that is still needed is in the head
        return True

    def abort(self, query_id: str) -> None:
        """Close a query now, and have every cohort burnt that is not decided yet.

        What was asked of the key server before may have been decided there: then that stands.

        Raises:
            Refused: There is no such query, or the key server has not countersigned it, for this reason.
        """
        with self._database.transaction() as run:
            row = run("SELECT digest, number, refusal, detail, phase FROM queries WHERE id = ?", (query_id,)).fetchone()
            if row is None:
                raise Refused(Refusal.UNKNOWN_QUERY)
            digest, number, refusal, detail, phase = row
            if refusal is not None and phase == wire.ANNOUNCED:
                raise Refused(Refusal[refusal], detail)
            run("UPDATE queries SET aborted = 1 WHERE number = ? AND phase = ?", (number, wire.ANNOUNCED))
            self.close(run, digest, burn=True)
            run("UPDATE requests SET burn = 1 WHERE query = ?", (number,))

    def countersigned_late(self, run: Execute, digest: bytes) -> None:
        """Close a query that was aborted before phones could be asked."""
        (aborted,) = run("SELECT aborted FROM queries WHERE digest = ?", (digest,)).fetchone()
        if aborted:
            self.close(run, digest, burn=True)

    def undecided(self) -> list[Undecided]:
        """The cohorts that the key server must be asked to decide, in the order of the queries."""
        with self._database.reading() as run:
            found = run(_UNDECIDED).fetchall()
        return [Undecided(digest, cohort, bool(burn)) for digest, cohort, burn in found]

    def request(self, digest: bytes, cohort: int) -> wire.DecideHead | None:
        """What is sent to the key server about a cohort: the same until an abort, None once it is decided.

        That a sum is about to be sent is on disk when this returns.
        """
        with self._database.transaction() as run:
            row = run(_REQUEST, (digest, cohort)).fetchone()
            if row is None:
                return None
            number, content, burn = row
            head = _head(content, burn=bool(burn))
            if head.ciphertexts:
                run("UPDATE requests SET sent = 1 WHERE query = ? AND cohort = ?", (number, cohort))
        return head

    def requests(self) -> list[wire.DecideHead]:
        """All that the key server must be asked, in the order of the queries."""
        with self._database.reading() as run:
            rows = [run(_REQUEST, (each.query, each.cohort)).fetchone() for each in self.undecided()]
        return [_head(content, burn=bool(burn)) for _, content, burn in rows]

    def receipts(self, head: wire.DecideHead) -> Iterator[wire.Receipts]:
        """The receipts that follow the head of a request, always in the same order."""
        number, last = self._number(head.query), b""
        while True:
            with self._database.reading() as run:
                rows = run(_RECEIPTS, (number, head.cohort, last, RECEIPTS_AT_ONCE)).fetchall()
            if not rows:
                return
            yield wire.Receipts(
                receipts=[
                    wire.Receipt(
                        phone=phone,
                        agreement_key=agreement_key,
                        ciphertexts_hash=contents,
                        seeded=bool(seeded),
                        signature=signature,
                    )
                    for phone, agreement_key, contents, seeded, signature in rows
                ]
            )
            last = rows[-1][0]

    def asking(self, head: wire.DecideHead) -> Iterator[wire.DecideRequest]:
        """The messages of a request."""
        yield wire.DecideRequest(head=head)
        for receipts in self.receipts(head):
            yield wire.DecideRequest(receipts=receipts)

    def decided(self, decision: wire.Decision) -> None:
        """Keep what the key server has decided. The same decision again changes nothing.

        Raises:
            BadAnswer: It is not signed by the key server's identity, or is no answer to what it was asked, or it
                contradicts a former one.
        """
        if decision.outcome not in OUTCOMES or not signed_by(
            self._identity, said.decision(decision), decision.signature
        ):
            raise BadAnswer("a decision is not signed by the key server's identity")
        number, content = self._number(decision.query), decision.SerializeToString(deterministic=True)
        with self._database.transaction() as run:
            place = (number, decision.cohort)
            asked = run("SELECT head, burn, sent FROM requests WHERE query = ? AND cohort = ?", place).fetchone()
            if asked is None:
                raise BadAnswer(f"cohort {decision.cohort} is decided, and was not asked for")
            head, burn, sent = asked
            _refuse_other_answers(wire.DecideHead.FromString(head), decision, burn=bool(burn))
            withheld = decision.outcome == wire.BURNT and sent
            known = run("SELECT answer FROM decisions WHERE query = ? AND cohort = ?", place).fetchone()
            if known is not None and known[0] != content:
                raise BadAnswer(f"cohort {decision.cohort} was decided before, in another way")
            run("INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?)", (*place, content, int(withheld)))
            run(_DECIDED, (wire.DECIDED, milliseconds(self._now()), number, wire.CLOSING))

    def not_decided(self, head: wire.DecideHead, refused: Refused) -> None:
        """The key server refuses a request.

        What was asked before an abort stands if that was decided already. Where the key is retired, or the query is not
        known any more, nothing will be: the key server was restored from a backup.
        """
        if refused.refusal is not Refusal.ALREADY_DECIDED and refused.refusal not in NEVER:
            return
        number = self._number(head.query)
        with self._database.transaction() as run:
            if refused.refusal in NEVER:
                run(_LOST, (refused.refusal.name, refused.detail, number, wire.CLOSING))
            else:
                run("UPDATE requests SET burn = 0 WHERE query = ? AND cohort = ?", (number, head.cohort))

    def name(self, digest: bytes) -> str:
        """The id of a query of which a cohort is to be decided."""
        with self._database.reading() as run:
            return self._queries.asked(run, digest).query.id

    def _disguised(self, asked: Asked, content: bytes) -> bytes:
        """Other ciphertexts of the same sums."""
        sums = ciphertexts_from(content, asked.key)
        return ciphertexts_to(asked.key.rerandomise(sums, self._rng), asked.key)

    def _number(self, digest: bytes) -> int:
        with self._database.reading() as run:
            row = run("SELECT number FROM queries WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise BadAnswer("a decision is about no query of this server")
        return int(row[0])


_DUE = """
SELECT digest FROM queries WHERE phase = ? AND (closes <= ? OR NOT EXISTS (
    SELECT 1 FROM sums WHERE query = number AND contributors < enough
)) ORDER BY number
"""
_UNDECIDED = """
SELECT digest, cohort, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE answer IS NULL ORDER BY query, cohort
"""
_REQUEST = """
SELECT number, head, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE answer IS NULL AND digest = ? AND cohort = ?
"""
_RECEIPTS = """
SELECT phone, agreement_key, ciphertexts_hash, seeded, signature FROM receipts
WHERE query = ? AND cohort = ? AND phone > ? ORDER BY phone LIMIT ?
"""
_DECIDED = """
UPDATE queries SET phase = ?, decided = ?, refusal = NULL, detail = NULL WHERE number = ? AND phase = ?
AND (SELECT count(*) FROM decisions WHERE query = number) = (SELECT count(*) FROM sums WHERE query = number)
"""

_LOST = "UPDATE queries SET refusal = ?, detail = ? WHERE number = ? AND phase = ?"


def _refuse_other_answers(asked: wire.DecideHead, decision: wire.Decision, *, burn: bool) -> None:
    """Refuse a decision that the request cannot have led to.

    A key server that has had a sum could keep it and say that it was burnt: phones would take their budget back.
    """
    if decision.outcome == wire.BURNT and asked.ciphertexts and not burn:
        raise BadAnswer(f"cohort {decision.cohort} was to be decrypted, and the key server says that it was burnt")
    if decision.contributors != asked.contributors:
        raise BadAnswer(
            f"cohort {decision.cohort} has {asked.contributors} contributions, and the key server says "
            f"{decision.contributors}"
        )


def _head(content: bytes, *, burn: bool) -> wire.DecideHead:
    head = wire.DecideHead.FromString(content)
    if burn:
        head.ClearField("ciphertexts")
    return head
