"""When phones are on: files with intervals, and the gaps of traces."""

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.console import program
from reticent_client.habits.trace_files import read_traces
from reticent_sim.engine.faults import FaultSchedule, Moment
from reticent_sim.engine.faults.intervals import (
    START,
    Interval,
    absences,
    intervals_of,
    read_intervals,
    write_intervals,
)

TEXT = """phone,on,off
0,2027-01-04T08:00,2027-01-04T20:30
0,2027-01-05T00:00:00,2027-01-06T00:00

2,2026-12-31T00:00,2027-01-04T05:00
"""


def test_a_phone_is_absent_in_the_steps_in_which_it_is_never_on() -> None:
    schedule = FaultSchedule(tuple(absences(read_intervals(TEXT), phones=3, days=2)))
    schedule.check(phones=3, days=2)
    present = {
        phone: [
            day * 24 + step
            for day in range(2)
            for step in range(24)
            if not schedule.of_phone(phone).is_absent(Moment(day, step))
        ]
        for phone in range(3)
    }
    assert present == {0: [*range(8, 21), *range(24, 48)], 1: [*range(48)], 2: [*range(5)]}
    with pytest.raises(ValueError, match="the run has phones 0 to 1: got an interval of phone 2"):
        absences(read_intervals(TEXT), phones=2, days=2)


minutes = st.integers(-3000, 6000)


@given(st.lists(st.tuples(st.integers(0, 3), minutes, st.integers(1, 2000)), max_size=8))
def test_intervals_survive_their_text_and_cover_exactly_the_steps_that_they_touch(
    rows: list[tuple[int, int, int]],
) -> None:
    intervals = [
        Interval(phone, START + dt.timedelta(minutes=on), START + dt.timedelta(minutes=on + long))
        for phone, on, long in rows
    ]
    assert read_intervals(write_intervals(intervals)) == intervals
    schedule = FaultSchedule(tuple(absences(intervals, phones=4, days=3)))
    for phone in range(4):
        own = [(on, on + long) for number, on, long in rows if number == phone]
        for step in range(72):
            touched = any(on < 60 * (step + 1) and off > 60 * step for on, off in own)
            is_absent = schedule.of_phone(phone).is_absent(Moment(step // 24, step % 24))
            assert is_absent == (bool(own) and not touched)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0,2027-01-04T08:00", "a line has 3 fields: got 2"),
        ("-1,2027-01-04T08:00,2027-01-04T09:00", "a phone is a whole number from 0: got '-1'"),
        ("0,8:00,9:00", "a time is local, such as 2027-01-04T08:30: got '8:00'"),
        ("0,2027-01-04T08:00Z,2027-01-04T09:00Z", "a time is local, such as"),
        ("0,2027-01-04T09:00,2027-01-04T09:00", "a phone is on before it is off"),
        ('0,"2027-01-04T09:00', "unexpected end of data"),
    ],
)
def test_a_line_that_is_no_interval_is_refused_with_its_number(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^on\.csv:3: ") as caught:
        read_intervals(f"phone,on,off\n0,2027-01-04T08:00,2027-01-04T09:00\n{line}\n", "on.csv")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "user,on,off\n"])
def test_a_file_without_the_header_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^intervals:1: the first line must be phone,on,off: got "):
        read_intervals(text)


TRACES = """user,time,context
bob,2024-05-08T10:00+02:00,home
bob,2024-05-08T11:30+02:00,work
bob,2024-05-08T13:31+02:00,work
bob,2024-05-08T14:00+02:00,
ada,2024-05-13T00:10+02:00,home
"""


def test_the_gaps_of_traces_become_the_times_at_which_phones_are_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The users are sorted, and the week of the first reading is the first week."""
    traces, output = tmp_path / "traces.csv", tmp_path / "on.csv"
    traces.write_text(TRACES)
    arguments = ["experiment", "intervals", str(traces), "-o", str(output), "--zone", "Europe/Paris"]
    assert program.main(arguments) == 0
    assert capsys.readouterr().out == f"2 phones, 3 intervals in 5 days, written to {output}\n"
    assert output.read_text() == (
        "phone,on,off\n"
        "0,2027-01-11T00:10:00,2027-01-11T00:11:00\n"  # the second Monday
        "1,2027-01-06T10:00:00,2027-01-06T11:31:00\n"
        "1,2027-01-06T13:31:00,2027-01-06T13:32:00\n"
    )
    found = intervals_of(read_traces(traces, zone="Europe/Paris"), dt.timedelta(minutes=121))
    assert [each.phone for each in found] == [0, 1]
    traces.write_text("".join(TRACES.splitlines(keepends=True)[:2]))
    assert program.main(arguments) == 0
    assert capsys.readouterr().out == f"1 phone, 1 interval in 1 day, written to {output}\n"


def test_the_slots_of_a_table_are_on_until_they_end(tmp_path: Path) -> None:
    traces = tmp_path / "slots.csv"
    traces.write_text("user,day,slot,context\nada,0,23,home\nada,1,0,home\nada,1,5,work\n")
    found = intervals_of(read_traces(traces), dt.timedelta(hours=1))
    hour = dt.timedelta(hours=1)
    assert found == [
        Interval(0, START + 23 * hour, START + 25 * hour),
        Interval(0, START + 29 * hour, START + 30 * hour),
    ]
