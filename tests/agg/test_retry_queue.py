"""Whose turn it is: what fails waits alone."""

from __future__ import annotations

from reticent.retry import Backoff
from reticent_agg.retry_queue import Turns


def test_pauses_are_twice_as_long_each_time_within_their_bounds() -> None:
    turns = Turns[str]()
    pauses = [turns.failed("a", now, Backoff(1.0, 5.0)) for now in (0.0, 10.0, 20.0, 30.0)]
    assert pauses == [1.0, 2.0, 4.0, 5.0]
    assert turns.left(33.0) == 2.0
    assert turns.left(99.0) == 0.0
    turns.forget("a")
    assert turns.failed("a", 40.0, Backoff(1.0, 5.0)) == 1.0


def test_what_fails_keeps_nothing_else_waiting_and_comes_last() -> None:
    turns = Turns[str]()
    for _ in range(2):
        turns.failed("a", 0.0, Backoff(1.0, 9.0))
    turns.failed("b", 0.0, Backoff(1.0, 9.0))
    assert turns.due("abcd", 0.5) == ["c", "d"]
    assert turns.due("abcd", 9.0) == ["c", "d", "b", "a"]


def test_what_is_wanted_no_more_is_forgotten() -> None:
    turns = Turns[str]()
    turns.failed("a", 0.0, Backoff(1.0, 9.0))
    assert "a" in turns
    assert turns.due("b", 0.0) == ["b"]
    assert "a" not in turns
    assert turns.left(0.0) is None
