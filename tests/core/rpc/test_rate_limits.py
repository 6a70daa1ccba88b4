"""The rate limit of each caller."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.rpc import RateLimit, RateLimits


def test_some_calls_at_once_and_then_one_after_the_other() -> None:
    rates = RateLimits(RateLimit(per_second=2.0, burst=3.0), 10)
    assert [rates.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rates.take("a", 0.25) == 0.25
    assert rates.take("a", 0.5) == 0.0
    assert rates.take("b", 0.5) == 0.0  # the others have their own
    assert [rates.take("a", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]  # never more than the burst


def test_a_caller_that_waits_for_the_retry_delay_may_call() -> None:
    rates = RateLimits(RateLimit(per_second=0.3, burst=1.0), 10)
    now = 0.0
    for _ in range(100):
        wait = rates.take("a", now)
        if wait:
            now += wait * (1 + 1e-9)
            assert rates.take("a", now) == 0.0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 2)), max_size=200))
def test_no_caller_exceeds_its_rate(steps: list[tuple[int, float]]) -> None:
    """In any stretch of time, no more than the burst and what the stretch brings."""
    rate = RateLimit(per_second=1.5, burst=4.0)
    rates, now = RateLimits(rate, 10), 0.0
    taken: dict[int, list[float]] = {}
    for caller, pause in steps:
        now += pause
        if rates.take(caller, now) == 0.0:
            taken.setdefault(caller, []).append(now)
    for times in taken.values():
        for first, begin in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= rate.burst + (times[last] - begin) * rate.per_second + 1e-6


def test_a_flood_of_callers_takes_a_bounded_memory() -> None:
    """Those that called least lately are forgotten, the others are not."""
    rates = RateLimits(RateLimit(per_second=1.0, burst=1.0), 1000)
    for caller in range(1000):
        rates.take(str(caller), 0.0)
    size = sys.getsizeof(rates._left)
    for caller in range(50_000):
        rates.take(f"stranger {caller}", 0.0)
        rates.take("999", 0.0)
    assert len(rates._left) == 1000
    assert sys.getsizeof(rates._left) <= 2 * size
    assert rates.take("999", 0.0) > 0
    assert rates.take("0", 0.0) == 0.0


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.5), (float("nan"), 1.0), (1.0, float("nan"))])
def test_a_rate_allows_at_least_one_call(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="a rate allows more than 0 calls a second"):
        RateLimit(*wrong)
