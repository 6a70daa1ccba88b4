"""Whether a query fits the budget of a phone, and what its contributions do to the ledger.

The ledger and the records of contributions are in one file, and change in one transaction. Only a key server that
contradicts itself leaves a contribution that counts and whose cost the ledger lacks: it called a cohort burnt, so that
the phone gave the cost back, and decrypted it after all. The phone records the cost as soon as the budget allows it.
Until then, it contributes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from reticent.privacy import BudgetExceeded, Contradiction, Entry, Ledger, Query
from reticent_client.counting.records import LIVE, SPENT, ContributionState, Record, Records
from reticent_client.errors import Declined, Reason

__all__ = ["Budget", "unrecorded"]

_log = logging.getLogger(__name__)


class Budget:
    """The budget of one phone.

    Args:
        records: The contributions of the phone.
        ledger: What they cost.
    """

    def __init__(self, records: Records, ledger: Ledger) -> None:
        self._records = records
        self._ledger = ledger

    def check(self, query: Query, terms: str) -> None:
        """Decline a query that does not fit the budget.

        Args:
            query: The query.
            terms: What it has in common with the other queries of its sequence.

        Raises:
            Declined: It does not fit.
        """
        self.record_missing()
        entries = self._ledger.entries(subject=self._ledger.subject)
        missing = next(iter(unrecorded(self._records.within(LIVE), entries)), None)
        if missing is not None:
            raise Declined(
                Reason.BUDGET,
                f"the cost of {missing.id!r} exceeds the budget: the phone contributes nothing new",
                query.id,
            )
        live = self._records.within(LIVE, query.account)
        if not live and any(entry.query == query.account for entry in entries):  # this may be a second contribution
            raise Declined(
                Reason.BUDGET, f"the ledger has an entry for {query.account!r} already, not of a contribution", query.id
            )
        if any(record.terms != terms for record in live):
            raise Declined(
                Reason.OTHER_TERMS,
                f"other queries of the sequence {query.sequence!r} name other bounds, cost or noise",
                query.id,
            )
        try:
            quote = self._ledger.quote(query.account, query.cost)
        except (Contradiction, ValueError) as error:
            raise Declined(Reason.BUDGET, str(error), query.id) from error
        if not quote.fits:
            exceeded = BudgetExceeded(self._ledger.subject, query.account, quote, entries)
            raise Declined(Reason.BUDGET, str(exceeded), query.id)

    def reserve(self, query: Query) -> None:
        """Reserve what a query costs.

        Raises:
            Declined: It does not fit any more.
        """
        try:
            self._ledger.reserve(query.account, query.cost)
        except (BudgetExceeded, Contradiction) as error:
            raise Declined(Reason.BUDGET, str(error), query.id) from error

    def settle(self, record: Record) -> None:
        """Spend what a contribution reserved, or give it back, as it was decided."""
        if record.state in SPENT:
            self._record(record)
        elif record.state is ContributionState.BURNT and not self._records.within(LIVE, record.account):
            try:  # a sequence is given back with its last query
                self._ledger.give_back(record.account)
            except Contradiction as error:
                _log.info("nothing is given back for %r: %s", record.id, error)

    def record_missing(self) -> None:
        """Record the costs that the ledger lacks, where the budget allows it by now."""
        for record in unrecorded(self._records.within(LIVE), self._ledger.entries(subject=self._ledger.subject)):
            self._record(record)

    def _record(self, record: Record) -> None:
        try:
            self._ledger.reserve(record.account, record.cost)  # there already, as a rule
            if record.state in SPENT:
                self._ledger.spend(record.account)
        except (BudgetExceeded, Contradiction) as error:
            _log.info("the cost of %r exceeds the budget and is not recorded: %s", record.id, error)


def unrecorded(records: Sequence[Record], entries: Sequence[Entry]) -> list[Record]:
    """The contributions that count and whose cost a ledger's entries lack."""
    held = {entry.query: entry for entry in entries}
    return [each for each in records if each.state in LIVE and not _holds(held.get(each.account), each)]


def _holds(entry: Entry | None, record: Record) -> bool:
    return entry is not None and entry.cost == record.cost and (entry.state == "spent" or record.state not in SPENT)
