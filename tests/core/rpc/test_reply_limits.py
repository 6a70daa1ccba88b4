"""Which replies are written and which connections are cut, at moments that a test chooses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reticent.protocol import Refusal, Refused
from reticent.rpc._connections import Peer
from reticent.rpc._reply_limits import ReplyLimits

A1, A2, B1, C1 = Peer("a", 1), Peer("a", 2), Peer("b", 1), Peer("c", 1)


class Scene:
    """Room for 100 bytes, 60 of one connection, and a clock."""

    def __init__(self, limit: int = 100, limit_per_connection: int = 60) -> None:
        self.now = 0.0
        self.cut: list[Peer] = []
        self.replies = ReplyLimits(limit, limit_per_connection, cut=self.cut.append, now=lambda: self.now)

    def add(self, peer: Peer, size: int, at: float) -> Callable[[], None]:
        self.now = at
        return self.replies.add(peer, size)

    def refused(self, peer: Peer, size: int, at: float) -> str:
        with pytest.raises(Refused) as caught:
            self.add(peer, size, at)
        assert caught.value.refusal is Refusal.BUSY
        assert caught.value.retry_after
        return caught.value.detail


def test_a_written_reply_no_longer_counts() -> None:
    scene = Scene()
    ends = [scene.add(peer, 20, 0.0) for peer in (A1, A1, A2, B1)]
    assert scene.replies.size == 80
    for each in ends:
        each()
    assert scene.replies.size == 0
    assert not scene.replies._networks


def test_a_connection_has_a_limit_of_its_own() -> None:
    scene = Scene()
    scene.add(A1, 40, 0.0)
    assert scene.refused(A1, 21, 0.0) == "the caller has not read earlier replies"
    scene.replies.check(A1)
    scene.add(A1, 20, 0.0)
    with pytest.raises(Refused, match="the caller has not read earlier replies"):
        scene.replies.check(A1)
    scene.replies.check(A2)
    scene.add(A2, 40, 0.0)
    assert not scene.cut


def test_a_single_reply_may_be_larger() -> None:
    scene = Scene()
    end = scene.add(A1, 90, 0.0)
    scene.refused(A1, 1, 0.0)
    end()
    scene.add(A1, 1, 0.0)


def test_a_reply_above_the_total_limit_is_written_alone() -> None:
    """An analyst may ask for as much, and nobody is cut for it."""
    scene = Scene()
    end = scene.add(A1, 10, 0.0)
    assert scene.refused(B1, 300, 5.0) == "too many replies are unread"
    end()
    scene.add(B1, 300, 5.0)
    assert not scene.cut


def test_the_network_with_the_most_loses_the_connection_that_has_waited_longest() -> None:
    scene = Scene()
    scene.add(B1, 30, 0.0)
    scene.add(A1, 30, 1.0)
    scene.add(A2, 30, 2.0)
    scene.add(C1, 30, 2.0)
    assert scene.cut == [A1]
    assert scene.replies.size == 120  # what the connection holds is held until it has ended


def test_a_connection_that_is_being_cut_gets_no_replies() -> None:
    scene = Scene()
    end = scene.add(A1, 30, 0.0)
    scene.replies.cut(A1)
    scene.replies.cut(A1)
    assert scene.cut == [A1]
    scene.refused(A1, 1, 0.0)
    with pytest.raises(Refused):
        scene.replies.check(A1)
    end()
    scene.add(A1, 1, 0.0)  # another one, which has the same port


def test_of_its_own_network_a_caller_displaces_only_those_that_have_waited() -> None:
    scene = Scene()
    scene.add(A1, 60, 0.0)
    assert scene.refused(A2, 60, 0.1) == "too many replies are unread"
    assert not scene.cut
    scene.add(A2, 60, 1.0)
    assert scene.cut == [A1]


def test_a_connection_that_is_cut_for_its_own_reply_gets_nothing() -> None:
    scene = Scene()
    scene.add(A1, 30, 0.0)
    scene.add(A2, 50, 0.5)
    scene.refused(A1, 25, 1.0)
    assert scene.cut == [A1]


def test_connections_that_are_being_cut_hold_a_bounded_memory() -> None:
    """Memory is bounded also where connections take their time to end."""
    scene = Scene()
    added = 0
    for number in range(20):
        try:
            scene.add(Peer("a", number + 1), 50, float(number))
        except Refused:
            continue
        added += 1
    assert added == 4
    assert scene.replies.size == 200


def test_refusals_are_counted_and_never_refused() -> None:
    scene = Scene(40_000, 20_000)
    ends = [scene.replies.add_refusal(A1) for _ in range(3)]
    assert scene.replies.size > 40_000
    assert not scene.cut
    scene.now = 1.0
    ends.append(scene.replies.add_refusal(A2))
    assert scene.cut == [A1]
    for each in ends:
        each()
    assert scene.replies.size == 0


def test_connections_that_cannot_be_distinguished_are_not_cut() -> None:
    """All of a Unix socket look the same."""
    scene = Scene()
    unix = Peer("unix")
    scene.add(unix, 60, 0.0)
    scene.replies.cut(unix)
    assert scene.refused(B1, 50, 5.0) == "too many replies are unread"
    assert not scene.cut
