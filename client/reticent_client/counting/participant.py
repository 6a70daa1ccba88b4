"""The phone's side of counting: what it decides, remembers and never sends in two versions, without any network.

A contribution is made in memory. Then one transaction reserves its cost and keeps it, signed. Only what is kept is ever
sent, and it is sent as it is kept. A decision is one transaction as well: the contribution's state and the ledger. So a
kill between any two steps neither overspends nor loses a reservation, nor lets two versions of a contribution out.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from reticent.privacy import Composition, Cost, Norms, Query
from reticent.protocol import Refused, Unreachable, statements
from reticent.retry import Backoff
from reticent.times import Now, instant
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.announcements import check_query, checked_key, digest_of, is_countersigned, read_query
from reticent_client.counting.budget import Budget
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.contribution import PreparedContribution, prepare, values_of
from reticent_client.counting.decisions import decide, refuse_another_decision
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, Member
from reticent_client.counting.query_cache import QueryCache
from reticent_client.counting.records import (
    LIVE,
    UNDECIDED,
    ContributionState,
    DeclinedQueries,
    Record,
    Records,
)
from reticent_client.errors import Declined, ForeignReply, Reason
from reticent_client.store import PhoneStore

__all__ = ["Counters", "NoiseSource", "Participant", "first_of"]

Counters = Callable[[Query], Mapping[str, float] | None]
"""The numbers that an app has counted, by the names of a query's counters; a missing one is 0.

None, where the app contributes nothing to this query. That may depend on the query and on the app, and never on what
was counted: both servers see which phones contribute, and no noise hides it. Nor may it raise.
"""

NoiseSource = np.random.Generator | Callable[[Query], np.random.Generator]
"""The source of the noise of contributions: one generator, or one for each query, for a simulation."""


def first_of(source: Counters | None, other: Counters) -> Counters:
    """The counters of a source for the queries that it has any for, and of another for the rest."""

    def counters(query: Query) -> Mapping[str, float] | None:
        found = None if source is None else source(query)
        return other(query) if found is None else found

    return counters


DAY = dt.timedelta(days=1)

NOT_REMEMBERED = {Reason.NOT_A_MEMBER, Reason.NOT_COUNTERSIGNED, Reason.QUERY_MISSING, Reason.CONTRIBUTED}
"""Nothing is kept of what the key server may not have countersigned; a contribution has its record."""


class Participant:
    """Takes part in counts for one user, as far as the policy and the budget allow.

    It does no network I/O: `reticent_client.counting.session` does. All that must survive is on disk when a method
    returns, and every method may be called again with the same. One process at a time: `store.claim("counting")`.

    Args:
        store: Where it keeps its membership, its contributions and its ledger.
        budget: What the user spends in all.
        composition: How costs compose: see `Ledger`.
        rng: Where the noise comes from: `secure()` on a phone. Contributions of a seeded generator are marked.
        now: What time it is, in UTC.
        policy: What the user allows.
        counters: What the app has counted.
        backoff: When to send again what did not get through.
        simulation: Accept public keys that are only good for simulation.
        queries: Queries that were fetched; many phones of a process may share them.
    """

    def __init__(
        self,
        store: PhoneStore,
        budget: Cost,
        *,
        composition: Composition = "addition",
        rng: NoiseSource,
        now: Now,
        policy: Participation,
        counters: Counters,
        backoff: Backoff | None = None,
        simulation: bool = False,
        queries: QueryCache | None = None,
    ) -> None:
        self.enrolment = Enrolment(store.slot(MEMBERSHIP), now)
        """Joining, renewing and leaving."""
        self.records = Records(store)
        self.ledger = store.ledger(budget, composition)
        self._simulation = simulation
        self.policy = policy
        self.store = store
        """The store that keeps all of it."""
        self._declined = DeclinedQueries(store)
        self._budget = Budget(self.records, self.ledger)
        self._rng = rng
        self._now = now
        self._counters = counters
        self._backoff = backoff or Backoff()
        self._queries = QueryCache() if queries is None else queries
        self._one_at_a_time = threading.RLock()
        self._rules = _rules(policy, budget, simulation=simulation)
        self._budget.record_missing()

    def refresh(self, policy: Participation) -> None:
        """Go by this policy, and by the membership in the store: another process may have changed it."""
        self.enrolment.refresh()
        if policy != self.policy:
            self.policy, self._rules = policy, _rules(policy, self.ledger.limit, simulation=self._simulation)

    def query_request(
        self, announcement: wire.Announcement, situation: Situation | None = None
    ) -> wire.QueryRequest | None:
        """The request for the query that `contribute` needs for an announcement; None where it needs none.

        Args:
            announcement: What the aggregation server announces.
            situation: As in `contribute`.
        """
        member = self.enrolment.current
        if member is None or not is_countersigned(announcement, member):
            return None  # only the key server makes the phone fetch and keep anything
        if self.records.of(announcement.query) is not None:
            return None
        if self._declined.lasting(digest_of(announcement), self._rules) is not None:
            return None
        if self._queries.get(announcement.query) is not None:
            return None
        if self.policy.declines_network(situation or Situation()):
            return None
        signature = member.signing.sign(statements.fetching(announcement.query, member.phone))
        return wire.QueryRequest(query=announcement.query, phone=member.phone, signature=signature)

    def key_id(self, announcement: wire.Announcement, content: bytes = b"") -> bytes | None:
        """The id of the public key that `contribute` needs for an announcement; None where it needs none.

        Args:
            announcement: What the aggregation server announces.
            content: The query that `query_request` has asked for.
        """
        found = content or self._queries.get(announcement.query)
        if found is None or self.records.of(announcement.query) is not None:
            return None
        try:
            return bytes.fromhex(read_query(found).key_id)
        except (ValueError, ArithmeticError):
            return None

    def contribute(
        self,
        announcement: wire.Announcement,
        content: bytes = b"",
        public_key: bytes = b"",
        situation: Situation | None = None,
    ) -> wire.Contribution:
        """The contribution to an announced query: always the same bytes, which are stored when this returns.

        Args:
            announcement: What the aggregation server announces.
            content: The query that `query_request` has asked for.
            public_key: The key with the id of `key_id`.
            situation: How the phone is at present; neither charging nor on an unmetered network unless given.

        Raises:
            Declined: The phone does not take part, or not now.
        """
        digest = digest_of(announcement)
        with self._one_at_a_time:
            try:
                return self._contribution(announcement, content, public_key, situation or Situation(), digest)
            except Declined as declined:
                if declined.reason not in NOT_REMEMBERED:
                    self._declined.remember(digest, declined, self._rules, self._now())
                raise

    def due(self, situation: Situation | None = None) -> list[wire.Contribution]:
        """The contributions to send now: those that were not acknowledged, and whose time has come.

        As in `awaited`, none to queries of a key server that this phone has left: its aggregation server is another,
        and may belong to whoever can decrypt them.
        """
        try:
            self.policy.check_situation(situation or Situation())
        except Declined:
            return []
        now = self._now()
        waiting = self._own((ContributionState.STORED,))
        # Where the clock was set back, an instant that is too far off was meant otherwise.
        latest = now + dt.timedelta(seconds=self._backoff.limit)
        ready = [each for each in waiting if not now < each.not_before <= latest]
        return [_message(record) for record in ready]

    def acknowledged(self, acknowledgement: wire.Acknowledgement) -> None:
        """The server keeps a contribution.

        Raises:
            ForeignReply: It is none of this phone's.
        """
        record = self.records.made(acknowledgement.contribution)
        if record is None:
            raise ForeignReply("the server acknowledges what this phone has not contributed")
        if record.state in {ContributionState.STORED, ContributionState.REFUSED}:
            self.records.advance(record.query, ContributionState.ACKNOWLEDGED)

    def not_delivered(self, query: bytes, error: Refused | Unreachable) -> None:
        """A contribution did not get through. Whatever the server replies, its cost stays reserved until the decision.

        Args:
            query: The digest.
            error: Why.
        """
        record = self.records.of(query)
        if record is None or record.state is not ContributionState.STORED:
            return
        if isinstance(error, Refused) and not error.refusal.retry:
            self.records.advance(query, ContributionState.REFUSED, str(error))
            return
        retry_after = error.retry_after if isinstance(error, Refused) else None
        delay = self._backoff.delay(record.attempts + 1, retry_after)
        self.records.postpone(query, self._now() + dt.timedelta(seconds=delay))

    def awaited(self) -> list[wire.DecisionWanted]:
        """The decisions that this phone waits for, of those that its aggregation server may have."""
        return [wire.DecisionWanted(query=record.query, cohort=record.cohort) for record in self._own(UNDECIDED)]

    def decided(self, decision: wire.Decision) -> ContributionState:
        """Take a decision: the cost is spent, or given back if the cohort was burnt.

        Returns:
            The state of the contribution.

        Raises:
            ForeignReply: The decision is of no query and cohort of this phone's, is not signed by the key server that
                countersigned it, or contradicts one that was. If the key server reports a burnt cohort as decrypted
                after all, that stands, and its cost is spent; if the cost exceeds the budget by then, the
                phone contributes nothing new.
        """
        with self._one_at_a_time, self.store.transaction():
            before, state = decide(decision, self.records, self._budget)
        return refuse_another_decision(before, state)

    async def take_decision(self, decision: wire.Decision) -> ContributionState:
        """As `decided`, in one transaction with those of other phones of the same file.

        It takes no lock: the event loop must not wait for a thread. `decided` holds one against threads that contribute
        meanwhile. Here none does: a phone makes one round at a time, and takes decisions after its contributions. Where
        a caller breaks this, `_contribution` still reserves its cost only if the budget allows it at that moment.
        """
        before, state = await self.store.transact(partial(decide, decision, self.records, self._budget))
        return refuse_another_decision(before, state)

    def _own(self, states: Sequence[ContributionState]) -> list[Record]:
        """The records in these states, of the key server whose phone this is, or was last."""
        return [record for record in self.records.within(states) if self._is_own(record)]

    def _is_own(self, record: Record) -> bool:
        member = self.enrolment.member
        return member is not None and record.identity == member.invitation.identity

    def _contribution(
        self,
        announcement: wire.Announcement,
        content: bytes,
        public_key: bytes,
        situation: Situation,
        digest: bytes,
    ) -> wire.Contribution:
        kept = self._kept(announcement.query)
        if kept is not None:
            return kept
        member = self.enrolment.current
        if member is None:
            raise Declined(Reason.NOT_A_MEMBER)
        if not is_countersigned(announcement, member):  # and so not even looked at
            raise Declined(Reason.NOT_COUNTERSIGNED)
        lasting = self._declined.lasting(digest, self._rules)
        if lasting is not None:
            raise lasting
        try:
            query = read_query(self._content(announcement, content, situation))
        except (ValueError, ArithmeticError) as error:
            raise Declined(Reason.MALFORMED, f"the query cannot be read: {error}") from error
        check_query(announcement, query)
        if (other := self.records.with_id(query.id)) is not None and other.query != query.digest:
            raise Declined(
                Reason.NAME_TAKEN, f"another query was called {query.id!r}: a second attempt needs a new name", query.id
            )
        self.policy.check(query, self.ledger.limit)
        self.policy.check_situation(situation, query.id)
        terms = json.dumps(query.terms)
        self._budget.check(query, terms)
        key, size = checked_key(query, public_key, simulation=self._simulation)
        contributions, sent = self.records.since(self._now() - DAY)
        self.policy.check_daily_limits(query, size, queries=contributions, sent=sent)
        values = values_of(query, self._counters(query))
        used = sum((each.norms for each in self.records.within(LIVE, query.account)), Norms(0, 0))
        try:
            prepared = prepare(
                query,
                announcement.cohort,
                values,
                used,
                key=key,
                query_key=announcement.agreement_key,
                member=member,
                rng=self._rng if isinstance(self._rng, np.random.Generator) else self._rng(query),
            )
        except (ValueError, ArithmeticError) as error:  # what cannot be drawn or packed
            raise Declined(Reason.MALFORMED, f"{query.id!r} allows no contribution: {error}", query.id) from error
        with self.store.transaction():
            # A program that runs the same phone without a claim may have been faster: only its contribution counts.
            kept = self._kept(query.digest)
            if kept is None:
                self._budget.reserve(query)
                self._declined.forget(digest)
                self.records.add(self._record(query, terms, prepared, member))
        return prepared.message if kept is None else kept

    def _kept(self, query: bytes) -> wire.Contribution | None:
        """The contribution that was made to a query before, if it may still be sent."""
        record = self.records.of(query)
        if record is None:
            return None
        if record.state in {ContributionState.STORED, ContributionState.ACKNOWLEDGED} and self._is_own(record):
            return _message(record)
        raise Declined(Reason.CONTRIBUTED, f"{record.id!r}: {record.state.value}", record.id)

    def _content(self, announcement: wire.Announcement, content: bytes, situation: Situation) -> bytes:
        """The query of an announcement, as it was fetched now or before."""
        self._queries.add(announcement.query, content)
        found = self._queries.get(announcement.query)
        if found is None:
            self.policy.check_situation(situation)
            raise Declined(Reason.QUERY_MISSING)
        return found

    def _record(self, query: Query, terms: str, prepared: PreparedContribution, member: Member) -> Record:
        content = prepared.message.SerializeToString()
        return Record(
            query=query.digest,
            id=query.id,
            account=query.account,
            terms=terms,
            cost=query.cost,
            cohort=prepared.message.cohort,
            identity=member.invitation.identity,
            state=ContributionState.STORED,
            norms=prepared.norms,
            contribution=prepared.digest,
            message=content,
            size=len(content),
            seeded=prepared.message.seeded,
            attempts=0,
            not_before=instant(0),
            made=self._now(),
            detail="",
        )


def _message(record: Record) -> wire.Contribution:
    """The stored message, byte for byte."""
    return wire.Contribution.FromString(record.message or b"")


def _rules(policy: Participation, limit: Cost, *, simulation: bool) -> str:
    """The rules under which something is declined for good."""
    return json.dumps([policy.to_text(), (limit.epsilon, limit.delta), simulation])
