"""From readings to days, through gaps and the days on which the clock jumps."""

import asyncio
import datetime as dt
from collections import defaultdict
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reticent.clock import ManualClock
from reticent_client import MarkovChain
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step
from reticent_client.habits.sampling import SampledDays, Sampling
from reticent_client.habits.traces import Traces
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from reticent_client.mask.timetable import LEAD, Timetable

AT_ONCE = dt.timedelta()
SECOND = dt.timedelta(seconds=1)
DAY, HOUR, MINUTE = dt.timedelta(days=1), dt.timedelta(hours=1), dt.timedelta(minutes=1)

JUMPS = {
    "forward in Paris": ("Europe/Paris", dt.date(2027, 3, 28)),
    "back in Paris": ("Europe/Paris", dt.date(2027, 10, 31)),
    "forward in New York": ("America/New_York", dt.date(2027, 3, 14)),
    "back in New York": ("America/New_York", dt.date(2027, 11, 7)),
    "back by half an hour": ("Australia/Lord_Howe", dt.date(2027, 4, 4)),
    "forward by half an hour": ("Australia/Lord_Howe", dt.date(2027, 10, 3)),
}


def sampled(sampling: Sampling, *rows: tuple[str, str | None], zone: str | None = None) -> SampledDays:
    """The days of a user's readings."""
    return sampling.days(Traces.of([("a", time, label) for time, label in rows], zone=zone))


def ticking(zone: str, date: dt.date) -> Traces:
    """A reading every ten minutes of real time, from the day before to the day after: what the clock shows."""
    begin = dt.datetime.combine(date - DAY, dt.time(), ZoneInfo(zone)).astimezone(dt.UTC)
    instants = [begin + 10 * MINUTE * k for k in range(3 * 24 * 6)]
    return Traces.of([("a", at, f"{at.astimezone(ZoneInfo(zone)):%H:%M %z}") for at in instants], zone=zone)


def test_a_step_has_what_was_read_last_when_it_began() -> None:
    """Without a lead a reading at its very beginning counts; one a moment later does not, nor one as old as `hold`."""
    rows = [("2027-03-01T00:00", "a"), ("2027-03-01T06:00", "b"), ("2027-03-01T12:00:01", "c")]
    (day,) = sampled(Sampling(6 * HOUR, lead=AT_ONCE), *rows).days
    assert day.labels == ("a", "b", None, "c")
    (day,) = sampled(Sampling(6 * HOUR, hold=6 * HOUR + SECOND, lead=AT_ONCE), *rows).days
    assert day.labels == ("a", "b", "b", "c")
    (day,) = sampled(Sampling(6 * HOUR, hold=SECOND, min_filled=0, lead=AT_ONCE), *rows).days
    assert day.labels == ("a", "b", None, None)


@pytest.mark.parametrize("lead", [None, SECOND, HOUR])
def test_a_step_is_decided_a_moment_before_it_begins(lead: dt.timedelta | None) -> None:
    """By the last reading until then, and its age then; a second, unless said otherwise."""
    sampling = Sampling(6 * HOUR, hold=2 * HOUR, min_filled=0, **({} if lead is None else {"lead": lead}))
    decided = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC) - (lead or SECOND)
    tick = dt.timedelta(microseconds=1)
    for read, counts in (
        (decided, True),
        (decided + tick, False),
        (decided - 2 * HOUR + tick, True),
        (decided - 2 * HOUR, False),
    ):
        found = sampled(sampling, (read.replace(tzinfo=None).isoformat(), "a"), ("2027-03-01T00:00", "b")).days
        assert [day.labels[2] for day in found] == (["a"] if counts else [None] * len(found))


ALL = ("a", "b")


def open_policy(horizon: int) -> VectorPolicy:
    """Releases whatever it is asked for."""
    chain = MarkovChain.uniform(ALL, horizon)
    shape = (horizon, len(ALL))
    return VectorPolicy(Provenance("open", chain, np.full(shape, 0.5), (chain,), float(horizon)), np.zeros(shape))


async def lived(sampling: Sampling, traces: Traces, begin: dt.datetime, end: dt.datetime) -> dict[dt.date, list[Step]]:
    """What a phone makes of the readings as they come, step by step."""
    steps_of: dict[dt.date, list[Step]] = defaultdict(list)
    clock = ManualClock(begin)
    async with MaskRunner(
        open_policy(sampling.horizon),
        zone=traces.zone,
        clock=clock,
        hold=sampling.hold,
        first_day=True,
        on_step=lambda step: steps_of[step.date].append(step),
    ) as phone:
        for reading in traces.of_user():
            await clock.move_to(reading.time)
            phone.sense(reading.context)
        await clock.move_to(end)
    return steps_of


@given(
    st.sampled_from(["forward in Paris", "back in Paris"]),
    st.sampled_from([4, 24, 48]),
    st.none() | st.sampled_from([SECOND, 20 * MINUTE, HOUR, 5 * HOUR]),
    st.data(),
)
def test_a_phone_that_lives_the_readings_has_the_same_contexts(
    jump: str, horizon: int, hold: dt.timedelta | None, data: st.DataObject
) -> None:
    """Step by step, near the moments at which steps are decided and far from them, where the clock jumps and before."""
    zone, date = JUMPS[jump]
    timetable = Timetable(horizon, ZoneInfo(zone))
    decided = [at - LEAD for day in (date - DAY, date, date + DAY) for at in timetable.day(day) if at is not None]
    near = st.sampled_from([-1.5, -1.0, -0.001, 0.001, 0.999, 1.0, 1.001]).map(lambda s: dt.timedelta(seconds=s))
    age = st.sampled_from([AT_ONCE, timetable.step if hold is None else hold])
    edges = st.tuples(st.sampled_from(decided[1:-1]), age, near | st.just(AT_ONCE)).map(lambda d: d[0] - d[1] + d[2])
    anywhere = st.datetimes(
        decided[0].replace(tzinfo=None), decided[-1].replace(tzinfo=None), timezones=st.just(dt.UTC)
    )
    times = data.draw(st.lists(edges | anywhere, min_size=1, max_size=40, unique=True))
    new = [
        at for at in sorted(times) if at > decided[0] and at not in decided
    ]  # where phone and reading tie, chance rules
    read = {at: data.draw(st.sampled_from([*ALL, None])) for at in new}
    assume(read)
    traces = Traces.of([("a", at, label) for at, label in read.items()], zone=zone)
    sampling = Sampling(DAY / horizon, hold=hold, min_filled=0)
    found = {day.date: list(day.labels) for day in sampling.days(traces).days}
    steps_of = asyncio.run(lived(sampling, traces, decided[0] - HOUR, decided[-1] + MINUTE))
    for each in {timetable.date(at) for at in read}:
        labels: list[str | None] = [None] * horizon
        for step in steps_of[each]:
            labels[step.step] = step.context
        assert found.get(each, [None] * horizon) == labels


@given(st.lists(st.lists(st.sampled_from(["a", "b", None]), min_size=8, max_size=8), min_size=1, max_size=4))
def test_days_read_once_a_step_are_had_again(days: list[list[str | None]]) -> None:
    """A reading that is missing stays missing: the one before it does not fill in."""
    rows = [
        (f"2027-03-{number:02}T{3 * step:02}:00", label)
        for number, day in enumerate(days, start=1)
        for step, label in enumerate(day)
        if label is not None
    ]
    assume(rows)
    found = sampled(Sampling(3 * HOUR, min_filled=0, lead=AT_ONCE), *rows).days
    assert [list(day.labels) for day in found] == [day for day in days if any(day)]


def test_a_reading_of_nothing_ends_what_was_read_before() -> None:
    (day,) = sampled(Sampling(6 * HOUR, hold=DAY), ("2027-03-01T01:00", "a"), ("2027-03-01T13:00", None)).days
    assert day.labels == (None, "a", "a", None)


def test_a_reading_of_yesterday_evening_counts_in_the_morning() -> None:
    days = sampled(Sampling(12 * HOUR), ("2027-03-01T11:00", "a"), ("2027-03-01T20:00", "b"), ("2027-03-02T11:00", "c"))
    assert [day.labels for day in days.days] == [(None, "a"), ("b", "c")]


def test_days_without_readings_and_with_too_few_are_left_out() -> None:
    rows = [("2027-03-01T00:00", "a"), ("2027-03-03T00:00", "a"), ("2027-03-03T06:00", "a"), ("2027-03-05T23:00", "a")]
    half = sampled(Sampling(6 * HOUR, hold=HOUR, min_filled=0.5, lead=AT_ONCE), *rows)
    assert [day.date.day for day in half.days] == [3]
    assert half.left_out == 4
    every = sampled(Sampling(6 * HOUR, hold=HOUR, min_filled=0, lead=AT_ONCE), *rows)
    assert [day.date.day for day in every.days] == [1, 3]  # on the 5th no step began after the reading
    assert every.left_out == 3


def test_everybody_is_sampled_as_they_are_alone() -> None:
    traces = Traces.of([(user, f"2027-03-0{day}T08:00", user) for user in "ab" for day in (1, 2)])
    sampling = Sampling(8 * HOUR, min_filled=0)
    assert sampling.by_user(traces) == {user: sampling.days(traces, user) for user in "ab"}


def test_local_days_are_those_of_the_zone() -> None:
    """Half past eleven at night in London is the next day in Paris."""
    (day,) = sampled(Sampling(HOUR, min_filled=0), ("2027-03-01T23:30Z", "a"), zone="Europe/Paris").days
    assert (day.date, day.labels.index("a")) == (dt.date(2027, 3, 2), 1)


@pytest.mark.parametrize(
    ("jump", "shown"),
    [
        ("forward in Paris", {3: "01:30 +0100", 4: None, 5: None, 6: "03:00 +0200"}),
        ("back in Paris", {3: "01:30 +0200", 4: "02:00 +0200", 5: "02:30 +0200", 6: "03:00 +0100"}),
        ("forward in New York", {3: "01:30 -0500", 4: None, 5: None, 6: "03:00 -0400"}),
        ("back in New York", {1: "00:30 -0400", 2: "01:00 -0400", 3: "01:30 -0400", 4: "02:00 -0500"}),
        ("forward by half an hour", {3: "01:30 +1030", 4: None, 5: "02:30 +1100", 6: "03:00 +1100"}),
        ("back by half an hour", {2: "01:00 +1100", 3: "01:30 +1100", 4: "02:00 +1030", 5: "02:30 +1030"}),
    ],
)
def test_where_the_clock_jumps_a_skipped_step_is_a_gap_and_a_repeated_one_keeps_its_first_visit(
    jump: str, shown: dict[int, str | None]
) -> None:
    """Half hours; all others hold what the clock showed when they began."""
    zone, date = JUMPS[jump]
    (day,) = (day for day in Sampling(30 * MINUTE, lead=AT_ONCE).days(ticking(zone, date)).days if day.date == date)
    assert {t: day.labels[t] for t in shown} == shown
    for t, label in enumerate(day.labels):
        assert label is None if t in shown and shown[t] is None else label is not None
        assert label is None or label.startswith(f"{t // 2:02}:{t % 2 * 30:02}")


@given(
    st.sampled_from(sorted(JUMPS)),
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48, 96]),
    st.lists(st.tuples(st.integers(0, 3 * 24 * 60), st.sampled_from(["a", "b", None])), min_size=1, max_size=30),
    st.integers(1, 24 * 60),
    st.integers(0, 14),
)
def test_days_are_as_a_look_at_each_minute_would_have_them(
    jump: str, horizon: int, readings: list[tuple[int, str | None]], hold: int, lead: int
) -> None:
    """A walk through three days minute by minute, with no thought of zones but what the clock shows."""
    zone, date = JUMPS[jump]
    begin = dt.datetime.combine(date - DAY, dt.time(), ZoneInfo(zone)).astimezone(dt.UTC)
    read = dict(readings)
    traces = Traces.of([("a", begin + MINUTE * minute, label) for minute, label in read.items()], zone=zone)
    found = Sampling(DAY / horizon, hold=hold * MINUTE, min_filled=0, lead=lead * MINUTE).days(traces)
    wanted: dict[dt.date, dict[int, str | None]] = {}
    for minute in range(-2 * 60, 4 * 24 * 60):
        local = (begin + MINUTE * minute).astimezone(ZoneInfo(zone))
        minutes = local.hour * 60 + local.minute
        if minutes % (24 * 60 // horizon) == 0:
            last = max((at for at in read if at <= minute - lead), default=None)
            label = None if last is None or minute - lead - last >= hold else read[last]
            wanted.setdefault(local.date(), {}).setdefault(minutes * horizon // (24 * 60), label)
    dates = {reading.time.astimezone(ZoneInfo(zone)).date() for reading in traces.of_user()}
    expected = {each: tuple(map(wanted[each].get, range(horizon))) for each in sorted(dates)}
    assert {day.date: day.labels for day in found.days} == {
        each: labels for each, labels in expected.items() if any(labels)
    }
    assert found.left_out == (max(dates) - min(dates)).days + 1 - len(found.days)
    assert all(one.date < other.date for one, other in pairwise(found.days))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"step": dt.timedelta(minutes=50)}, "a step must divide 24 hours, and last a second at least: got 0:50:00"),
        ({"step": dt.timedelta()}, "a step must divide"),
        ({"step": -HOUR}, "a step must divide"),
        ({"step": 2 * DAY}, "a step must divide"),
        ({"step": dt.timedelta(milliseconds=1)}, "a step must divide"),
        ({"step": 30}, "step must be a timedelta: got 30"),
        ({"hold": 30}, "hold must be a timedelta: got 30"),
        ({"hold": -HOUR}, "hold must lie between nothing and 24 hours"),
        ({"hold": 2 * DAY}, "hold must lie between nothing and 24 hours: got 2 days"),
        ({"lead": 1}, "lead must be a timedelta: got 1"),
        ({"lead": -SECOND}, "the lead must be shorter than a step of 1:00:00: got -1 day"),
        ({"lead": HOUR}, "the lead must be shorter than a step of 1:00:00: got 1:00:00"),
        ({"step": SECOND}, "the lead must be shorter than a step of 0:00:01: got 0:00:01"),
        ({"min_filled": 1.5}, "min_filled is a share, between 0 and 1: got 1.5"),
        ({"min_filled": float("nan")}, "min_filled is a share"),
    ],
)
def test_bad_arguments_are_one_error(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Sampling(**arguments)  # type: ignore[arg-type]
