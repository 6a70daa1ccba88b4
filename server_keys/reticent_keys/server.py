"""The key server without its network: enrols phones, countersigns and deals queries, decides cohorts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from reticent.privacy.limits import QueryLimits
from reticent.randomness import secure
from reticent.storage.database import Database
from reticent.times import Now
from reticent.v1 import counting_pb2 as wire
from reticent_keys.dealing import Dealer
from reticent_keys.deciding import Decider
from reticent_keys.identity import Identity
from reticent_keys.journal import owned
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Keyring, Vault, decidable
from reticent_keys.membership import MEMBERSHIP, Members
from reticent_keys.query_keys import QueryKeys

__all__ = ["KeyServer"]


class KeyServer:
    """What the key server does, for messages that somebody else brings. What it has answered is on disk.

    All methods may be called by several threads, and several processes may share a journal and a folder of keys.

    Args:
        journal: Where everything is written down.
        identity: By what phones know the server.
        vault: Has the secret keys.
        query_keys: Has those of single queries.
        now: Says what time it is, in UTC.
        limits: Which queries the operator allows.
        lifetime: How long a membership is good.
        generate: Makes a key pair.
        rng: Deals phones; `secure()` unless given.

    Raises:
        JournalError: The journal is that of another server.
    """

    def __init__(
        self,
        journal: Database,
        identity: Identity,
        vault: Vault,
        query_keys: QueryKeys,
        *,
        now: Now,
        limits: QueryLimits | None = None,
        lifetime: dt.timedelta = MEMBERSHIP,
        generate: Callable[[], KeyPair] = KeyPair.generate,
        rng: np.random.Generator | None = None,
    ) -> None:
        owned(journal, identity.public)
        self.journal = journal
        self.identity = identity.public
        """The public Ed25519 key, which invitations name."""
        self.keyring = Keyring(journal, vault, generate, now)
        self.members = Members(journal, identity, now, lifetime)
        self._dealer = Dealer(
            journal, identity, self.keyring, query_keys, limits or QueryLimits(), rng=rng or secure(), now=now
        )
        self._decider = Decider(journal, identity, self.keyring, query_keys, now)
        self.keyring.begin()
        query_keys.erase_all_but(decidable(journal))

    def join(self, asked: wire.JoinRequest) -> wire.Membership:
        """Execute for a phone that has an invitation. See `Members.join`."""
        return self.members.join(asked)

    def renew(self, asked: wire.RenewRequest) -> wire.Membership:
        """Execute for a phone. See `Members.renew`."""
        return self.members.renew(asked)

    def leave(self, asked: wire.LeaveRequest) -> wire.LeaveReply:
        """Execute for a phone. See `Members.leave`."""
        return self.members.leave(asked)

    def standing(self) -> wire.Terms:
        """Execute for the aggregation server. How many phones could be asked now, and under which key.

        Raises:
            Refused: UNAVAILABLE: no key can be used at present.
        """
        return wire.Terms(population=self.members.population(), public_key=self.keyring.active().public)

    def countersign(self, asked: wire.CountersignRequest) -> Iterator[wire.Deal]:
        """Execute for the aggregation server. See `Dealer.countersign`: when this returns, all is written down."""
        return self._dealer.countersign(asked.query)

    def decide(self, head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> wire.Decision:
        """Execute for the aggregation server. See `Decider.decide`."""
        return self._decider.decide(head, receipts)

    def __repr__(self) -> str:
        return f"KeyServer({self.identity.hex()[:16]}…)"
