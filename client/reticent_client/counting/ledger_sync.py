"""What the ledger is told of the answers that a phone has given, and that nothing more is said where it cannot be told.

The store knows what was said and what became of it; the ledger holds what that costs. A kill between the two, a lost
ledger or a key server that contradicts itself may leave something that counts and is not booked. It is booked as soon
as it can be; until then the phone answers nothing new.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from reticent.privacy import BudgetExceeded, Contradiction, Entry, Ledger, Query
from reticent.privacy.ledger import SELF
from reticent_client.counting.records import LIVE, SPENT, Record, Records, State
from reticent_client.errors import Declined, Reason

__all__ = ["Booking", "unbooked"]

_log = logging.getLogger(__name__)


class Booking:
    """Keeps a ledger in step with the records.

    Args:
        records: What was said, and what became of it.
        ledger: The user's budget.
    """

    def __init__(self, records: Records, ledger: Ledger) -> None:
        self._records = records
        self._ledger = ledger

    def settle(self) -> None:
        """Tell the ledger what it may not know: what was decided, and what was intended only."""
        for record in self._records.unsettled():
            if record.state in SPENT:
                if not self._booked(record):
                    continue  # it is tried again
            elif not self._records.within(LIVE, record.account):  # a sequence is given back with its last query
                self._give_back(record)
            if record.state is State.INTENDED:
                self._records.forget(record.query)
            else:
                self._records.settle(record.query)

    def recover(self) -> None:
        """Finish what a kill has left unfinished, and book again what a lost ledger has forgotten."""
        self.settle()
        for record in unbooked(self._records.within(LIVE), self._ledger.entries(subject=SELF)):
            self._booked(record)

    def examine(self, query: Query, terms: str) -> None:
        """Decline what does not fit the budget, or what the ledger and the store do not agree about.

        Args:
            query: What is asked.
            terms: What it has in common with the other queries of its sequence.

        Raises:
            Declined: It does not fit.
        """
        self.recover()  # where the disk was full once, for example
        entries = self._ledger.entries(subject=SELF)
        beyond = next(iter(unbooked(self._records.within(LIVE), entries)), None)
        if beyond is not None:
            raise Declined(
                Reason.BUDGET,
                f"what was said to {beyond.id!r} counts, and the budget has no room for it: nothing more is said",
                query.id,
            )
        live = self._records.within(LIVE, query.account)
        if any(record.terms != terms for record in live):
            raise Declined(
                Reason.OTHER_TERMS,
                f"other queries of the sequence {query.sequence!r} name other bounds, cost or noise",
                query.id,
            )
        if not live and any(entry.query == query.account for entry in entries):
            # The store was lost, or somebody else books under this name: this may be a second answer.
            raise Declined(
                Reason.BOOKED_ELSEWHERE, f"the budget is booked for {query.account!r} already, not by this", query.id
            )
        try:
            quote = self._ledger.quote(query.account, query.cost)
        except (Contradiction, ValueError) as error:
            raise Declined(Reason.BUDGET, str(error), query.id) from error
        if not quote.fits:
            raise Declined(Reason.BUDGET, str(BudgetExceeded(SELF, query.account, quote, entries)), query.id)

    def _booked(self, record: Record) -> bool:
        """Have the ledger hold what a record costs; whether it does."""
        try:
            self._ledger.reserve(record.account, record.cost)  # there already, as a rule
            if record.state in SPENT:
                self._ledger.spend(record.account)
        except (BudgetExceeded, Contradiction) as error:
            _log.info("what was said to %r counts and cannot be booked: %s", record.id, error)
            return False
        return True

    def _give_back(self, record: Record) -> None:
        try:
            self._ledger.give_back(record.account)
        except Contradiction as error:  # it was spent, by whomever: that stays
            _log.info("nothing is given back for %r: %s", record.id, error)


def unbooked(records: Sequence[Record], entries: Sequence[Entry]) -> list[Record]:
    """Of the records that count, those of which a ledger's entries do not hold the cost."""
    held = {entry.query: entry for entry in entries}
    return [each for each in records if each.state in LIVE and not _holds(held.get(each.account), each)]


def _holds(entry: Entry | None, record: Record) -> bool:
    return entry is not None and entry.cost == record.cost and (entry.state == "spent" or record.state not in SPENT)
