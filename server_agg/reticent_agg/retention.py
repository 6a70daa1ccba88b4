"""Retention: some time after a decision, the server deletes which phones contributed, some rows at a time."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from reticent.clock import Clock
from reticent.retry import Backoff
from reticent.times import milliseconds
from reticent_agg.errors import BadStore
from reticent_agg.store import AggregationStore

__all__ = ["prune", "prune_while_serving"]

_log = logging.getLogger(__name__)

ROWS_AT_ONCE = 5000
"""Rows that one transaction deletes: contributions wait for no more."""
PAUSE = 0.05
"""Seconds between two such transactions, in which contributions are written."""
INTERVAL = dt.timedelta(hours=1)
"""The time between two searches for old queries."""
PRUNE_AGAIN = Backoff(first=60.0, limit=INTERVAL.total_seconds())
"""The delays before pruning is tried again after a failure."""


def prune(store: AggregationStore, before: dt.datetime) -> Iterator[str]:
    """Delete which phones contributed to queries decided or lost before then, and queries refused then; their ids."""
    while (finished := store.prune(milliseconds(before), ROWS_AT_ONCE)) is not None:
        yield from finished


async def prune_while_serving(
    store: AggregationStore, write: Callable[..., Awaitable[Any]], clock: Clock, keep: dt.timedelta
) -> None:
    """Prune what becomes old, until cancelled.

    Args:
        store: The store.
        write: Calls a function in the thread that writes.
        clock: The server's clock.
        keep: The age of a decision at which its query is pruned.
    """
    failures = 0
    while True:
        pause = INTERVAL
        try:
            while (finished := await write(store.prune, milliseconds(clock.now() - keep), ROWS_AT_ONCE)) is not None:
                for query_id in finished:
                    _log.info("%r is pruned: the participation records are deleted", query_id)
                await asyncio.sleep(PAUSE)
            failures = 0
        except BadStore:
            raise
        except Exception:  # noqa: BLE001  # a fault of ours must not end the pruning
            failures += 1
            pause = dt.timedelta(seconds=PRUNE_AGAIN.delay(failures))
            _log.exception("old queries cannot be pruned; retry in %s", pause)
        await clock.wait_until(clock.now() + pause)
