"""The queue of retries: what fails waits alone."""

from __future__ import annotations

from reticent.retry import Backoff
from reticent_agg.retry_queue import RetryQueue

FAST, SLOW = (Backoff(1.0, limit, random=lambda: 1.0) for limit in (5.0, 9.0))


def test_pauses_are_twice_as_long_each_time_within_their_bounds() -> None:
    queue = RetryQueue[str]()
    pauses = [queue.failed("a", now, FAST) for now in (0.0, 10.0, 20.0, 30.0)]
    assert pauses == [1.0, 2.0, 4.0, 5.0]
    assert queue.next_due(33.0) == 2.0
    assert queue.next_due(99.0) == 0.0
    queue.forget("a")
    assert queue.failed("a", 40.0, FAST) == 1.0


def test_what_fails_keeps_nothing_else_waiting_and_comes_last() -> None:
    queue = RetryQueue[str]()
    for _ in range(2):
        queue.failed("a", 0.0, SLOW)
    queue.failed("b", 0.0, SLOW)
    assert queue.due("abcd", 0.5) == ["c", "d"]
    assert queue.due("abcd", 9.0) == ["c", "d", "b", "a"]


def test_what_is_wanted_no_more_is_forgotten() -> None:
    queue = RetryQueue[str]()
    queue.failed("a", 0.0, SLOW)
    assert "a" in queue
    assert queue.due("b", 0.0) == ["b"]
    assert "a" not in queue
    assert queue.next_due(0.0) is None


def test_an_item_waits_as_long_as_the_server_asks_within_the_limit() -> None:
    queue = RetryQueue[str]()
    assert queue.failed("a", 0.0, FAST, retry_after=3.0) == 3.0
    assert queue.due("a", 2.9) == []
    assert queue.due("a", 3.0) == ["a"]
    assert queue.failed("a", 3.0, FAST, retry_after=1e9) == 5.0
    assert queue.failed("a", 8.0, FAST, retry_after=0.1) == 4.0
