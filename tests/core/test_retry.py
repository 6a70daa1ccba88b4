"""How long to wait before the next attempt, and when to give up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent.retry import Attempts, Backoff

SECONDS = st.floats(0, 1e12)


def exact(first: float, limit: float, retry_after_limit: float | None = None) -> Backoff:
    """Without jitter."""
    return Backoff(first, limit, retry_after_limit, random=lambda: 1.0)


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 10**6), st.none() | SECONDS, st.integers(0, 99))
def test_a_delay_is_within_its_bounds(failures: int, retry_after: float | None, seed: int) -> None:
    backoff = Backoff(first=2.0, limit=600.0, random=seeded(seed).random)
    delay = backoff.delay(failures, retry_after)
    whole = min(600.0, 2.0 * 2.0 ** min(failures - 1, 30))
    assert whole / 2 <= delay <= max(whole, min(600.0, retry_after or 0.0))
    assert delay >= min(600.0, retry_after or 0.0)


@given(st.integers(1, 99), SECONDS)
def test_a_server_may_ask_for_more_than_the_limit_where_that_is_allowed(failures: int, retry_after: float) -> None:
    backoff = exact(first=1.0, limit=5.0, retry_after_limit=60.0)
    assert backoff.delay(failures, retry_after) == max(backoff.delay(failures), min(60.0, retry_after))


def test_delays_double_up_to_the_limit() -> None:
    backoff = exact(first=0.1, limit=1.0)
    assert [backoff.delay(failures) for failures in (1, 2, 3, 4, 5, 10**9)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_two_callers_do_not_retry_together() -> None:
    """Whoever they are: nobody has to ask for jitter."""
    one, other = Backoff(first=1.0, limit=8.0), Backoff(first=1.0, limit=8.0)
    delays = [one.delay(4) for _ in range(20)] + [other.delay(4) for _ in range(20)]
    assert len(set(delays)) == 40
    assert all(4.0 <= delay <= 8.0 for delay in delays)


def test_two_seeded_phones_do_not_retry_together() -> None:
    one, other = (Backoff(random=seeded(1, "phone", number).random) for number in range(2))
    assert one.delay(5) != other.delay(5)
    assert one.spread(60.0) != other.spread(60.0)
    assert 60.0 <= one.spread(60.0) <= 66.0


def test_delays_take_no_randomness_from_the_noise() -> None:
    noise = seeded(1, "noise")
    Backoff(random=seeded(1, "delays").random).delay(3)
    assert noise.random() == seeded(1, "noise").random()


@pytest.mark.parametrize(("first", "limit"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_a_backoff_has_a_positive_delay_within_its_limit(first: float, limit: float) -> None:
    with pytest.raises(ValueError, match="first delay is positive and within its limit"):
        Backoff(first, limit)


def test_the_last_attempt_is_at_the_deadline() -> None:
    now = Time()
    attempts = Attempts(exact(first=0.1, limit=1.0), now=now, timeout=1.0)
    delays: list[float] = []
    while (delay := attempts.failed()) is not None:
        assert len(delays) < 9, delays
        delays.append(delay)
        now.now += delay
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.3])
    assert attempts.failures == 5
    assert attempts.elapsed == pytest.approx(1.0)


def test_a_server_that_asks_to_wait_beyond_the_deadline_is_not_called_again() -> None:
    attempts = Attempts(exact(first=1.0, limit=8.0), now=Time(), timeout=5.0)
    assert attempts.failed(retry_after=4.0) == 4.0
    assert attempts.failed(retry_after=6.0) is None


@given(st.lists(st.tuples(st.floats(0, 5), st.none() | st.floats(0, 100)), max_size=50), st.floats(0.1, 100))
def test_no_attempt_begins_after_the_deadline(calls: list[tuple[float, float | None]], timeout: float) -> None:
    now = Time()
    attempts = Attempts(Backoff(first=0.5, limit=30.0, random=seeded(1).random), now=now, timeout=timeout)
    for duration, retry_after in calls:
        now.now += duration
        delay = attempts.failed(retry_after)
        if delay is None:
            break
        now.now += delay
        assert now.now <= 100.0 + timeout + 1e-9


def test_a_success_starts_again() -> None:
    now = Time()
    attempts = Attempts(exact(first=1.0, limit=8.0), now=now, timeout=5.0)
    assert [attempts.failed(), attempts.failed()] == [1.0, 2.0]
    now.now += 4.5
    assert attempts.failed() == 0.5
    now.now += 0.5
    assert attempts.failed() is None
    attempts.succeeded()
    now.now += 1000.0  # an operation that lasts, such as a stream
    assert (attempts.failures, attempts.left) == (0, 5.0)
    assert attempts.failed() == 1.0
    now.now += 5.0
    assert attempts.failed() is None


def test_attempts_without_a_deadline_go_on() -> None:
    now = Time()
    attempts = Attempts(exact(first=1.0, limit=8.0), now=now)
    now.now += 1e9
    assert attempts.failed(retry_after=7.0) == 7.0
