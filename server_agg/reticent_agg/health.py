"""Checks that a process repeats while it serves: of its right to serve from its store, and of its clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from reticent.clock import Clock, SystemClock
from reticent.times import milliseconds
from reticent_agg import metrics
from reticent_agg.errors import BadStore, WrongClock
from reticent_agg.store import AggregationStore

__all__ = ["check_clock", "check_while_serving"]

_log = logging.getLogger(__name__)

INTERVAL = 30.0
"""Seconds between two checks."""
WARNED_SKEW = 1.0
"""Seconds between the clocks of a process and of its database, from which on it warns."""
MAX_SKEW = 60.0
"""Seconds between them, from which on a process does not start: as long as a lease."""


def check_clock(store: AggregationStore, clock: Clock) -> bool:
    """Compare the clock with that of the store's machine, if there is one; whether it is right.

    A clock of a test is not compared.

    Raises:
        WrongClock: It is far off.
    """
    if not isinstance(clock, SystemClock):
        return True
    before = milliseconds(clock.now())
    theirs = store.clock()
    after = milliseconds(clock.now())
    if theirs is None:
        return True
    seconds = (max(0, before - theirs) - max(0, theirs - after)) / 1000  # at least: the answer takes some time
    metrics.CLOCK_SKEW.set(seconds)
    if abs(seconds) >= MAX_SKEW:
        raise WrongClock(
            f"this machine's clock and the database's differ by {seconds:+.1f} s: queries would close at a wrong time. "
            "Synchronise both, for example by NTP"
        )
    if abs(seconds) >= WARNED_SKEW:
        _log.warning("this machine's clock is ahead of the database's by %.1f s: synchronise both", seconds)
    return abs(seconds) < WARNED_SKEW


async def check_while_serving(
    store: AggregationStore, write: Callable[..., Awaitable[Any]], clock: Clock, wake: asyncio.Event
) -> None:
    """Check the claim and the clock, until cancelled.

    Args:
        store: The store.
        write: Calls a function in the thread that writes.
        clock: The server's clock.
        wake: Set if a check is due at once.
    """
    while True:
        wake.clear()
        try:
            await write(store.check_claim)
            await write(check_clock, store, clock)
        except BadStore:
            raise
        except WrongClock as error:  # the queries of other processes depend on it as well, so that this one goes on
            _log.error("%s", error)
        except OSError as error:
            _log.warning("the store cannot be checked: %s", error)
        except Exception:  # noqa: BLE001  # a fault of ours must not end the checks
            _log.exception("the store cannot be checked")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), INTERVAL)
