"""A clock that stands still until a call moves it: for servers under test, on this machine only."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Mapping

from reticent.address import is_local
from reticent.clock import Clock, ManualClock, SystemClock
from reticent.protocol import Refusal, Refused
from reticent.rpc.admission import Admission, Caller, Handler, unary
from reticent.times import instant, milliseconds
from reticent.v1 import counting_pb2 as wire

__all__ = ["SERVICE", "check_local", "clock_from", "simulated_clock"]

SERVICE = "reticent.v1.SimulatedClock"


def clock_from(start: str | None, *addresses: str) -> tuple[Clock, dict[str, Mapping[str, Handler]]]:
    """A server's clock, and the service that moves it if it is simulated.

    Args:
        start: The value of `--simulated-clock`; None for the system's clock.
        addresses: Where the server listens; they must be local if the clock is simulated.
    """
    if start is None:
        return SystemClock(), {}
    check_local(addresses)
    try:
        begun = dt.datetime.fromisoformat(start)
    except ValueError:
        raise ValueError(f"an instant looks like 2027-03-01T12:00:00Z: got {start!r}") from None
    clock, methods = simulated_clock(begun.replace(tzinfo=begun.tzinfo or dt.UTC).astimezone(dt.UTC))
    return clock, {SERVICE: methods}


def simulated_clock(start: dt.datetime) -> tuple[ManualClock, Mapping[str, Handler]]:
    """A clock that starts at an instant, and the methods of the service that moves it."""
    clock = ManualClock(start)
    moving = asyncio.Lock()

    async def move(request: wire.Instant, _: Caller) -> wire.Instant:
        try:
            wanted = instant(request.milliseconds)
        except OverflowError:
            raise Refused(Refusal.MALFORMED, f"{request.milliseconds} is not an instant") from None
        async with moving:
            if wanted < clock.now():
                raise Refused(Refusal.MALFORMED, f"the clock is already at {clock.now():%Y-%m-%d %H:%M:%S} UTC")
            await clock.move_to(wanted)
        return wire.Instant(milliseconds=milliseconds(clock.now()))

    return clock, {"Move": unary(Admission(), wire.Instant, move)}


def check_local(addresses: Iterable[str]) -> None:
    """Refuse a simulated clock if another machine could move it or rely on its time."""
    if public := [address for address in addresses if not is_local(address)]:
        raise ValueError(f"a simulated clock needs local addresses: other machines can reach {', '.join(public)}")
