"""Traces: what they hold."""

import datetime as dt
import gzip
import random
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client.apps.messages import check_label
from reticent_client.habits import frames
from reticent_client.habits.frames import traces_from_frame
from reticent_client.habits.learning import learn
from reticent_client.habits.sampling import DatedDay, Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.habits.traces import PLACEHOLDERS, Reading, Traces
from reticent_client.mask.limits import MAX_LABEL
from tests.client.habits.trace_files import GOOD, written

UTC = dt.UTC


def test_from_a_file_to_a_chain(tmp_path: Path) -> None:
    """All that a user of the library does."""
    rows = [f"ada,2027-03-{day:02}T{hour:02}:00,{'work' if hour in range(9, 17) else 'home'}" for day in range(1, 29)
            for hour in range(24)]  # fmt: skip
    path = written(tmp_path, "\n".join(["user,time,context", *rows]))
    traces = read_traces(path)
    days = Sampling(dt.timedelta(hours=3), lead=dt.timedelta()).days(traces, "ada").days
    habits = learn(days)
    assert habits.chain.contexts == ("home", "work")
    assert habits.evaluation is not None
    assert (habits.evaluation.days, habits.evaluation.off_model) == (14, 0)


def test_readings_stand_in_order_of_time_and_instants_are_compared_as_such(tmp_path: Path) -> None:
    traces = read_traces(written(tmp_path, GOOD), zone="Europe/Paris")
    assert traces.users == ("ada", "bob")
    assert len(traces) == 4
    assert traces.of_user("ada") == (
        Reading(dt.datetime(2027, 3, 1, 7, tzinfo=UTC), "home"),
        Reading(dt.datetime(2027, 3, 1, 9, tzinfo=UTC), "work"),
        Reading(dt.datetime(2027, 3, 1, 10, tzinfo=UTC), None),
    )


def test_a_gzipped_file_a_byte_order_mark_other_columns_and_empty_lines_are_read(tmp_path: Path) -> None:
    plain = read_traces(written(tmp_path, GOOD), zone="UTC")
    text = "\ufeffcontext,lat,user,time\n\nhome,1,bob,2027-03-01 08:00Z\r\nhome,,ada,20270301T070000Z\n"
    text += '"work",2,ada,2027-03-01T09:00Z\n\n,3,ada,2027-03-01T10:00:00.000Z\n\n'
    assert read_traces(written(tmp_path, gzip.compress(text.encode()), "t.csv.gz"), zone="UTC") == plain


@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_and_equal_rows_count_once(rng: random.Random) -> None:
    rows: list[tuple[str, dt.datetime | str, str | None]]
    rows = [(user, f"2027-03-01T{hour:02}:30", label) for user in "ab" for hour, label in enumerate(["x", None, "y"])]
    shuffled = rows * 2
    rng.shuffle(shuffled)
    assert Traces.of(shuffled) == Traces.of(rows)


def test_local_times_are_those_of_the_zone_and_the_first_of_a_repeated_hour() -> None:
    """In Paris 02:30 came twice on the last Sunday of October 2027."""
    (reading,) = Traces.of([("a", "2027-10-31T02:30", "x")], zone="Europe/Paris").of_user()
    assert reading.time == dt.datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    (reading,) = Traces.of([("a", "2027-10-31T02:30", "x")]).of_user()
    assert reading.time == dt.datetime(2027, 10, 31, 2, 30, tzinfo=UTC)


def test_white_space_around_a_context_is_no_part_of_it() -> None:
    """As for `serve`, which reads contexts line by line; nothing else is a reading of nothing."""
    rows = [
        ("a", "2027-03-01T08:00", " home\t"),
        ("a", "2027-03-01T09:00", "  "),
        ("a", "2027-03-01T10:00", "the lake"),
    ]
    traces = Traces.of(rows)
    assert [reading.context for reading in traces.of_user()] == ["home", None, "the lake"]
    assert traces_from_frame(pd.DataFrame(rows, columns=["user", "time", "context"])) == traces
    days = pd.DataFrame({"day": [dt.date(2027, 3, 1)] * 3, "step": [0, 1, 2], "context": [" home\t", "  ", "the lake"]})
    assert frames.days_from_frame(days) == [DatedDay(dt.date(2027, 3, 1), ("home", None, "the lake"))]


@given(
    st.text(max_size=2 * MAX_LABEL) | st.text("éx", min_size=60, max_size=70) | st.sampled_from(sorted(PLACEHOLDERS))
)
def test_what_traces_hold_can_be_told_to_apps(label: str) -> None:
    """A label that is not refused fits the wire, as long as one may be."""
    try:
        (reading,) = Traces.of([("a", "2027-03-01T08:00", label)]).of_user()
    except ValueError:
        assert not label.isprintable() or len(label.strip().encode()) > MAX_LABEL
        return
    is_missing = label.strip().lower() in {"", *PLACEHOLDERS}
    assert reading.context == (None if is_missing else label.strip())
    check_label(reading.context or "")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize(
    "time", ["0002-01-01T00:00Z", "9998-12-31T23:59:59Z", "9998-12-31T11:59:59-12:00", "9999-01-01T01:00+02:00"]
)
def test_the_first_and_the_last_time_become_days(zone: str, time: str) -> None:
    """At the ends of the calendar, where some zones have run out of time."""
    traces = Traces.of([("a", time, "x")], zone=zone)
    assert len(Sampling(min_filled=0).days(traces).days) <= 1
    assert len(Sampling(dt.timedelta(minutes=1), min_filled=0).by_user(traces)) == 1


@pytest.mark.parametrize(
    ("zone", "time", "hint"),
    [
        ("Europe/Paris", "2027-10-31T02:30", True),
        ("Europe/Paris", "2027-10-31T03:00", False),
        ("Europe/Paris", "2027-03-28T03:30", False),
        ("UTC", "2027-10-31T02:30", False),
        ("Europe/Paris", "2027-10-31T02:30+02:00", False),
        (None, "2027-10-31T02:30", False),
    ],
)
def test_an_hour_that_came_twice_is_spoken_of_only_where_it_did(zone: str | None, time: str, hint: bool) -> None:
    (conflict,) = Traces.of([("a", time, "x"), ("a", time, "y")], zone=zone).ignored.conflicts
    assert (conflict.user, conflict.where) == ("a", "row 1")
    assert conflict.sentence.startswith("user 'a' is in 'x' and in 'y' at 2027-")
    assert ("twice" in conflict.sentence) == hint


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_seconds(tmp_path: Path) -> None:
    """Read, sampled and learned from; the machine's speed is left plenty of room."""
    begin = dt.datetime(2027, 1, 1, tzinfo=UTC)
    rows = [f"u{k % 20},{(begin + dt.timedelta(minutes=k)).isoformat()},p{k // 7 % 5}\n" for k in range(100_000)]
    path = written(tmp_path, "user,time,context\n" + "".join(rows))
    start = time.perf_counter()
    traces = read_traces(path, zone="Europe/Paris")
    people = Sampling(dt.timedelta(minutes=30)).by_user(traces)
    learn({user: each.days for user, each in people.items()})
    assert time.perf_counter() - start < 15
    assert len(traces) == 100_000
