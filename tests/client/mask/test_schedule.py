"""Which policy applies on which day."""

import datetime as dt
from typing import Any

import pytest

from reticent_client import MaskIt, Policy, Schedule, mask_sensitive
from reticent_client.mask.schedule import DAYS
from tests.client.mask import chains

MONDAY = dt.date(2026, 3, 2)


def policies(count: int) -> list[Policy]:
    """As many different policies."""
    return [mask_sensitive(chains.coin(), sensitive={"s"}) for _ in range(count)]


def week(schedule: Schedule) -> list[Policy]:
    """From Monday to Sunday."""
    return [schedule.on(MONDAY + dt.timedelta(days=k)) for k in range(7)]


def test_weekdays_and_weekends() -> None:
    """Five of the one, two of the other."""
    work, rest = policies(2)
    assert week(Schedule({"weekday": work, "weekend": rest})) == [work] * 5 + [rest] * 2


def test_the_most_specific_name_wins() -> None:
    """Whatever the order in which they are given."""
    work, rest, gym = policies(3)
    schedule = Schedule({"wednesday": gym, "weekday": work, "weekend": rest, "sunday": gym})
    assert week(schedule) == [work, work, gym, work, work, rest, gym]


def test_seven_days() -> None:
    """A policy for each."""
    each = policies(7)
    assert week(Schedule(dict(zip(DAYS, each, strict=True)))) == each


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["weekday"], "no policy for saturday, sunday"),
        (["weekend", *DAYS[1:5]], "no policy for monday"),
        ([], "no policy for monday, tuesday"),
        (["weekday", "weekend", "holiday"], "'holiday' is no day of a schedule: use weekday, weekend, monday"),
        (["Monday", "weekday", "weekend"], "'Monday' is no day of a schedule"),
    ],
)
def test_a_week_must_be_covered(names: list[str], sentence: str) -> None:
    """All of it, by names that exist."""
    (policy,) = policies(1)
    with pytest.raises(ValueError, match=sentence):
        Schedule(dict.fromkeys(names, policy))


def test_a_schedule_holds_policies() -> None:
    """And says for which name there is none."""
    (policy,) = policies(1)
    week: Any = {"weekday": policy, "weekend": 2}
    with pytest.raises(ValueError, match=r"^the schedule needs a policy for weekend: got 2$"):
        Schedule(week)


def test_a_policy_of_the_schedule_runs() -> None:
    """It is the policy itself."""
    (policy,) = policies(1)
    assert MaskIt(Schedule({"weekday": policy, "weekend": policy}).on(MONDAY)).filter_day(["x"]) == ["x"]
