"""Days as CSV: what is read, what is written, and what is refused with its line."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client.mask.days_file import DayRecord, read_days, write_days

HEADER = "day,step,context\n"


def read(text: str, horizon: int | None = 3) -> list[DayRecord]:
    """The days of a text."""
    return read_days(io.StringIO(text, newline=""), "days.csv", horizon)


def test_reads_days() -> None:
    """An empty context is a gap, and so is a step without a line."""
    text = HEADER + "mon,0,home\nmon,1,\nmon,2,work\ntue,1,the gym\n"
    assert read(text) == [DayRecord("mon", ["home", None, "work"]), DayRecord("tue", [None, "the gym", None])]


def test_the_longest_day_says_how_long_days_are() -> None:
    """Where nothing else does."""
    assert read(HEADER + "1,0,a\n2,4,b\n", None) == [
        DayRecord("1", ["a", None, None, None, None]),
        DayRecord("2", [None, None, None, None, "b"]),
    ]


@pytest.mark.parametrize("text", [HEADER, "# a comment\n# another\n" + HEADER, HEADER.strip()])
def test_no_days(text: str) -> None:
    """A header is enough, and may have comments before it."""
    assert read(text) == []
    assert read(text, None) == []


def test_only_comments_before_the_header_are_comments() -> None:
    """A day may be called anything."""
    assert read(HEADER + "#1,0,#a\n", 1) == [DayRecord("#1", ["#a"])]


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1)


@given(
    days=st.lists(
        st.builds(DayRecord, names, st.lists(st.none() | names, min_size=3, max_size=3)), unique_by=lambda day: day.name
    ),
    comment=st.none() | st.just("a comment"),
)
def test_reads_what_it_writes(days: list[DayRecord], comment: str | None) -> None:
    """Whatever the labels are made of."""
    file = io.StringIO(newline="")
    write_days(file, days, comment)
    assert read(file.getvalue()) == days


def test_writes_every_step() -> None:
    """In the form that it reads."""
    file = io.StringIO(newline="")
    write_days(file, [DayRecord("mon", ["a", None, 'b,"c'])], "made by hand")
    assert file.getvalue() == '# made by hand\nday,step,context\nmon,0,a\nmon,1,\nmon,2,"b,""c"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "days.csv:1: the first line must be day,step,context"),
        ("# only\n", "days.csv:1: the first line must be day,step,context"),
        ("day,context\n", "days.csv:1: the first line must be day,step,context"),
        ("mon,0,home\n", "days.csv:1: the first line must be day,step,context"),
        (HEADER + "mon,0,home\nmon,1\n", "days.csv:3: a line has three fields, day,step,context: got 2"),
        (HEADER + "mon,0,home,work\n", "days.csv:2: a line has three fields, day,step,context: got 4"),
        (HEADER + "\n", "days.csv:2: a line has three fields, day,step,context: got 0"),
        (HEADER + "mon,one,home\n", "days.csv:2: a step is a whole number: got 'one'"),
        (HEADER + "mon,-1,home\n", "days.csv:2: a step is a whole number: got '-1'"),
        (HEADER + "mon,1.0,home\n", "days.csv:2: a step is a whole number: got '1.0'"),
        (HEADER + "mon,²,home\n", "days.csv:2: a step is a whole number: got '²'"),
        (HEADER + "mon,3,home\n", "days.csv:2: step 3 lies outside the day of 3 steps"),
        (HEADER + "mon,1,home\nmon,1,work\n", "days.csv:3: step 1 of day 'mon' comes after step 1"),
        (HEADER + "mon,1,home\nmon,0,work\n", "days.csv:3: step 0 of day 'mon' comes after step 1"),
        (HEADER + "a,0,x\nb,0,x\na,1,x\n", "days.csv:4: day 'a' goes on after other days"),
        (HEADER + 'mon,0,"home\n', "days.csv:2: unexpected end of data"),
        (HEADER + 'mon,0,"home"s\n', "days.csv:2: ',' expected after '\"'"),
    ],
)
def test_what_is_refused(text: str, sentence: str) -> None:
    """One sentence, which names the line."""
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole message is compared
        read(text)
    assert str(error.value) == sentence


def test_days_without_a_length_have_a_limit() -> None:
    """A step of a billion would fill the memory."""
    with pytest.raises(ValueError, match=r"days\.csv:2: step 999999999 lies outside the day of 86400 steps"):
        read(HEADER + "mon,999999999,home\n", None)


def test_what_is_no_text() -> None:
    """The place is where reading ended."""
    file = io.TextIOWrapper(io.BytesIO(HEADER.encode() + b"mon,0,\xff\n"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"days\.csv: after line \d there is something that is not UTF-8 text"):
        read_days(file, "days.csv", 3)
