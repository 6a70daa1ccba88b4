"""Which call is evicted, at moments that sockets do not let a test choose."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from reticent.protocol import Refusal, Refused
from reticent.rpc._call_limits import AdmittedCall, CallLimits
from reticent.rpc._connections import Peer
from tests.core.rpc.scenes import play

A = Peer("a")
EVICTED = "BUSY: evicted by newer calls while waiting for a message"


def test_the_network_with_the_most_waiting_calls_loses_one() -> None:
    """Of several that have as many, the one that is there longest."""
    limits = CallLimits(6, 6)
    with ExitStack() as stack:
        few, many, busy = (
            [stack.enter_context(limits.admit(Peer(name, port))) for port in range(number)]
            for name, number in (("few", 1), ("many", 3), ("busy", 2))
        )
        for each in busy:
            limits.mark_working(each)
        newcomers = [stack.enter_context(limits.admit(Peer("new", port))) for port in range(2)]
        assert [each.evicted for each in (*few, *many, *busy)] == [False, True, True, False, False, False]
        assert not any(each.evicted for each in newcomers)
        assert limits.size == 6
    assert limits.size == 0
    assert not limits._admitted
    assert not limits._waiting


def test_of_one_network_the_connection_with_the_most_waiting_calls_loses_one() -> None:
    """Whoever waits on a connection of its own, however long, goes before whoever opens many calls on one."""
    limits = CallLimits(8, 4)
    with ExitStack() as stack:
        slow = stack.enter_context(limits.admit(Peer("a", 1)))
        many = [stack.enter_context(limits.admit(Peer("a", 2))) for _ in range(3)]
        stack.enter_context(limits.admit(Peer("a", 3)))
        assert [each.evicted for each in (slow, *many)] == [False, True, False, False]


def test_a_call_is_not_evicted_once_its_message_has_arrived() -> None:
    limits = CallLimits(2, 1)
    with limits.admit(A) as one, limits.admit(Peer("b")) as other:
        limits.mark_working(one)
        with pytest.raises(Refused) as caught, limits.admit(A):  # another one's place is of no use
            pass
        assert caught.value.refusal is Refusal.BUSY
        assert not other.evicted
        limits.mark_working(other)
        with pytest.raises(Refused, match="too many concurrent calls"), limits.admit(Peer("c")):
            pass


def test_an_evicted_call_is_not_served_even_if_its_message_arrives_at_that_moment() -> None:
    """Nobody counts it any more."""

    async def scene() -> None:
        call = AdmittedCall(A)
        with pytest.raises(Refused, match=EVICTED):
            async with call.waiting(5.0):
                call.evict()

    play(scene())


def test_a_call_may_be_evicted_before_it_waits() -> None:
    async def scene() -> None:
        call = AdmittedCall(A)
        call.evict()
        with pytest.raises(Refused, match=EVICTED):
            async with call.waiting(1e9):
                await asyncio.Event().wait()

    play(scene())


def test_a_call_may_be_evicted_when_it_times_out() -> None:
    """Between the end of its time and the moment in which it notices."""

    async def scene() -> None:
        call = AdmittedCall(A)
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))

        async def given_way_while_it_waits() -> None:
            async with call.waiting(0.0):
                loop.call_soon(call.evict)
                await asyncio.Event().wait()

        with pytest.raises(Refused, match=EVICTED):
            await given_way_while_it_waits()
        assert not faults

    play(scene())
