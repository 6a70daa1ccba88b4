"""Strangers at a server's listeners, beside an honest caller: does that one still get replies?"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from reticent.v1 import counting_pb2 as wire
from tests.attacks.honest import MAX_WAIT, Honest, Service
from tests.attacks.target import Finding, Target
from tests.parties.nonreader import NonReader, unverified_tls

__all__ = ["CONNECTIONS", "HELD", "hold_connections", "services", "take_no_answers"]

HELD = 3 * MAX_WAIT + 1.0
"""Seconds that an attack lasts, without a gap: an honest caller that it keeps out has waited for too long by then."""
ATTACKER = "127.0.0.1"
"""The attacker's address. An honest caller has the same behind a NAT."""
CONNECTIONS = 4500
"""More than a listener accepts."""
RATE = 200.0
"""Connections opened a second. A listener closes an idle connection after half a minute: all are open by then."""
_REOPEN = 0.05  # seconds
_OWN_FILES = 100


def services(target: Target, analyst: str | None) -> dict[str, Service]:
    """The listeners of both servers, with what their honest callers call.

    Args:
        target: Both servers.
        analyst: The name of an analyst's certificate; without one nobody calls what is for analysts.
    """
    leave = wire.LeaveRequest(phone=bytes(16), signature=bytes(64)).SerializeToString()
    announcements = wire.AnnouncementsRequest(phone=bytes(16)).SerializeToString()
    phone, aggregation = target.credentials(), target.credentials("aggregation")
    found = {
        "enrolment": Service(target.enrolment, phone, "/reticent.v1.Enrolment/Leave", leave),
        "deciding": Service(target.deciding, aggregation, "/reticent.v1.Deciding/GetTerms"),
        "collecting": Service(target.collecting, phone, "/reticent.v1.Collecting/Announcements", announcements),
    }
    if analyst is not None:
        found["counting"] = Service(target.counting, target.credentials(analyst), "/reticent.v1.Counting/List")
    return found


async def take_no_answers(
    attacked: Service,
    *,
    path: str = NonReader.path,
    message: bytes = b"",
    connections: int = 1,
    calls: int = 600,
    pause: float = HELD,
    seconds: float = HELD,
) -> Finding:
    """Make many calls on each of some connections, read no reply, and reopen each connection that is cut.

    Args:
        attacked: At a listener that asks for no certificate.
        path: The method that the attacker calls.
        message: Its request.
        connections: How many at a time.
        calls: On each connection.
        pause: Seconds after which a connection makes as many calls again.
        seconds: For which the attack lasts.
    """
    caller, until, tls = Honest(attacked, ATTACKER), time.monotonic() + seconds, unverified_tls()

    class Attacker(NonReader):
        pass

    Attacker.path = path

    async def stay() -> None:
        async with Attacker.connected(ATTACKER, attacked.port, tls) as caller:
            while caller.is_open:
                await caller.call(message, calls)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(caller.ended(), pause)

    async with caller.calling():
        await asyncio.gather(*(_again_and_again(stay, until) for _ in range(connections)))
    return caller.finding("replies not read", f"{connections} connections with {calls} calls each for {seconds:.0f} s")


async def hold_connections(
    attacked: Service,
    *,
    honest: str = ATTACKER,
    connections: int = CONNECTIONS,
    rate: float = RATE,
    seconds: float = HELD,
) -> Finding:
    """Keep many connections open that make no calls, and reopen those that are cut.

    Args:
        attacked: At any listener.
        honest: The address of the honest caller.
        connections: How many.
        rate: How many are opened a second.
        seconds: For which the attack lasts when all were opened once.
    """
    _allow_files(connections + _OWN_FILES)
    caller = Honest(attacked, honest)
    clock, tls = asyncio.get_running_loop().time, unverified_tls()
    opened = [asyncio.Event() for _ in range(connections)]

    next_at = clock()

    async def stay(is_open: asyncio.Event) -> None:
        nonlocal next_at
        next_at = max(next_at, clock()) + 1 / rate
        await asyncio.sleep(next_at - clock())
        is_open.set()
        async with NonReader.connected(ATTACKER, attacked.port, tls) as caller:
            await caller.ended()

    until = time.monotonic() + 2 * connections / rate + seconds
    holding = [asyncio.create_task(_again_and_again(partial(stay, each), until)) for each in opened]
    try:
        async with asyncio.timeout(2 * connections / rate):
            await asyncio.gather(*(each.wait() for each in opened))
        async with caller.calling():
            await asyncio.sleep(seconds)
    finally:
        for each in holding:
            each.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    return caller.finding("connections", f"{connections} connections, {rate:.0f} opened a second, for {seconds:.0f} s")


async def _again_and_again(stay: Callable[[], Coroutine[Any, Any, None]], until: float) -> None:
    """Open a connection whenever it has ended."""
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
            await asyncio.wait_for(stay(), left)
        await asyncio.sleep(_REOPEN)


def _allow_files(count: int) -> None:
    """Let this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
