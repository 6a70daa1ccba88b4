"""Both servers in this process, over files, without a network: to measure what they compute for a contribution."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.phones import LoadPhone
from reticent.privacy import Query
from reticent.protocol import SigningKey
from reticent.randomness import secure
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.store import Lease
from reticent_keys import Identity, KeyPairStore, KeyServer, QueryKeyStore, SqlJournal, administration

START = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)
YEAR = dt.timedelta(days=365)
BATCH = 100
"""Contributions in a transaction, as in a server under load."""


@dataclass
class ServerTimes:
    """The CPU seconds of one round.

    Args:
        collecting: Of the aggregation server, for all contributions: parsed, checked, added and stored.
        closing: Of the aggregation server, to close the query and to send its receipts.
        deciding: Of the key server, for all receipts: parsed, checked, with tags and pads.
        decrypting: Of the key server, for the ciphertexts of the sum.
        between: Bytes from the aggregation server to the key server.
    """

    collecting: float
    closing: float
    deciding: float
    decrypting: float
    between: int

    @property
    def both(self) -> float:
        """The CPU seconds of both servers."""
        return self.collecting + self.closing + self.deciding + self.decrypting


class LocalServers:
    """A key server and an aggregation server, with enrolled phones.

    Args:
        folder: For their files.
        phones: The number of phones.
    """

    def __init__(self, folder: Path, phones: int) -> None:
        self._time = START
        identity = Identity()
        self.keys = KeyServer(
            SqlJournal(folder / "journal.db"),
            identity,
            KeyPairStore(None),
            QueryKeyStore(None),
            now=self._now,
        )
        self.aggregation = AggregationServer(
            SqlStore(folder / "aggregation.db"), identity=identity.public, now=self._now, rng=secure()
        )
        tokens = administration.invite(self.keys.journal, phones, expires=START + YEAR)
        self.phones = [LoadPhone(token, SigningKey()) for token in tokens]
        for phone in self.phones:
            phone.id = self.keys.members.join(phone.joining()).phone
        self.terms = self.keys.terms()
        self.aggregation.queries.learn(self.terms)

    def countersign(self, query: Query) -> bytes:
        """Announce a query and deal its phones; returns the key server's key for it."""
        self.aggregation.queries.announce(query.to_bytes())
        deals = list(self.keys.dealer.countersign(query.to_bytes()))
        self.aggregation.queries.countersign(query, iter(deals))
        return deals[0].agreement_key

    def count(self, contributions: Sequence[bytes]) -> tuple[wire.Decision, ServerTimes]:
        """Collect these contributions to the query that was announced last, and decide its only cohort."""
        begun = time.process_time()
        for first in range(0, len(contributions), BATCH):
            batch = [wire.Contribution.FromString(each) for each in contributions[first : first + BATCH]]
            for result in self.aggregation.collection.contribute(batch):
                if isinstance(result, Exception):
                    raise result
        collecting = time.process_time() - begun
        begun = time.process_time()
        self._time += dt.timedelta(days=1)
        self.aggregation.closing.close_due()
        head = self._head()
        messages = [each.SerializeToString() for each in self.aggregation.closing.messages(head)]
        closing = time.process_time() - begun
        begun = time.process_time()
        request = self.keys.decider.begin(head)
        for each in messages:
            self.keys.decider.add(request, wire.DecideRequest.FromString(each).receipts.receipts)
        decision = self.keys.decider.decide(request)
        deciding = time.process_time() - begun
        self.aggregation.closing.decide(decision)
        pair = self.keys.keyring.pair(self.keys.journal.query(head.query).key)  # type: ignore[union-attr]
        size = pair.public.ciphertext_bytes
        sums = [int.from_bytes(head.ciphertexts[at : at + size]) for at in range(0, len(head.ciphertexts), size)]
        begun = time.process_time()
        pair.decrypt(sums)
        decrypting = time.process_time() - begun
        return decision, ServerTimes(
            collecting, closing, deciding - decrypting, decrypting, sum(len(each) for each in messages)
        )

    def close(self) -> None:
        """Close the files."""
        self.aggregation.close()
        self.keys.journal.close()

    def _now(self) -> dt.datetime:
        return self._time

    def _head(self) -> wire.DecideHead:
        """The request to decide the only cohort that is undecided."""
        (item,) = self.aggregation.store.to_decide()
        now = milliseconds(self._time)
        head = self.aggregation.store.claim(item, Lease("a benchmark", now, now + 1))
        if not isinstance(head, wire.DecideHead):
            raise TypeError("there is no request to decide")
        return head
