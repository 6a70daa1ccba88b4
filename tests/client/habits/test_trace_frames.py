"""Traces and days as data frames and in Parquet files, and what is wrong with those."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from reticent.errors import MissingExtra
from reticent_client.habits import frames
from reticent_client.habits.frames import traces_from_frame, traces_to_frame
from reticent_client.habits.sampling import DatedDay
from reticent_client.habits.trace_files import read_traces
from reticent_client.habits.traces import Traces
from tests.client.habits.trace_files import GOOD, matches, refused, written


@pytest.mark.parametrize("zone", [None, "Europe/Paris", "UTC"])
def test_traces_survive_frames_and_parquet(tmp_path: Path, zone: str | None) -> None:
    text = GOOD if zone else GOOD.replace("Z", "").replace("+01:00", "")
    traces = read_traces(written(tmp_path, text), zone=zone)
    frame = traces_to_frame(traces)
    assert list(frame.columns) == ["user", "time", "context"]
    assert traces_from_frame(frame, zone=zone) == traces
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_traces(tmp_path / "t.parquet", zone=zone) == traces
    frame.to_csv(tmp_path / "again.csv", index=False)
    assert read_traces(tmp_path / "again.csv", zone=zone) == traces


def test_a_frame_may_hold_text_categories_nanoseconds_and_other_columns() -> None:
    times = ["2027-03-01T08:00", "2027-03-01T09:00"]
    frame = pd.DataFrame({"user": ["a", "a"], "time": times, "context": ["x", float("nan")], "n": [1, 2]})
    wanted = Traces.of([("a", "2027-03-01T08:00", "x"), ("a", "2027-03-01T09:00", None)])
    assert traces_from_frame(frame) == wanted
    assert traces_from_frame(frame.astype({"user": "category", "context": "category"}).iloc[::-1]) == wanted
    finer = pd.to_datetime(frame["time"]).astype("datetime64[ns]") + pd.Timedelta(5, "ns")
    assert traces_from_frame(frame.assign(time=finer)) == wanted


BAD_FRAMES: dict[str, tuple[Callable[[pd.DataFrame], object], str]] = {
    "no frame": (lambda _: [1], "* must be a pandas DataFrame: got [[]1]"),
    "a missing column": (lambda f: f.drop(columns="user"), "*: there must be one column 'user': *"),
    "a column twice": (lambda f: pd.concat([f, f["user"]], axis=1), "*: there must be one column 'user': *"),
    "no rows": (lambda f: f.iloc[:0], "*: there are no readings"),
    "numbers for users": (lambda f: f.assign(user=[1, 2]), "*, row 0: a user is text: got 1"),
    "numbers for times": (
        lambda f: f.assign(time=[1.0, 2.0]),
        "*, row 0: a time as a number counts the seconds *: got 1.0",
    ),
    "numbers for contexts": (lambda f: f.assign(context=[1.5, 2.0]), "*, row 0: a context is text: got 1.5"),
    "a missing user": (lambda f: f.assign(user=pd.Series(["a", None], dtype=object)), "*, row 1: the user is missing"),
    "a missing time": (lambda f: f.assign(time=f["time"].iloc[:1]), "*, row 1: the time is missing"),
    "an empty user": (lambda f: f.assign(user=["a", ""]), "*, row 1: a user needs a name*"),
    "an unreadable time": (lambda f: f.assign(time=["2027-03-01T08:00", "noon"]), "*, row 1: a time is written as *"),
    "instants without a zone": (lambda f: f.assign(time=f["time"].dt.tz_localize("UTC")), "*, row 0: *zone*"),
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
    spoil, sentence = BAD_FRAMES[kind]
    times = pd.to_datetime(["2027-03-01T08:00", "2027-03-01T09:00"])
    bad = spoil(pd.DataFrame({"user": ["a", "a"], "time": times, "context": ["x", "y"]}))
    text = refused(lambda: traces_from_frame(bad))  # type: ignore[arg-type]
    assert matches(text, sentence.replace("*", "the frame", 1)), text
    if isinstance(bad, pd.DataFrame) and kind != "a column twice":  # which no Parquet file can hold
        path = tmp_path / "t.parquet"
        bad.to_parquet(path)
        text = refused(lambda: read_traces(path))
        assert matches(text, sentence.replace("*", str(path), 1)), text


def test_a_frame_may_count_seconds_from_1970(tmp_path: Path) -> None:
    """As whole numbers or not; the same in a Parquet file."""
    for dtype in ("int64", "float64"):
        frame = pd.DataFrame({"user": ["a"], "time": pd.Series([1_803_886_200], dtype=dtype), "context": ["x"]})
        ((reading,),) = traces_from_frame(frame, zone="Europe/Paris").readings.values()
        assert reading.time == dt.datetime(2027, 3, 1, 7, 30, tzinfo=dt.UTC)
        frame.to_parquet(tmp_path / "t.parquet")
        assert read_traces(tmp_path / "t.parquet", zone="Europe/Paris") == traces_from_frame(frame, zone="Europe/Paris")


def test_what_is_no_parquet_file_is_one_error(tmp_path: Path) -> None:
    traces_to_frame(Traces.of([("a", "2027-03-01T08:00", "x")])).to_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for content in (b"", b"user,time,context\n", whole[:-9], whole[: len(whole) // 2]):
        path = written(tmp_path, content, "t.parquet")
        assert refused(lambda: read_traces(path)).startswith(f"{path}: this is not a Parquet file that can be read: ")  # noqa: B023  # it is called at once


def test_days_survive_frames() -> None:
    days = [DatedDay(dt.date(2027, 3, k), ("home", None, f"place {k}")) for k in (1, 3)]
    frame = frames.days_to_frame(days)
    assert list(frame.columns) == ["day", "step", "context"]
    assert frames.days_from_frame(frame) == days
    assert frames.days_from_frame(frame.dropna().sample(frac=1, random_state=1)) == days


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": [0, 0]}, "the frame, row 1: step 0 of 2027-03-01 occurs twice"),
        ({"step": [0, -1]}, "the frame, row 1: a step lies between 0 and *: got -1"),
        ({"step": ["0", "1"]}, "the frame: the column 'step' must hold whole numbers: *"),
        ({"day": [1, 2]}, "the frame, row 0: a day is a date: got 1"),
        ({"context": ["x", 5]}, "the frame, row 1: a context is text: got 5"),
        ({"context": ["x", "y" * 129]}, "the frame, row 1: a context has at most 128 bytes of UTF-8: *"),
        ({"context": ["x", "a\nb"]}, "the frame, row 1: a context has a name without control characters: *"),
    ],
)
def test_a_bad_frame_of_days_is_one_error(change: dict[str, list[object]], sentence: str) -> None:
    good = frames.days_to_frame([DatedDay(dt.date(2027, 3, 1), ("home", "work"))])
    bad = good.assign(**{name: pd.Series(values, dtype=object).infer_objects() for name, values in change.items()})
    assert matches(refused(lambda: frames.days_from_frame(bad)), sentence)


def test_without_the_libraries_the_extra_is_named(tmp_path: Path) -> None:
    """In a process in which they cannot be imported."""
    path = written(tmp_path, b"PAR1", "t.parquet")
    code = """
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
from reticent.errors import MissingExtra
from reticent_client.habits.trace_files import read_traces
def frames():
    import reticent_client.habits.frames
for action in (lambda: read_traces(sys.argv[1]), frames):
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
