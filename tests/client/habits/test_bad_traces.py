"""One clear error for each thing that can be wrong with traces."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from reticent_client.habits.trace_files import read_traces
from reticent_client.habits.traces import MAX_NAME, Traces
from reticent_client.mask.limits import MAX_LABEL
from tests.client.habits.trace_files import GOOD, matches, refused, written

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
    "a date without dashes": ("a,20270301,x\n", "2: a time as a number counts the seconds * got 20270301"),
    "a time without dashes": ("a,20270301083000,x\n", "2: a time as a number counts the seconds * got 20270301083000"),
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
}


def encoded(text: str | bytes) -> bytes:
    """The bytes of a text."""
    return text.encode() if isinstance(text, str) else text


BAD: dict[str, tuple[bytes, str | None, str]] = {
    "no rows": (f"{HEAD}\n".encode(), None, "t.csv: there are no readings"),
    **{kind: (encoded(text), None, f"t.csv:{sentence}") for kind, (text, sentence) in BAD_HEADERS.items()},
    **{kind: (HEAD.encode() + encoded(text), None, f"t.csv:{rest}") for kind, (text, rest) in BAD_ROWS.items()},
    **{
        kind: ((HEAD + text).encode(), zone, f"t.csv:{sentence}")
        for kind, (text, zone, sentence) in BAD_IN_A_ZONE.items()
    },
}
"""What a file holds, the zone that it is read in, and what is said of it."""


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_one_error_with_its_line(tmp_path: Path, kind: str) -> None:
    content, zone, sentence = BAD[kind]
    path = written(tmp_path, content, "t.csv")
    text = refused(lambda: read_traces(path, zone=zone))
    assert matches(text, f"{tmp_path}/{sentence}"), text
    assert len(text) < 500


@pytest.mark.parametrize("kind", ["cut off", "no gzip at all", "damaged"])
def test_a_damaged_gzip_file_is_one_error(tmp_path: Path, kind: str) -> None:
    rows = "".join(f"a,2027-03-01T08:00:00.{k:06},x{k}\n" for k in range(5000))
    whole = gzip.compress(f"user,time,context\n{rows}".encode())
    content = {"cut off": whole[:-2000], "no gzip at all": b"user", "damaged": whole[:2000] + b"?" + whole[2001:]}[kind]
    path = written(tmp_path, content, "t.csv.gz")
    assert matches(refused(lambda: read_traces(path)), f"{path}:*: *")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_traces(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (lambda traces: traces.of_user("eve"), "the traces have no user 'eve': they have 'ada', 'bob'"),
        (lambda traces: traces.of_user(), "the traces are of 2 users: choose one of 'ada', 'bob'"),
        (lambda _: Traces.of([("a", "2027-03-01T08:00", "x")], zone="Mars/Base"), "unknown time zone 'Mars/Base'*"),
        (lambda _: Traces.of([("a", 5, "x")]), "row 0: a time as a number counts the seconds *: got 5"),
        (lambda _: Traces.of([("a", True, "x")]), "row 0: a time is a datetime or written as *: got True"),
        (lambda _: Traces.of([(5, "2027-03-01T08:00", "x")]), "row 0: a user is text: got 5"),  # type: ignore[list-item]
        (lambda _: Traces.of([]), "the rows: there are no readings"),
    ],
)
def test_bad_questions_are_one_error(tmp_path: Path, action: Callable[[Traces], object], sentence: str) -> None:
    traces = read_traces(written(tmp_path, GOOD), zone="UTC")
    assert matches(refused(lambda: action(traces)), sentence)
