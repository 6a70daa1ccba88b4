"""A clock that stands still until somebody moves it: a server under a test, on this machine only."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Mapping

from reticent.address import is_local
from reticent.clock import Clock, ManualClock, SystemClock
from reticent.protocol.refusals import Refusal, Refused
from reticent.rpc.admission import Caller, Door, Handler, unary
from reticent.times import instant, milliseconds
from reticent.v1 import counting_pb2 as wire

__all__ = ["SERVICE", "check_local", "clock_from", "simulated_clock"]

SERVICE = "reticent.v1.SimulatedClock"


def clock_from(start: str | None, *addresses: str) -> tuple[Clock, dict[str, Mapping[str, Handler]]]:
    """A server's clock, and the service that moves it where it is simulated.

    Args:
        start: What `--simulated-clock` says; None for the system's clock.
        addresses: Where the server listens: only this machine may reach it while its clock is simulated.
    """
    if start is None:
        return SystemClock(), {}
    check_local(addresses)
    try:
        begun = dt.datetime.fromisoformat(start)
    except ValueError:
        raise ValueError(f"an instant is like 2027-03-01T12:00:00Z: got {start!r}") from None
    clock, methods = simulated_clock(begun.replace(tzinfo=begun.tzinfo or dt.UTC).astimezone(dt.UTC))
    return clock, {SERVICE: methods}


def simulated_clock(start: dt.datetime) -> tuple[ManualClock, Mapping[str, Handler]]:
    """A clock that begins at an instant, and the methods of the service that moves it."""
    clock = ManualClock(start)
    moving = asyncio.Lock()

    async def move(asked: wire.Instant, _: Caller) -> wire.Instant:
        try:
            wanted = instant(asked.milliseconds)
        except OverflowError:
            raise Refused(Refusal.MALFORMED, f"{asked.milliseconds} is no instant") from None
        async with moving:
            if wanted < clock.now():
                raise Refused(Refusal.MALFORMED, f"the clock stands at {clock.now():%Y-%m-%d %H:%M:%S} UTC already")
            await clock.move_to(wanted)
        return wire.Instant(milliseconds=milliseconds(clock.now()))

    return clock, {"Move": unary(Door(), wire.Instant, move)}


def check_local(addresses: Iterable[str]) -> None:
    """Refuse a simulated clock where another machine could move it, or take its time for the right one."""
    if public := [address for address in addresses if not is_local(address)]:
        raise ValueError(f"a simulated clock is for this machine alone: {', '.join(public)} can be reached from others")
