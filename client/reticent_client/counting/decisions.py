"""The key server's decisions about a phone's contributions: each is checked, stored, and settled in the budget."""

from __future__ import annotations

from dataclasses import replace

from reticent.protocol import statements
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.budget import Budget
from reticent_client.counting.records import SPENT, UNDECIDED, ContributionState, Record, Records
from reticent_client.counting.signatures import is_signed
from reticent_client.errors import ForeignReply

__all__ = ["decide", "refuse_another_decision"]

OUTCOMES = {
    wire.RELEASED: ContributionState.RELEASED,
    wire.VOID: ContributionState.VOID,
    wire.BURNT: ContributionState.BURNT,
}


def decide(decision: wire.Decision, records: Records, budget: Budget) -> tuple[Record, ContributionState]:
    """Run by the phone, in a transaction. Store a decision, and spend the cost of the contribution or give it back.

    Returns:
        The contribution before the decision, and the state that the key server reports.

    Raises:
        ForeignReply: The decision is of no query and cohort of this phone's, names no outcome, or is not signed by the
            key server that countersigned the query.
    """
    record = records.of(decision.query)
    if record is None or record.cohort != decision.cohort:
        raise ForeignReply("the decision is not about a contribution of this phone's")
    if not is_signed(record.identity, statements.decision(decision), decision.signature):
        raise ForeignReply(f"the decision about {record.id!r} is not signed by the key server")
    state = OUTCOMES.get(decision.outcome)
    if state is None:
        raise ForeignReply(f"the decision about {record.id!r} names no outcome: {decision.outcome}")
    if record.state is ContributionState.BURNT and state in SPENT:  # what is out is out
        detail = "the key server had called it burnt before"
    elif record.state in UNDECIDED:
        contributions = f"{decision.contributors:,} contributions"
        detail = f"{contributions}; {decision.reason}" if decision.reason else contributions
    else:
        return record, state
    records.advance(record.query, state, detail)
    budget.settle(replace(record, state=state))
    return record, state


def refuse_another_decision(before: Record, state: ContributionState) -> ContributionState:
    """The state that the key server reports, unless it reported another one before.

    It is called after the transaction: a burnt cohort that was decrypted after all stays spent.

    Raises:
        ForeignReply: It reported another one before.
    """
    if before.state not in UNDECIDED and before.state is not state:
        raise ForeignReply(f"{before.id!r} is {before.state.name}, and the key server now reports {state.name}")
    return state
