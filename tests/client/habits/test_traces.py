"""Traces: what they hold, and one clear error for each thing that can be wrong with them."""

import datetime as dt
import fnmatch
import gzip
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.errors import MissingExtra
from reticent_client.habits import frames
from reticent_client.habits.learning import learn
from reticent_client.habits.sampling import DatedDay, Sampling
from reticent_client.habits.traces import MAX_NAME, Reading, Traces
from reticent_client.limits import MAX_LABEL
from reticent_client.serving.wire import check_label

UTC = dt.UTC
GOOD = """user,time,context
bob,2027-03-01T08:00:00Z,home
ada,2027-03-01T09:00:00Z,work
ada,2027-03-01T08:00:00+01:00,home
ada,2027-03-01T10:00:00Z,
"""


def written(folder: Path, content: str | bytes, name: str = "traces.csv") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(action: Callable[[], object]) -> str:
    """What a `ValueError` says, in one line."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is what is tested, by the caller
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_from_a_file_to_a_chain(tmp_path: Path) -> None:
    """All that a user of the library does."""
    rows = [f"ada,2027-03-{day:02}T{hour:02}:00,{'work' if hour in range(9, 17) else 'home'}" for day in range(1, 29)
            for hour in range(24)]  # fmt: skip
    path = written(tmp_path, "\n".join(["user,time,context", *rows]))
    traces = Traces.read(path)
    days = Sampling(dt.timedelta(hours=3), lead=dt.timedelta()).days(traces, "ada").days
    habits = learn(days)
    assert habits.chain.contexts == ("home", "work")
    assert habits.judgement is not None
    assert (habits.judgement.days, habits.judgement.off_model) == (14, 0)


def test_readings_stand_in_order_of_time_and_instants_are_compared_as_such(tmp_path: Path) -> None:
    traces = Traces.read(written(tmp_path, GOOD), zone="Europe/Paris")
    assert traces.users == ("ada", "bob")
    assert len(traces) == 4
    assert traces.of_user("ada") == (
        Reading(dt.datetime(2027, 3, 1, 7, tzinfo=UTC), "home"),
        Reading(dt.datetime(2027, 3, 1, 9, tzinfo=UTC), "work"),
        Reading(dt.datetime(2027, 3, 1, 10, tzinfo=UTC), None),
    )


def test_a_gzipped_file_a_byte_order_mark_other_columns_and_empty_lines_are_read(tmp_path: Path) -> None:
    plain = Traces.read(written(tmp_path, GOOD), zone="UTC")
    text = "\ufeffcontext,lat,user,time\n\nhome,1,bob,2027-03-01 08:00Z\r\nhome,,ada,20270301T070000Z\n"
    text += '"work",2,ada,2027-03-01T09:00Z\n\n,3,ada,2027-03-01T10:00:00.000Z\n\n'
    assert Traces.read(written(tmp_path, gzip.compress(text.encode()), "t.csv.gz"), zone="UTC") == plain


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
    assert Traces.from_frame(pd.DataFrame(rows, columns=["user", "time", "context"])) == traces
    days = pd.DataFrame({"day": [dt.date(2027, 3, 1)] * 3, "step": [0, 1, 2], "context": [" home\t", "  ", "the lake"]})
    assert frames.days_from_frame(days) == [DatedDay(dt.date(2027, 3, 1), ("home", None, "the lake"))]


@given(st.text(max_size=2 * MAX_LABEL) | st.text("éx", min_size=60, max_size=70))
def test_what_traces_hold_can_be_told_to_apps(label: str) -> None:
    """A label that is not refused fits the wire, as long as one may be."""
    try:
        (reading,) = Traces.of([("a", "2027-03-01T08:00", label)]).of_user()
    except ValueError:
        assert not label.isprintable() or len(label.strip().encode()) > MAX_LABEL
        return
    assert reading.context == (label.strip() or None)
    check_label(reading.context or "")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
@pytest.mark.parametrize(
    "time", ["0002-01-01T00:00Z", "9998-12-31T23:59:59Z", "9998-12-31T11:59:59-12:00", "9999-01-01T01:00+02:00"]
)
def test_the_first_and_the_last_time_become_days(zone: str, time: str) -> None:
    """At the ends of the calendar, where some zones have run out of time."""
    traces = Traces.of([("a", time, "x")], zone=zone)
    assert len(Sampling(least_filled=0).days(traces).days) <= 1
    assert len(Sampling(dt.timedelta(minutes=1), least_filled=0).everybody(traces)) == 1


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
    said = refused(lambda: Traces.of([("a", time, "x"), ("a", time, "y")], zone=zone))
    assert said.startswith("row 1: user 'a' is in 'x' and in 'y' at 2027-")
    assert ("twice" in said) == hint


# What is wrong with files

HEAD = "user,time,context\n"
AT_8 = "a,2027-03-01T08:00"
LATIN = "a,2027-03-01T09:00,caf\u00e9\n".encode("latin-1")

BAD_HEADERS: dict[str, tuple[str | bytes, str]] = {
    "an empty file": ("", "1: the file is empty: its first line must name the columns user, time, context"),
    "no header": (f"{AT_8},home\n", "1: the first line must name the columns"),
    "a column that is missing": ("user,time,place\n", "1: the first line must name * no column 'context'"),
    "a column twice": ("user,time,context,time\n", "1: * it has 2 columns 'time'"),
    "UTF-16": (HEAD.encode("utf-16"), "1: this line is not UTF-8 text"),
}

BAD_ROWS: dict[str, tuple[str | bytes, str]] = {
    "a missing field": ("a,2027-03-01T08:00\n", "2: the header names 3 columns: this line has 2"),
    "a field too many": (f"{AT_8},x,y\n", "2: the header names 3 * has 4"),
    "no user": (",2027-03-01T08:00,x\n", "2: a user needs a name"),
    "no time": ("a,,x\n", "2: a time is written as * got ''"),
    "an unreadable time": ("\na,2027-03-01T25:00,x\n", "3: a time is written as * got '2027-03-01T25:00'"),
    "a date without a time": ("a,2027-03-01,x\n", "2: a time is written as *"),
    "an endless time": ("a,2027-03-01T" + "0" * 5000 + ",x\n", "2: a time is written as * got '2027-03-01T000*…'"),
    "an instant after local times": (
        f"{AT_8},x\na,2027-03-01T09:00Z,x\n",
        "3: the time * has an offset, and the times before it have none",
    ),
    "two contexts at once": (
        f"{AT_8},x\n{AT_8},y\n",
        "3: user 'a' is in 'x' and in 'y' at 2027-03-01T08:00:00*",
    ),
    "not UTF-8": (f"{AT_8},x\n".encode() + LATIN, "3: this line is not UTF-8 text"),
    "an unclosed quote": (f'{AT_8},"x\n{AT_8},y\n', "2: this is not CSV: a quote is opened and never closed"),
    "an unclosed quote in a long file": (
        f'{AT_8},"x\n' + f"{AT_8},y\n" * 9999,
        "2: this is not CSV: field larger than field limit*",
    ),
    "a quote within a field": (f'{AT_8},"x"y\n', "2: this is not CSV: *"),
    "a NUL byte": (f"{AT_8},x\0\n", "2: a context has a name without control characters: *"),
    "a line break in a label": (
        f'b,2027-03-01T08:00,y\n{AT_8},"x\ny"\n',
        "3: a context has a name without control characters: *",
    ),
    "a control character in a user": (
        "a\x1b[1m,2027-03-01T08:00,x\n",
        "2: a user has a name without control characters: *",
    ),
    "an endless label": (
        f"{AT_8},{'x' * (MAX_LABEL + 1)}\n",
        f"2: a context has at most {MAX_LABEL} bytes of UTF-8: 'xxx*…' has {MAX_LABEL + 1}",
    ),
    "a label with too many bytes, though few characters": (
        f"{AT_8},{'é' * (MAX_LABEL // 2 + 1)}\n",
        f"2: a context has at most {MAX_LABEL} bytes of UTF-8: '*…' has {MAX_LABEL + 2}",
    ),
    "an endless user": (f"{'x' * (MAX_NAME + 1)},2027-03-01T08:00,x\n", "2: a user has a name of at most *"),
}

BAD_IN_A_ZONE: dict[str, tuple[str, str | None, str]] = {
    "a local time after instants": (
        "a,2027-03-01T08:00Z,x\nb,2027-03-01T09:00,x\n",
        "UTC",
        "3: the time * has no offset, and the times before it have one",
    ),
    "instants without a zone": (
        "a,2027-03-01T08:00Z,x\n",
        None,
        "2: the time * give their time zone, such as Europe/Paris or UTC",
    ),
    "a time that the clock skipped": (
        "a,2027-03-28T02:30,x\n",
        "Europe/Paris",
        "2: no clock in Europe/Paris ever showed 2027-03-28T02:30:00*",
    ),
    "a time before all time": (
        "a,0001-01-01T00:00,x\n",
        "Europe/Paris",
        "2: the time 0001-01-01T00:00:00 is too far from now: years lie between 2 and 9998",
    ),
    "an instant in the first year": ("a,0001-12-31T23:59Z,x\n", "Asia/Tokyo", "2: the time * is too far from now"),
    "an instant in the last year": ("a,9999-01-01T00:00Z,x\n", "UTC", "2: the time * is too far from now"),
    "a local time that some clock shows in the first year": (
        "a,0002-01-01T00:00,x\n",
        "Asia/Tokyo",
        "2: the time * is too far from now",
    ),
    "a local time in the last year, without a zone": (
        "a,9999-12-31T23:59,x\n",
        None,
        "2: the time * is too far from now",
    ),
    "a context and nothing at once": (
        "a,2027-03-01T08:00Z,x\na,2027-03-01T09:00+01:00,\n",
        "UTC",
        "3: user 'a' is in 'x' and in nothing at *",
    ),
}


def encoded(text: str | bytes) -> bytes:
    """The bytes of a text."""
    return text.encode() if isinstance(text, str) else text


BAD: dict[str, tuple[bytes, str | None, str]] = {
    "no rows": (f"{HEAD}\n".encode(), None, "t.csv: there are no readings"),
    **{kind: (encoded(text), None, f"t.csv:{said}") for kind, (text, said) in BAD_HEADERS.items()},
    **{kind: (HEAD.encode() + encoded(text), None, f"t.csv:{said}") for kind, (text, said) in BAD_ROWS.items()},
    **{kind: ((HEAD + text).encode(), zone, f"t.csv:{said}") for kind, (text, zone, said) in BAD_IN_A_ZONE.items()},
}
"""What a file holds, the zone that it is read in, and what is said of it."""


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_error_with_its_line(tmp_path: Path, kind: str) -> None:
    content, zone, said = BAD[kind]
    path = written(tmp_path, content, "t.csv")
    text = refused(lambda: Traces.read(path, zone=zone))
    assert matches(text, f"{tmp_path}/{said}"), text
    assert len(text) < 500


@pytest.mark.parametrize("kind", ["cut off", "no gzip at all", "damaged"])
def test_a_damaged_gzip_file_is_one_error(tmp_path: Path, kind: str) -> None:
    rows = "".join(f"a,2027-03-01T08:00:00.{k:06},x{k}\n" for k in range(5000))
    whole = gzip.compress(f"user,time,context\n{rows}".encode())
    content = {"cut off": whole[:-2000], "no gzip at all": b"user", "damaged": whole[:2000] + b"?" + whole[2001:]}[kind]
    path = written(tmp_path, content, "t.csv.gz")
    assert matches(refused(lambda: Traces.read(path)), f"{path}:*: *")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        Traces.read(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (lambda traces: traces.of_user("eve"), "the traces have no user 'eve': they have 'ada', 'bob'"),
        (lambda traces: traces.of_user(), "the traces are of 2 users: say whose is meant, 'ada', 'bob'"),
        (lambda _: Traces.of([("a", "2027-03-01T08:00", "x")], zone="Mars/Base"), "unknown time zone 'Mars/Base'*"),
        (lambda _: Traces.of([("a", 5, "x")]), "row 0: a time is a datetime or text *: got 5"),  # type: ignore[list-item]
        (lambda _: Traces.of([(5, "2027-03-01T08:00", "x")]), "row 0: a user is text: got 5"),  # type: ignore[list-item]
        (lambda _: Traces.of([]), "the rows: there are no readings"),
    ],
)
def test_bad_questions_are_one_error(tmp_path: Path, action: Callable[[Traces], object], said: str) -> None:
    traces = Traces.read(written(tmp_path, GOOD), zone="UTC")
    assert matches(refused(lambda: action(traces)), said)


def test_a_hundred_thousand_rows_take_seconds(tmp_path: Path) -> None:
    """Read, sampled and learned from; the machine's speed is left plenty of room."""
    begin = dt.datetime(2027, 1, 1, tzinfo=UTC)
    rows = [f"u{k % 20},{(begin + dt.timedelta(minutes=k)).isoformat()},p{k // 7 % 5}\n" for k in range(100_000)]
    path = written(tmp_path, "user,time,context\n" + "".join(rows))
    start = time.perf_counter()
    traces = Traces.read(path, zone="Europe/Paris")
    people = Sampling(dt.timedelta(minutes=30)).everybody(traces)
    learn({user: each.days for user, each in people.items()})
    assert time.perf_counter() - start < 15
    assert len(traces) == 100_000


# Frames and Parquet


@pytest.mark.parametrize("zone", [None, "Europe/Paris", "UTC"])
def test_traces_survive_frames_and_parquet(tmp_path: Path, zone: str | None) -> None:
    text = GOOD if zone else GOOD.replace("Z", "").replace("+01:00", "")
    traces = Traces.read(written(tmp_path, text), zone=zone)
    frame = traces.to_frame()
    assert list(frame.columns) == ["user", "time", "context"]
    assert Traces.from_frame(frame, zone=zone) == traces
    frame.to_parquet(tmp_path / "t.parquet")
    assert Traces.read(tmp_path / "t.parquet", zone=zone) == traces
    frame.to_csv(tmp_path / "again.csv", index=False)
    assert Traces.read(tmp_path / "again.csv", zone=zone) == traces


def test_a_frame_may_hold_text_categories_nanoseconds_and_other_columns() -> None:
    times = ["2027-03-01T08:00", "2027-03-01T09:00"]
    frame = pd.DataFrame({"user": ["a", "a"], "time": times, "context": ["x", float("nan")], "n": [1, 2]})
    wanted = Traces.of([("a", "2027-03-01T08:00", "x"), ("a", "2027-03-01T09:00", None)])
    assert Traces.from_frame(frame) == wanted
    assert Traces.from_frame(frame.astype({"user": "category", "context": "category"}).iloc[::-1]) == wanted
    finer = pd.to_datetime(frame["time"]).astype("datetime64[ns]") + pd.Timedelta(5, "ns")
    assert Traces.from_frame(frame.assign(time=finer)) == wanted


BAD_FRAMES: dict[str, tuple[Callable[[pd.DataFrame], object], str]] = {
    "no frame": (lambda _: [1], "* must be a pandas DataFrame: got [[]1]"),
    "a missing column": (lambda f: f.drop(columns="user"), "*: there must be one column 'user': *"),
    "a column twice": (lambda f: pd.concat([f, f["user"]], axis=1), "*: there must be one column 'user': *"),
    "no rows": (lambda f: f.iloc[:0], "*: there are no readings"),
    "numbers for users": (lambda f: f.assign(user=[1, 2]), "*, row 0: a user is text: got 1"),
    "numbers for times": (lambda f: f.assign(time=[1.0, 2.0]), "*: the column 'time' must hold times or text: *"),
    "numbers for contexts": (lambda f: f.assign(context=[1.5, 2.0]), "*, row 0: a context is text: got 1.5"),
    "a missing user": (lambda f: f.assign(user=pd.Series(["a", None], dtype=object)), "*, row 1: the user is missing"),
    "a missing time": (lambda f: f.assign(time=f["time"].iloc[:1]), "*, row 1: the time is missing"),
    "an empty user": (lambda f: f.assign(user=["a", ""]), "*, row 1: a user needs a name*"),
    "an unreadable time": (lambda f: f.assign(time=["2027-03-01T08:00", "noon"]), "*, row 1: a time is written as *"),
    "instants without a zone": (lambda f: f.assign(time=f["time"].dt.tz_localize("UTC")), "*, row 0: *zone*"),
    "two contexts at once": (lambda f: f.assign(time=f["time"].iloc[0]), "*, row 1: user 'a' is in 'x' and in 'y' *"),
    "a label too long to be told": (
        lambda f: f.assign(context=["x", "é" * 65]),
        "*, row 1: a context has at most 128 bytes of UTF-8: *",
    ),
    "a year too far": (
        lambda f: f.assign(time=["2027-03-01T08:00", "9999-03-01T08:00"]),
        "*, row 1: the time 9999-03-01T08:00:00 is too far from now",
    ),
    "a control character": (lambda f: f.assign(context=["x", "\0"]), "*, row 1: a context has a name without *"),
}


@pytest.mark.parametrize("kind", BAD_FRAMES)
def test_a_bad_frame_is_one_error_with_its_row(tmp_path: Path, kind: str) -> None:
    """The same in a Parquet file, with the file's name."""
    spoil, said = BAD_FRAMES[kind]
    times = pd.to_datetime(["2027-03-01T08:00", "2027-03-01T09:00"])
    bad = spoil(pd.DataFrame({"user": ["a", "a"], "time": times, "context": ["x", "y"]}))
    text = refused(lambda: Traces.from_frame(bad))  # type: ignore[arg-type]
    assert matches(text, said.replace("*", "the frame", 1)), text
    if isinstance(bad, pd.DataFrame) and kind != "a column twice":  # which no Parquet file can hold
        path = tmp_path / "t.parquet"
        bad.to_parquet(path)
        text = refused(lambda: Traces.read(path))
        assert matches(text, said.replace("*", str(path), 1)), text


def test_what_is_no_parquet_file_is_one_error(tmp_path: Path) -> None:
    Traces.of([("a", "2027-03-01T08:00", "x")]).to_frame().to_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for content in (b"", b"user,time,context\n", whole[:-9], whole[: len(whole) // 2]):
        path = written(tmp_path, content, "t.parquet")
        assert refused(lambda: Traces.read(path)).startswith(f"{path}: this is not a Parquet file that can be read: ")  # noqa: B023  # it is called at once


def test_days_survive_frames() -> None:
    days = [DatedDay(dt.date(2027, 3, k), ("home", None, f"place {k}")) for k in (1, 3)]
    frame = frames.days_to_frame(days)
    assert list(frame.columns) == ["day", "step", "context"]
    assert frames.days_from_frame(frame) == days
    assert frames.days_from_frame(frame.dropna().sample(frac=1, random_state=1)) == days


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": [0, 0]}, "the frame, row 1: step 0 of 2027-03-01 stands there twice"),
        ({"step": [0, -1]}, "the frame, row 1: a step lies between 0 and *: got -1"),
        ({"step": ["0", "1"]}, "the frame: the column 'step' must hold whole numbers: *"),
        ({"day": [1, 2]}, "the frame, row 0: a day is a date: got 1"),
        ({"context": ["x", 5]}, "the frame, row 1: a context is text: got 5"),
        ({"context": ["x", "y" * 129]}, "the frame, row 1: a context has at most 128 bytes of UTF-8: *"),
        ({"context": ["x", "a\nb"]}, "the frame, row 1: a context has a name without control characters: *"),
    ],
)
def test_a_bad_frame_of_days_is_one_error(change: dict[str, list[object]], said: str) -> None:
    good = frames.days_to_frame([DatedDay(dt.date(2027, 3, 1), ("home", "work"))])
    bad = good.assign(**{name: pd.Series(values, dtype=object).infer_objects() for name, values in change.items()})
    assert matches(refused(lambda: frames.days_from_frame(bad)), said)


def test_without_the_libraries_the_extra_is_named(tmp_path: Path) -> None:
    """In a process in which they cannot be imported."""
    path = written(tmp_path, b"PAR1", "t.parquet")
    code = """
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
from reticent.errors import MissingExtra
from reticent_client.habits.traces import Traces
for action in (lambda: Traces.read(sys.argv[1]), lambda: Traces.of([("a", "2027-03-01T08:00", "x")]).to_frame()):
    try:
        action()
    except MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "a Parquet file needs pyarrow: pip install 'reticent[frames]'",
        "a data frame needs pandas: pip install 'reticent[frames]'",
    ]
    assert issubclass(MissingExtra, ImportError)


def matches(text: str, pattern: str) -> bool:
    """Whether a text begins as a pattern says, in which "*" stands for anything."""
    return fnmatch.fnmatchcase(text, pattern + "*")
