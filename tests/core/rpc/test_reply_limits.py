"""Which replies are written and which connections are cut, at moments that a test chooses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reticent.protocol import Refusal, Refused
from reticent.rpc._connections import Peer
from reticent.rpc._reply_limits import ReplyLimits

A1, A2, B1, C1 = Peer("a", 1), Peer("a", 2), Peer("b", 1), Peer("c", 1)


class Replies:
    """Room for 100 bytes, 60 of one connection, and a clock."""

    def __init__(self, limit: int = 100, limit_per_connection: int = 60) -> None:
        self.now = 0.0
        self.cut: list[Peer] = []
        self.limits = ReplyLimits(limit, limit_per_connection, cut=self.cut.append, now=lambda: self.now)

    def add(self, peer: Peer, size: int, at: float) -> Callable[[], None]:
        self.now = at
        return self.limits.add(peer, size)

    def refused(self, peer: Peer, size: int, at: float) -> str:
        with pytest.raises(Refused) as caught:
            self.add(peer, size, at)
        assert caught.value.refusal is Refusal.BUSY
        assert caught.value.retry_after
        return caught.value.detail


def test_a_written_reply_no_longer_counts() -> None:
    replies = Replies()
    ends = [replies.add(peer, 20, 0.0) for peer in (A1, A1, A2, B1)]
    assert replies.limits.size == 80
    for each in ends:
        each()
    assert replies.limits.size == 0
    assert not replies.limits._networks


def test_a_connection_has_a_limit_of_its_own() -> None:
    replies = Replies()
    replies.add(A1, 40, 0.0)
    assert replies.refused(A1, 21, 0.0) == "the caller has not read earlier replies"
    replies.limits.check(A1)
    replies.add(A1, 20, 0.0)
    with pytest.raises(Refused, match="the caller has not read earlier replies"):
        replies.limits.check(A1)
    replies.limits.check(A2)
    replies.add(A2, 40, 0.0)
    assert not replies.cut


def test_a_single_reply_may_be_larger() -> None:
    replies = Replies()
    end = replies.add(A1, 90, 0.0)
    replies.refused(A1, 1, 0.0)
    end()
    replies.add(A1, 1, 0.0)


def test_a_reply_above_the_total_limit_is_written_alone() -> None:
    """An analyst may ask for as much, and nobody is cut for it."""
    replies = Replies()
    end = replies.add(A1, 10, 0.0)
    assert replies.refused(B1, 300, 5.0) == "too many replies are unread"
    end()
    replies.add(B1, 300, 5.0)
    assert not replies.cut


def test_the_network_with_the_most_loses_the_connection_that_has_waited_longest() -> None:
    replies = Replies()
    replies.add(B1, 30, 0.0)
    replies.add(A1, 30, 1.0)
    replies.add(A2, 30, 2.0)
    replies.add(C1, 30, 2.0)
    assert replies.cut == [A1]
    assert replies.limits.size == 120  # what the connection holds is held until it has ended


def test_a_connection_that_is_being_cut_gets_no_replies() -> None:
    replies = Replies()
    end = replies.add(A1, 30, 0.0)
    replies.limits.cut(A1)
    replies.limits.cut(A1)
    assert replies.cut == [A1]
    replies.refused(A1, 1, 0.0)
    with pytest.raises(Refused):
        replies.limits.check(A1)
    end()
    replies.add(A1, 1, 0.0)  # another one, which has the same port


def test_of_its_own_network_a_caller_displaces_only_those_that_have_waited() -> None:
    replies = Replies()
    replies.add(A1, 60, 0.0)
    assert replies.refused(A2, 60, 0.1) == "too many replies are unread"
    assert not replies.cut
    replies.add(A2, 60, 1.0)
    assert replies.cut == [A1]


def test_a_connection_that_is_cut_for_its_own_reply_gets_nothing() -> None:
    replies = Replies()
    replies.add(A1, 30, 0.0)
    replies.add(A2, 50, 0.5)
    replies.refused(A1, 25, 1.0)
    assert replies.cut == [A1]


def test_connections_that_are_being_cut_hold_a_bounded_memory() -> None:
    """Memory is bounded also where connections take their time to end."""
    replies = Replies()
    added = 0
    for number in range(20):
        try:
            replies.add(Peer("a", number + 1), 50, float(number))
        except Refused:
            continue
        added += 1
    assert added == 4
    assert replies.limits.size == 200


def test_refusals_are_counted_and_never_refused() -> None:
    replies = Replies(40_000, 20_000)
    ends = [replies.limits.add_refusal(A1) for _ in range(3)]
    assert replies.limits.size > 40_000
    assert not replies.cut
    replies.now = 1.0
    ends.append(replies.limits.add_refusal(A2))
    assert replies.cut == [A1]
    for each in ends:
        each()
    assert replies.limits.size == 0


def test_connections_that_cannot_be_distinguished_are_not_cut() -> None:
    """All of a Unix socket look the same."""
    replies = Replies()
    unix = Peer("unix")
    replies.add(unix, 60, 0.0)
    replies.limits.cut(unix)
    assert replies.refused(B1, 50, 5.0) == "too many replies are unread"
    assert not replies.cut
