"""The phone that takes part in counts: what it must decide, remember and never say twice, without any network.

The order in which an answer comes about, so that a kill between any two steps neither overspends nor loses a
reservation, nor lets two different answers out (each line is on disk before the next begins):

1. The answer is made, in memory.
2. The store notes the intention.
3. The ledger reserves the cost.
4. The store keeps the answer, signed. Only what step 4 has kept is ever sent, and it is sent as it is kept.

A kill before 4 has sent nothing. So when a phone begins, what was only intended is forgotten, and its reservation given
back. A kill after 4 finds both. When a decision comes, the store notes it first, then the ledger spends or gives back,
then the store notes that this is done; what was not, is done when the phone begins. In between the ledger has too
much reserved, never too little.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from reticent.paillier import PublicKey
from reticent.privacy import BudgetExceeded, Contradiction, Ledger, Norms, Query
from reticent.protocol import Refused, Unreachable, signed_by, statements
from reticent.protocol.layout import MAX_CONTRIBUTION_BYTES, contribution_bytes
from reticent.randomness import secure
from reticent.retry import Backoff
from reticent.times import Now
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.contribution import Answer, answer, values_of
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, Member
from reticent_client.counting.ledger_sync import Booking
from reticent_client.counting.records import LIVE, SPENT, UNDECIDED, DeclinedQueries, Record, Records, State
from reticent_client.errors import Declined, ForeignAnswer, Reason
from reticent_client.store import SqliteStore

__all__ = ["Counters", "Participant"]

Counters = Callable[[Query], Mapping[str, float] | None]
"""What an app has counted, by the names of a query's counters; what it leaves out is 0.

None, where the app says nothing to this query. That may depend on the query and on the app, and never on what was
counted: both servers see who takes part, and no noise hides it. Nor may it raise.
"""

DAY = dt.timedelta(days=1)
QUERIES_SEEN = 8
"""Queries, of up to a megabyte each, that are not fetched again to be declined once more."""

NOT_REMEMBERED = {Reason.NOT_A_MEMBER, Reason.NOT_COUNTERSIGNED, Reason.NOT_TOLD, Reason.ANSWERED}
"""Nothing is kept of what the key server may not have countersigned; what was answered has its record."""

OUTCOMES = {wire.RELEASED: State.RELEASED, wire.VOID: State.VOID, wire.BURNT: State.BURNT}


class Participant:
    """Takes part in counts for one user, as far as the policy and the ledger allow.

    It does no network I/O: `reticent_client.counting.session` does. All that must survive is on disk when a method
    returns, and every method may be called again with the same. One process at a time: `store.claim("counting")`.

    Args:
        store: Where it remembers its membership and its answers.
        ledger: The user's budget.
        rng: Where the noise comes from: `secure()` on a phone. Answers of a seeded generator say so.
        now: What time it is, in UTC.
        policy: What the user allows.
        counters: What the app has counted.
        backoff: When to send again what did not get through.
        simulation: Accept public keys that are only good for simulation.
    """

    def __init__(
        self,
        store: SqliteStore,
        ledger: Ledger,
        *,
        rng: np.random.Generator,
        now: Now,
        policy: Participation,
        counters: Counters,
        backoff: Backoff | None = None,
        simulation: bool = False,
    ) -> None:
        self.enrolment = Enrolment(store.place(MEMBERSHIP), now)
        """Joining, renewing and leaving."""
        self.records = Records(store)
        self.policy = policy
        self._declined = DeclinedQueries(store)
        self._ledger = ledger
        self._booking = Booking(self.records, ledger)
        self._rng = rng
        self._now = now
        self._counters = counters
        self._backoff = backoff or Backoff(random=secure().random)
        self._simulation = simulation
        self._seen: OrderedDict[bytes, bytes] = OrderedDict()  # queries by their digests, to fetch them once
        self._one_at_a_time = threading.RLock()
        limit = (ledger.limit.epsilon, ledger.limit.delta)
        self._rules = json.dumps([policy.to_text(), limit, simulation])  # under which something is declined for good
        self._booking.recover()

    def query_wanted(
        self, announcement: wire.Announcement, situation: Situation | None = None
    ) -> wire.QueryRequest | None:
        """The request for the query that `asked` needs for an announcement; None where it needs none.

        Args:
            announcement: What the aggregation server announces.
            situation: As in `asked`.
        """
        member = self.enrolment.current
        if member is None or not _is_countersigned(announcement, member):
            return None  # nobody makes the phone fetch and keep anything but the key server
        record = self.records.of(announcement.query)
        if record is not None and record.state is not State.INTENDED:
            return None
        if self._declined.lasting(_digest_of(announcement), self._rules) is not None:
            return None
        if announcement.query in self._seen or self.policy.declines_network(situation or Situation()):
            return None
        signature = member.signing.sign(statements.fetching(announcement.query, member.phone))
        return wire.QueryRequest(query=announcement.query, phone=member.phone, signature=signature)

    @staticmethod
    def key_wanted(content: bytes) -> bytes | None:
        """The id of the public key that `asked` needs for a query; None where it needs none."""
        try:
            return bytes.fromhex(_read(content).key_id)
        except (ValueError, ArithmeticError):
            return None

    def asked(
        self,
        announcement: wire.Announcement,
        content: bytes = b"",
        public_key: bytes = b"",
        situation: Situation | None = None,
    ) -> wire.Contribution:
        """Answer an announcement: the same one always with the same bytes, which are stored when this returns.

        Args:
            announcement: What the aggregation server announces.
            content: The query that `query_wanted` has asked for.
            public_key: The key of which `key_wanted` has told the id.
            situation: How the phone is at present; neither charging nor on an unmetered network unless given.

        Raises:
            Declined: The phone does not take part, or not now.
        """
        digest = _digest_of(announcement)
        with self._one_at_a_time:
            try:
                message = self._answered(announcement, content, public_key, situation or Situation(), digest)
            except Declined as declined:
                if declined.reason not in NOT_REMEMBERED:
                    self._declined.remember(digest, declined, self._rules, self._now())
                raise
            self._declined.forget(digest)
        return message

    def due(self, situation: Situation | None = None) -> list[wire.Contribution]:
        """The answers to send now: those that were not acknowledged, and whose time has come.

        As `wanted`, none to queries of another key server, whose phone this one was before: its aggregation server is
        another, and may belong to whoever can decrypt them.
        """
        try:
            self.policy.examine_situation(situation or Situation())
        except Declined:
            return []
        now = self._now()
        waiting = self._own((State.STORED,))
        # Where the clock was set back, an instant that is too far off was meant otherwise.
        latest = now + dt.timedelta(seconds=self._backoff.limit)
        ready = [each for each in waiting if not now < each.not_before <= latest]
        return [_message(record) for record in ready]

    def acknowledged(self, acknowledgement: wire.Acknowledgement) -> None:
        """The server keeps an answer.

        Raises:
            ForeignAnswer: It is none of this phone's.
        """
        record = self.records.made(acknowledgement.contribution)
        if record is None:
            raise ForeignAnswer("the server acknowledges what this phone has not contributed")
        if record.state in {State.STORED, State.REFUSED}:
            self.records.advance(record.query, State.ACKNOWLEDGED)

    def not_taken(self, query: bytes, error: Refused | Unreachable) -> None:
        """An answer did not get through. Whatever the server says, its budget stays reserved until the decision.

        Args:
            query: The digest.
            error: Why.
        """
        record = self.records.of(query)
        if record is None or record.state is not State.STORED:
            return
        if isinstance(error, Refused) and not error.refusal.retry:
            self.records.advance(query, State.REFUSED, str(error))
            return
        retry_after = error.retry_after if isinstance(error, Refused) else None
        delay = self._backoff.delay(record.attempts + 1, retry_after)
        self.records.unanswered(query, self._now() + dt.timedelta(seconds=delay))

    def wanted(self) -> list[wire.DecisionWanted]:
        """The decisions that this phone waits for, of those that its aggregation server may have."""
        return [wire.DecisionWanted(query=record.query, cohort=record.cohort) for record in self._own(UNDECIDED)]

    def decided(self, decision: wire.Decision) -> State:
        """Take a decision: the budget is spent, or given back if the cohort was burnt.

        Returns:
            How the query stands now.

        Raises:
            ForeignAnswer: The decision is of no query and cohort of this phone's, is not signed by the key server that
                countersigned it, or contradicts one that was. Where the key server says after all that what it called
                burnt was decrypted, that stands, and its cost is spent; where the budget has no room for it any more,
                the phone answers nothing new.
        """
        with self._one_at_a_time:  # the ledger must not change between an intention and its reservation
            return self._decided(decision)

    def _decided(self, decision: wire.Decision) -> State:
        record = self.records.of(decision.query)
        if record is None or record.state is State.INTENDED or record.cohort != decision.cohort:
            raise ForeignAnswer("the decision is not about a contribution of this phone's")
        if not signed_by(record.identity, statements.decision(decision), decision.signature):
            raise ForeignAnswer(f"the decision about {record.id!r} is not signed by the key server")
        state = OUTCOMES.get(decision.outcome)
        if state is None:
            raise ForeignAnswer(f"the decision about {record.id!r} says no outcome: {decision.outcome}")
        contradicts = record.state not in UNDECIDED and record.state is not state
        if record.state is State.BURNT and state in SPENT:  # what is out is out
            self.records.revoke(record.query, state, "the key server had called it burnt before")
        elif record.state in UNDECIDED:
            told = f"{decision.contributors:,} contributions"
            self.records.advance(record.query, state, f"{told}; {decision.reason}" if decision.reason else told)
        self._booking.settle()
        if contradicts:
            raise ForeignAnswer(f"{record.id!r} is {record.state.name}, and the key server now says {state.name}")
        return state

    def _own(self, states: Sequence[State]) -> list[Record]:
        """The records in these states, of the key server whose phone this is, or was last."""
        return [record for record in self.records.within(states) if self._is_own(record)]

    def _is_own(self, record: Record) -> bool:
        member = self.enrolment.member
        return member is not None and record.identity == member.invitation.identity

    def _answered(
        self,
        announcement: wire.Announcement,
        content: bytes,
        public_key: bytes,
        situation: Situation,
        digest: bytes,
    ) -> wire.Contribution:
        record = self.records.of(announcement.query)
        if record is not None and record.state is not State.INTENDED:
            if record.state in {State.STORED, State.ACKNOWLEDGED} and self._is_own(record):
                return _message(record)
            raise Declined(Reason.ANSWERED, f"{record.id!r}: {record.state.value}", record.id)
        member = self.enrolment.current
        if member is None:
            raise Declined(Reason.NOT_A_MEMBER)
        if not _is_countersigned(announcement, member):  # and so not even looked at
            raise Declined(Reason.NOT_COUNTERSIGNED)
        lasting = self._declined.lasting(digest, self._rules)
        if lasting is not None:
            raise lasting
        try:
            query = _read(self._content(announcement, content, situation))
        except (ValueError, ArithmeticError) as error:
            raise Declined(Reason.MALFORMED, f"the query cannot be read: {error}") from error
        self._examine(announcement, query)
        self.policy.examine(query, self._ledger.limit)
        self.policy.examine_situation(situation, query.id)
        self._booking.examine(query, json.dumps(query.terms))
        key = self._examined_key(query, public_key)
        values = values_of(query, self._counters(query))
        used = sum((each.norms for each in self.records.within(LIVE, query.account)), Norms(0, 0))
        try:
            made = answer(
                query,
                announcement.cohort,
                values,
                used,
                key=key,
                query_key=announcement.agreement_key,
                member=member,
                rng=self._rng,
            )
        except (ValueError, ArithmeticError) as error:  # what cannot be drawn or packed
            raise Declined(Reason.MALFORMED, f"{query.id!r} cannot be answered: {error}", query.id) from error
        return self._kept(query, announcement.cohort, made, member)

    def _content(self, announcement: wire.Announcement, content: bytes, situation: Situation) -> bytes:
        """The query of an announcement, as it was told now or before."""
        if Query.digest_of(content) == announcement.query:
            self._seen[announcement.query] = content
            while len(self._seen) > QUERIES_SEEN:
                self._seen.popitem(last=False)
        elif announcement.query not in self._seen:
            self.policy.examine_situation(situation)
            raise Declined(Reason.NOT_TOLD)
        return self._seen[announcement.query]

    def _kept(self, query: Query, cohort: int, made: Answer, member: Member) -> wire.Contribution:
        """Steps 2 to 4."""
        self.records.intend(query, json.dumps(query.terms), cohort, member.invitation.identity, self._now())
        try:
            self._ledger.reserve(query.account, query.cost)
        except (BudgetExceeded, Contradiction) as error:  # somebody else who uses the same ledger was faster
            self.records.forget(query.digest)
            raise Declined(Reason.BUDGET, str(error), query.id) from error
        if self.records.keep(made.message, made.digest, made.norms, member.invitation.identity):
            return made.message
        # Somebody runs the same phone without a claim, and was faster: only one answer ever leaves it.
        standing = self.records.of(query.digest)
        if standing is None or standing.message is None:
            raise Declined(Reason.ANSWERED, f"{query.id!r} was answered meanwhile", query.id)
        return _message(standing)

    def _examine(self, announcement: wire.Announcement, query: Query) -> None:
        """Decline what does not fit together, or cannot be answered any more."""
        if announcement.cohort >= query.cohorts:
            raise Declined(
                Reason.MALFORMED, f"{query.id!r} has {query.cohorts} cohorts: got {announcement.cohort}", query.id
            )
        if announcement.closes_in_ms == 0:
            raise Declined(Reason.CLOSED, f"{query.id!r} is closed", query.id)
        if (other := self.records.with_id(query.id)) is not None and other.query != query.digest:
            raise Declined(
                Reason.NAME_TAKEN, f"another query was called {query.id!r}: a second attempt needs a new name", query.id
            )

    def _examined_key(self, query: Query, content: bytes) -> PublicKey:
        """The key that the query names; its answers are not too large."""
        try:
            key = _key_of(content, self._simulation)
        except ValueError as error:
            raise Declined(Reason.BAD_KEY, f"the public key for {query.id!r} is none: {error}", query.id) from error
        if key.key_id.hex() != query.key_id:
            raise Declined(Reason.WRONG_KEY, f"the public key is not the one that {query.id!r} names", query.id)
        try:
            size = contribution_bytes(query, key.bits)
        except ValueError as error:
            raise Declined(Reason.MALFORMED, f"{query.id!r} cannot be answered: {error}", query.id) from error
        if size > MAX_CONTRIBUTION_BYTES:
            raise Declined(Reason.TOO_LARGE, f"an answer to {query.id!r} would have {size} bytes", query.id)
        queries, sent = self.records.since(self._now() - DAY)
        self.policy.examine_day(query, size, queries=queries, sent=sent)
        return key


def _is_countersigned(announcement: wire.Announcement, member: Member) -> bool:
    """Whether the key server that the phone joined will decide the query, which was not read yet.

    Reading takes time and memory, which are for the key server to ask for, and not for whoever brings announcements.
    """
    statement = statements.countersigned(announcement.query, announcement.agreement_key)
    return signed_by(member.invitation.identity, statement, announcement.countersignature)


@lru_cache(maxsize=4)
def _read(content: bytes) -> Query:
    """The query of a countersigned announcement, which the phone looks at more than once in a row."""
    return Query.from_bytes(content)


@lru_cache(maxsize=4)
def _key_of(content: bytes, simulation: bool) -> PublicKey:
    """A key, which has a table that is worth keeping."""
    return PublicKey.from_bytes(content, simulation=simulation)


def _digest_of(announcement: wire.Announcement) -> bytes:
    """SHA-256 of what an announcement says, however long it is still open."""
    said = wire.Announcement()
    said.CopyFrom(announcement)
    said.ClearField("closes_in_ms")
    return hashlib.sha256(said.SerializeToString(deterministic=True)).digest()


def _message(record: Record) -> wire.Contribution:
    """What was kept, byte for byte."""
    return wire.Contribution.FromString(record.message or b"")
