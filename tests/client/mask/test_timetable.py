"""When steps begin: by local wall clock, through the days on which it jumps."""

import datetime as dt
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reticent_client.mask.timetable import DAY, Beginning, Timetable, time_zone

# A zone, and a day on which its clock does something: or does not.
JUMPS = {
    ("Europe/Paris", "2027-03-28"): "2:00 to 3:00",
    ("Europe/Paris", "2027-10-31"): "3:00 to 2:00",
    ("America/New_York", "2027-03-14"): "2:00 to 3:00",
    ("America/New_York", "2027-11-07"): "2:00 to 1:00",
    ("Australia/Lord_Howe", "2027-04-04"): "2:00 to 1:30, half an hour",
    ("Australia/Lord_Howe", "2027-10-03"): "2:00 to 2:30, half an hour",
    ("America/Sao_Paulo", "2018-11-04"): "midnight does not exist",
    ("America/Sao_Paulo", "2018-02-17"): "midnight to 23:00 of the day before",
    ("Pacific/Apia", "2011-12-30"): "does not exist",
    ("America/Nuuk", "2024-03-30"): "23:00 to midnight",
    ("Asia/Kathmandu", "1986-01-01"): "00:00 to 00:15",
    ("Europe/Dublin", "2027-10-31"): "a summer time that is the standard one",
    ("UTC", "2027-03-28"): "nothing",
}
HORIZONS = st.sampled_from([1, 2, 3, 7, 24, 48, 96, 1440]) | st.integers(1, 300)


@st.composite
def timetables(draw: st.DrawFn) -> tuple[Timetable, dt.date]:
    """A timetable, and a day near one of the jumps."""
    zone, day = draw(st.sampled_from(sorted(JUMPS)))
    return Timetable(draw(HORIZONS), time_zone(zone)), dt.date.fromisoformat(day) + draw(st.integers(-2, 2)) * DAY


def beginnings(timetable: Timetable, first: dt.date, days: int) -> list[tuple[dt.date, int, dt.datetime]]:
    """Everything that begins on these days, in the order of the steps."""
    return [
        (date, step, at)
        for date in (first + DAY * n for n in range(days))
        for step, at in enumerate(timetable.day(date))
        if at is not None
    ]


def wall(timetable: Timetable, date: dt.date, step: int) -> dt.datetime:
    """What a wall clock shows when a step begins."""
    return dt.datetime.combine(date, dt.time()) + DAY * step / timetable.horizon


@given(timetables())
def test_beginnings_increase_strictly(drawn: tuple[Timetable, dt.date]) -> None:
    timetable, date = drawn
    instants = [at for _, _, at in beginnings(timetable, date - DAY, 4)]
    assert all(earlier < later for earlier, later in pairwise(instants))


@given(timetables())
def test_a_step_begins_when_the_wall_clock_first_shows_its_time(drawn: tuple[Timetable, dt.date]) -> None:
    """The clock shows it then, and has not shown it within the three hours before."""
    timetable, date = drawn
    zone = timetable.zone
    for day, step, at in beginnings(timetable, date, 1):
        local = wall(timetable, day, step)
        assert at.astimezone(zone).replace(tzinfo=None) == local
        assert not any(
            (at - dt.timedelta(minutes=15 * k)).astimezone(zone).replace(tzinfo=None) >= local for k in range(1, 13)
        )


@given(timetables())
def test_steps_are_left_out_where_no_instant_has_their_time(drawn: tuple[Timetable, dt.date]) -> None:
    """All offsets that a zone has near the day are tried."""
    timetable, date = drawn
    middle = dt.datetime.combine(date, dt.time(12), dt.UTC)
    offsets = {(middle + dt.timedelta(hours=h)).astimezone(timetable.zone).utcoffset() for h in range(-48, 49)}
    for step, at in enumerate(timetable.day(date)):
        local = wall(timetable, date, step)
        candidates = [(local - offset).replace(tzinfo=dt.UTC) for offset in offsets if offset is not None]
        shown = any(each.astimezone(timetable.zone).replace(tzinfo=None) == local for each in candidates)
        assert (at is not None) == shown


@given(timetables(), st.timedeltas(-2 * DAY, 2 * DAY))
def test_next_and_last_are_inverse(drawn: tuple[Timetable, dt.date], offset: dt.timedelta) -> None:
    timetable, date = drawn
    instant = dt.datetime.combine(date, dt.time(12), dt.UTC) + offset
    last, following = timetable.last(instant), timetable.next(instant)
    assert last.instant <= instant < following.instant
    assert timetable.next(last.instant) == following
    assert timetable.last(following.instant) == following
    assert timetable.last(following.instant - dt.timedelta(microseconds=1)) == last
    assert timetable.begins(following.date, following.step) == following.instant


@given(timetables())
@example((Timetable(48, time_zone("America/Sao_Paulo")), dt.date(2018, 11, 4)))
def test_walking_meets_every_step_once(drawn: tuple[Timetable, dt.date]) -> None:
    """From day to day: each step begins, or was left out right before one that does; none comes twice."""
    timetable, date = drawn
    walked: list[Beginning] = [timetable.next(dt.datetime.combine(date - 2 * DAY, dt.time(), dt.UTC))]
    while walked[-1].date <= date + DAY:
        walked.append(timetable.next(walked[-1].instant))
    met = [(each.date, step) for each in walked for step in (*each.skipped, each.step)]
    assert met == sorted(set(met))
    for each in walked:
        assert all(timetable.begins(each.date, step) is None for step in each.skipped)
    times = timetable.day(date)
    last = max((step for step, at in enumerate(times) if at is not None), default=-1)
    # What the clock leaves out at the end of a day has no step of its day behind it.
    assert [step for day, step in met if day == date] == list(range(last + 1))


@pytest.mark.parametrize(
    ("zone", "day", "left_out", "length"),
    [
        ("Europe/Paris", "2027-03-28", [4, 5], 23),
        ("Europe/Paris", "2027-10-31", [], 25),
        ("America/New_York", "2027-03-14", [4, 5], 23),
        ("America/New_York", "2027-11-07", [], 25),
        ("Australia/Lord_Howe", "2027-10-03", [4], 23.5),
        ("Australia/Lord_Howe", "2027-04-04", [], 24.5),
        ("America/Sao_Paulo", "2018-11-04", [0, 1], 23),
        ("America/Nuuk", "2024-03-30", [46, 47], 23),
        ("Pacific/Apia", "2011-12-30", list(range(48)), 0),
        ("UTC", "2027-03-28", [], 24),
    ],
)
def test_days_on_which_the_clock_jumps(zone: str, day: str, left_out: list[int], length: float) -> None:
    """Half hours: which of them never begin, and how long the day is."""
    timetable, date = Timetable(48, time_zone(zone)), dt.date.fromisoformat(day)
    assert [step for step, at in enumerate(timetable.day(date)) if at is None] == left_out
    after = next(at for at in timetable.day(date + DAY) if at is not None)
    first = next((at for at in timetable.day(date) if at is not None), after)
    assert after - first == dt.timedelta(hours=length)


def test_a_repeated_hour_keeps_its_first_visit() -> None:
    """During its second visit the last step is that of its end, and the next one comes when the hour is over."""
    paris = Timetable(48, time_zone("Europe/Paris"))
    date = dt.date(2027, 10, 31)
    assert paris.begins(date, 5) == dt.datetime(2027, 10, 31, 0, 30, tzinfo=dt.UTC)  # 2:30 for the first time
    second = dt.datetime(2027, 10, 31, 1, 30, tzinfo=dt.UTC)
    assert (paris.last(second).step, paris.next(second).step) == (5, 6)
    assert paris.next(second).instant == dt.datetime(2027, 10, 31, 2, 0, tzinfo=dt.UTC)


def test_a_day_that_does_not_exist_is_passed_over() -> None:
    apia = Timetable(48, time_zone("Pacific/Apia"))
    eve = apia.begins(dt.date(2011, 12, 29), 47)
    assert eve is not None
    following = apia.next(eve)
    assert (following.date, following.step, following.skipped) == (dt.date(2011, 12, 31), 0, ())
    assert following.instant - eve == dt.timedelta(minutes=30)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
def test_time_has_ends_and_what_lies_beyond_them_is_one_sentence(zone: str) -> None:
    timetable = Timetable(24, time_zone(zone))
    sentence = r"^a timetable knows the years 2 to 9998: got "
    for instant in (dt.datetime(2, 1, 1, tzinfo=dt.UTC), dt.datetime(9998, 12, 31, 23, 59, tzinfo=dt.UTC)):
        assert timetable.last(instant).instant <= instant < timetable.next(instant).instant
        assert len(timetable.day(timetable.date(instant))) == 24
        beyond = instant.replace(year=1 if instant.year == 2 else 9999)
        for lookup in (timetable.last, timetable.next, timetable.date):
            with pytest.raises(ValueError, match=sentence):
                lookup(beyond)
    for date in (dt.date.min, dt.date.max):  # all of it is had, or nothing
        try:
            assert len(timetable.day(date)) == 24
        except ValueError as error:
            assert str(error).startswith(sentence[1:])  # noqa: PT017  # some zones have these days


@pytest.mark.parametrize("horizon", [0, -1, 1.5, "48", None])
def test_a_day_has_a_whole_number_of_steps(horizon: object) -> None:
    with pytest.raises(ValueError, match=r"^a day must have "):
        Timetable(horizon)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../../etc/passwd", "/etc/passwd", "Europe", "\0"])
def test_an_unknown_zone_is_one_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown time zone .*: use a name such as Europe/Paris"):
        time_zone(name)


def test_the_machine_has_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What TZ says, as other programs read it."""
    for name in ("Europe/Paris", ":America/New_York"):
        monkeypatch.setenv("TZ", name)
        assert str(time_zone()) == name.removeprefix(":")
    monkeypatch.delenv("TZ")
    assert dt.datetime.now(time_zone()).utcoffset() is not None


@pytest.mark.parametrize("name", ["CET-1CEST,M3.5.0,M10.5.0/3", "EST5EDT4", "Mars"])
def test_a_zone_in_a_form_that_is_not_understood_is_not_taken_for_another(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", name)
    with pytest.raises(ValueError, match=r"^unknown time zone"):
        time_zone()


def test_the_zone_of_the_machine_may_be_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Debian's manual has it: TZ=:/etc/localtime."""
    known = files("tzdata") / "zoneinfo" / "Asia" / "Tokyo"
    monkeypatch.setenv("TZ", f":{known}")
    assert dt.datetime(2027, 1, 1, tzinfo=dt.UTC).astimezone(time_zone()).hour == 9
    (tmp_path / "text").write_text("no zone")
    for name in ("text", "nothing"):
        monkeypatch.setenv("TZ", str(tmp_path / name))
        with pytest.raises(ValueError, match=r"^unknown time zone: TZ names the file"):
            time_zone()
