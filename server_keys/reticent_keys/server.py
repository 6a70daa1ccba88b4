"""The key server without its network: enrols phones, countersigns and deals queries, decides cohorts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from reticent.privacy import QueryLimits
from reticent.randomness import secure, seeded
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.dealing import Dealer
from reticent_keys.deciding import Decider
from reticent_keys.identity import Identity
from reticent_keys.journal import Journal
from reticent_keys.keypair import KeyPair
from reticent_keys.keypair_store import KeyPairStore
from reticent_keys.keyring import Keyring
from reticent_keys.membership import MEMBERSHIP, Members
from reticent_keys.query_key_store import QueryKeyStore
from reticent_keys.receipt_workers import ReceiptWorkers

__all__ = ["DECISION_TIME", "KeyServer"]

DECISION_TIME = dt.timedelta(days=30)
ROWS_PER_ROUND = 5000
"""Rows that are deleted in one transaction, while others wait."""


class KeyServer:
    """The parts of a key server, over one journal. What they have replied is on disk.

    All methods may be called by several threads, and several processes may share a journal and a folder of keys.

    Args:
        journal: Records everything.
        identity: The key by which phones know the server.
        pairs: Keeps the key pairs.
        query_keys: Keeps the keys of single queries.
        now: The clock, in UTC.
        limits: The queries that the operator allows.
        lifetime: How long a membership lasts.
        decision_time: How long after its end a query may be decrypted. Then its own key is erased.
        generate: Makes a key pair.
        seed: Deals the phones of a query by this seed and the query's id, for simulations; by a secure generator unless
            given.
        workers: Check receipts, if there are many and several cores.
        check_claim: Raises `InUse` if another process may serve now.

    Raises:
        JournalError: The journal belongs to another server, or was restored from a backup.
    """

    def __init__(
        self,
        journal: Journal,
        identity: Identity,
        pairs: KeyPairStore,
        query_keys: QueryKeyStore,
        *,
        now: Now,
        limits: QueryLimits | None = None,
        lifetime: dt.timedelta = MEMBERSHIP,
        decision_time: dt.timedelta = DECISION_TIME,
        generate: Callable[[], KeyPair] = KeyPair.generate,
        seed: int | None = None,
        workers: ReceiptWorkers | None = None,
        check_claim: Callable[[], None] = lambda: None,
    ) -> None:
        journal.take_ownership(identity.public)
        journal.check_complete()
        self.journal = journal
        self.identity = identity.public
        """The public Ed25519 key, which invitations name."""
        self.keyring = Keyring(journal, pairs, generate, now)
        self.members = Members(journal, identity, now, lifetime)
        self.dealer = Dealer(
            journal,
            identity,
            self.keyring,
            query_keys,
            limits or QueryLimits(),
            rng=lambda query: secure() if seed is None else seeded(seed, "dealing", query.id),
            now=now,
            decision_time=decision_time,
        )
        self.decider = Decider(journal, identity, self.keyring, query_keys, now, workers)
        self._now = now
        self.check_claim = check_claim
        """Raises `InUse` if another process may serve now."""
        self.keyring.start()
        self._query_keys = query_keys
        self._erase_query_keys()

    def erase_overdue(self) -> None:
        """Erase the keys of the queries that were not decided in time, and the key pairs that only those needed.

        Also the keys of decided queries: an error after the last decision may have prevented that.
        """
        try:
            self._erase_query_keys()
        finally:
            self.keyring.erase_unused()

    def _erase_query_keys(self) -> None:
        self.journal.erase_all_but_undecided(self._query_keys.erase_all_but, milliseconds(self._now()))

    def prune(self, keep: dt.timedelta) -> int:
        """Delete some of the phones of queries that ended so long ago; returns the number of deleted rows."""
        return self.journal.prune(milliseconds(self._now() - keep), ROWS_PER_ROUND)

    def terms(self) -> wire.Terms:
        """Run for the aggregation server. How many phones can be dealt to a query now, and the active key.

        Raises:
            Refused: UNAVAILABLE: no key can be used at present.
        """
        population = self.journal.member_count(milliseconds(self._now()))
        return wire.Terms(population=population, public_key=self.keyring.active().public)

    def __repr__(self) -> str:
        return f"KeyServer({self.identity.hex()[:16]}…)"
