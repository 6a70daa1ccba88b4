"""What is true of the counting protocol after whatever has happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from reticent.protocol import signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.records import SPENT, UNDECIDED, ContributionState, Record
from tests.system.counting.phones import LIMIT, Device
from tests.system.counting.world import World

__all__ = ["Invariants"]

OUTCOMES = {
    ContributionState.RELEASED: wire.RELEASED,
    ContributionState.VOID: wire.VOID,
    ContributionState.BURNT: wire.BURNT,
}
WITHHELD = """
SELECT digest, decisions.cohort FROM decisions JOIN queries ON number = decisions.query
JOIN requests ON requests.query = number AND requests.cohort = decisions.cohort
WHERE withheld AND sent AND length(head) > 256
"""
DECISIONS = (
    "SELECT digest, decisions.cohort, decision FROM decisions JOIN queries ON queries.number = decisions.query"
    " ORDER BY decisions.query, decisions.cohort"
)
RECEIPTS = (
    "SELECT phone, ciphertexts_hash FROM receipts JOIN queries ON queries.number = receipts.query"
    " WHERE digest = ? AND receipts.cohort = ?"
)
DEALT = (
    "SELECT phones.id, dealt.cohort FROM dealt JOIN queries ON queries.number = dealt.query"
    " JOIN phones ON phones.number = dealt.phone WHERE digest = ?"
)
KEYS = (
    "SELECT id, state, (SELECT coalesce(sum(cohorts), 0) FROM queries WHERE key = keys.number)"
    " - (SELECT count(*) FROM decisions JOIN queries ON queries.number = decisions.query"
    " WHERE queries.key = keys.number) FROM keys"
)
IN_USE = {"ACTIVE", "DRAINING"}


class Decided(NamedTuple):
    """A decision, and the contributions of which it is."""

    made: wire.Decision
    receipts: dict[bytes, bytes]


class Invariants:
    """Checks a world, again and again; what was decided once must stay.

    Args:
        world: Any.
        identity: The key server's.
    """

    def __init__(self, world: World, identity: bytes) -> None:
        self._world = world
        self._identity = identity
        self._answers: dict[tuple[bytes, int], bytes] = {}
        self.decided: dict[tuple[bytes, int], Decided] = {}
        self._dealt: dict[bytes, dict[bytes, int]] = {}

    def check(self) -> None:
        """All of it."""
        self._check_decisions()
        self._check_promises()
        self._check_keys()
        for device in self._world.devices:
            self._check_phone(device)

    def check_end(self) -> None:
        """After all was driven to its end: nothing waits any more."""
        self.check()
        for query in self._world.queries():
            for cohort in range(query.cohorts):
                assert (query.digest, cohort) in self.decided, f"cohort {cohort} of {query.id} was never decided"
        assert len(self._decisions(self._world.collected)) == len(self.decided), (
            "the aggregation server waits for a decision"
        )
        withheld = set(self._world.collected(WITHHELD))
        for device in self._world.devices:
            waiting = {
                (each.query, each.cohort) for each in device.participant.records.all() if each.state not in OUTCOMES
            }
            assert waiting <= withheld, "a phone waits for a decision"

    def _check_decisions(self) -> None:
        told = self._decisions(self._world.collected)  # first: what is told is in the journal already
        journal = self._decisions(self._world.journal)
        for (query, cohort), answer in journal.items():
            known = self._answers.setdefault((query, cohort), answer)
            assert answer == known, "a cohort was decided twice"
            if (query, cohort) not in self.decided:
                self._check_decision(wire.Decision.FromString(answer))
        assert journal.keys() == self._answers.keys(), "a decision is gone"
        assert told.items() <= journal.items(), "the servers hold different decisions"

    def _decisions(self, held: Callable[[str], list[tuple[Any, ...]]]) -> dict[tuple[bytes, int], bytes]:
        """What a server holds, of this schedule."""
        return {(query, cohort): decision for query, cohort, decision in held(DECISIONS) if self._world.is_ours(query)}

    def _check_decision(self, made: wire.Decision) -> None:
        place = made.query, made.cohort
        query = self._world.evidence.queries[made.query]
        rows = self._world.collected(RECEIPTS, *place)
        receipts = dict(rows)
        self.decided[place] = Decided(made, receipts)
        assert signed_by(self._identity, statements.decision(made), made.signature)
        assert made.contributors == len(receipts) == len(rows)
        dealt = self._dealt.setdefault(made.query, dict(self._world.journal(DEALT, made.query)))
        assert all(dealt[phone] == made.cohort for phone in receipts), "a phone is counted in another cohort"
        decryptions = self._world.decryptions(*place)
        if made.outcome == wire.BURNT:
            assert made.contributors < query.min_contributions or query.id in self._world.evidence.aborted
            assert not made.sums
            assert decryptions in {0, None}, "what was burnt had been decrypted"
            return
        assert made.contributors >= query.min_contributions
        assert decryptions in {1, None}, "a cohort was decrypted more than once"
        held = [self._world.evidence.holds(made.query, phone, contents) for phone, contents in receipts.items()]
        if made.outcome == wire.VOID:
            assert None in held, "a sum of honest contributions was not released"
            assert not made.sums
            return
        assert made.outcome == wire.RELEASED
        assert made.seeded
        expected = [0] * query.size
        for said in held:
            assert said is not None, "a lie was released"
            expected = [one + other for one, other in zip(expected, said.counters, strict=True)]
        assert [int.from_bytes(each, "big", signed=True) for each in made.sums] == expected, "the sum is wrong"

    def _check_promises(self) -> None:
        """What was acknowledged is among the receipts; those of the released cohorts are what was added up."""
        for (query, phone), contents in self._world.evidence.promised.items():
            cohort = self._cohort(query, phone)
            known = self.decided.get((query, cohort))
            receipts = dict(self._world.collected(RECEIPTS, query, cohort)) if known is None else known.receipts
            assert receipts.get(phone) == contents, "what was acknowledged is not counted"

    def _cohort(self, query: bytes, phone: bytes) -> int:
        if query not in self._dealt:
            self._dealt[query] = dict(self._world.journal(DEALT, query))
        return self._dealt[query][phone]

    def _check_keys(self) -> None:
        rows = self._world.journal(KEYS)
        assert sum(state == "ACTIVE" for _, state, _ in rows) == 1
        for _, state, undecided in rows:
            assert state in IN_USE or undecided == 0, "a key was destroyed that is needed"
            assert state != "DRAINING" or undecided > 0, "a key was kept that is not needed"
        kept = self._world.pairs_kept()
        assert kept is None or kept == {key for key, state, _ in rows if state in IN_USE}
        query_keys = self._world.query_keys_kept()
        if query_keys is not None:
            undecided_queries = {query.digest for query in self._world.queries()} - self._decided_queries()
            assert query_keys == undecided_queries, "a query's key is missing, or was kept when all was decided"

    def _decided_queries(self) -> set[bytes]:
        cohorts = Counter(query for query, _ in self._answers)
        return {query.digest for query in self._world.queries() if cohorts[query.digest] == query.cohorts}

    def _check_phone(self, device: Device) -> None:
        records = device.participant.records.all()
        burnt = {record.query for record in records if record.state is ContributionState.BURNT}
        for record in records:
            if record.state in OUTCOMES:
                outcome = self._decision(record).outcome
                assert OUTCOMES[record.state] == outcome, "a phone took what was not decided"
            query = self._world.evidence.queries[record.query]
            used = self._world.evidence.used(device, record.account, burnt)
            scale = query.fraction_bits
            assert used.l1 <= query.l1 << scale, "a phone said more than its L1 bound"
            assert used.l2_squared <= query.l2_squared << 2 * scale, "a phone said more than its L2 bound"
        answered = {record.query for record in records}
        for answered_query, phone in self._world.evidence.honest:
            if self._world.evidence.members[phone].device == device.number:
                assert answered_query in answered, "a phone has forgotten what it said"
        entries = device.participant.ledger.entries()
        assert {each.query: each.state for each in entries} == dict(_accounts(records)), "a phone's ledger is wrong"
        assert sum(each.cost.epsilon for each in entries) <= LIMIT.epsilon
        assert sum(each.cost.delta for each in entries) <= LIMIT.delta

    def _decision(self, record: Record) -> wire.Decision:
        assert (record.query, record.cohort) in self.decided, "a phone knows a decision that nobody made"
        return self.decided[record.query, record.cohort].made


def _accounts(records: list[Record]) -> Iterator[tuple[str, str]]:
    """What a ledger must hold: an account is spent by one query that is, or reserved by one that may be."""
    for account in {record.account for record in records}:
        states = {record.state for record in records if record.account == account}
        if states & set(SPENT):
            yield account, "spent"
        elif states & set(UNDECIDED):
            yield account, "reserved"
