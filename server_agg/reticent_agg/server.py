"""The aggregation server without any network: messages in, messages out, everything else in its store."""

from __future__ import annotations

import datetime as dt

import numpy as np

from reticent.protocol.keys import KEY_BYTES
from reticent.times import Now
from reticent_agg.counting.closing import Closing
from reticent_agg.counting.collection import Collection
from reticent_agg.counting.queries import Queries
from reticent_agg.counting.replies import Replies
from reticent_agg.store import AggregationStore

__all__ = ["POLL_INTERVAL", "AggregationServer"]

POLL_INTERVAL = dt.timedelta(seconds=60)
"""The delay before phones request announcements again."""


class AggregationServer:
    """The parts of an aggregation server, over one store.

    `queries` takes announcements, `collection` contributions, `closing` ends queries and keeps decisions, `replies`
    answers phones and analysts. The first three are used by one thread at a time, `replies` by any. Several servers may
    share a store.

    Args:
        store: What it keeps.
        identity: The key server's public Ed25519 key, by which its signatures are known.
        now: The time, in UTC.
        rng: Rerandomises sums: `reticent.randomness.secure()`.
        simulation: Accept keys that are only good for simulation as well.
        poll_interval: How long phones wait before they ask for announcements again.
    """

    def __init__(
        self,
        store: AggregationStore,
        *,
        identity: bytes,
        now: Now,
        rng: np.random.Generator,
        simulation: bool = False,
        poll_interval: dt.timedelta = POLL_INTERVAL,
    ) -> None:
        if len(identity) != KEY_BYTES:
            raise ValueError(f"the key server's identity has {KEY_BYTES} bytes: got {len(identity)}")
        self.store = store
        self.queries = Queries(store, identity, now, simulation=simulation)
        self.collection = Collection(store, self.queries, now)
        self.closing = Closing(store, self.queries, identity, now, rng)
        self.replies = Replies(store, now, poll_interval)

    def close(self) -> None:
        """Close the store."""
        self.store.close()
