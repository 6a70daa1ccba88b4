"""Traces in files: CSV, gzipped or not, with times or as a table of slots, and Parquet.

What is wrong with a file is one `ValueError` with the line.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from reticent.errors import MissingExtra
from reticent_client.habits.moments import shown
from reticent_client.habits.traces import COLUMNS, FIRST_DAY, Row, SlotTable, Traces

_MINUTES = 24 * 60
_LAST_NUMBER = 100_000  # of a day
_DAYS_FILE = ["day", "step", "context"]
_ONLY_USER = "user"
_COMMENT = "#"


class _SlotRow(NamedTuple):
    """A row of a table of slots."""

    line: int
    user: str
    date: dt.date
    slot: int
    context: str


def read_traces(
    source: str | Path | BinaryIO, *, zone: str | dt.tzinfo | None = None, slots: int | None = None
) -> Traces:
    """Read CSV (also `.csv.gz`), or Parquet where a file is called `.parquet`.

    The first line of CSV names the columns. Those beside user, time and context are ignored. A table of slots has
    the columns user, day, slot and context (or place), or is a file of days, day,step,context. An empty context is
    a reading of nothing.

    Args:
        source: The file, or an open file of CSV.
        zone: The time zone of local times, and of the days of instants.
        slots: The number of slots of a day of a table; the highest slot and 1 unless given.
    """
    if not isinstance(source, str | Path):
        return _read_csv(source, "standard input", zone, slots)
    path = Path(source)
    if path.suffix == ".parquet":
        return Traces.gathered(_parquet(path), f"{path}, row {{}}".format, str(path), zone)
    with path.open("rb") as file:
        text = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
        return _read_csv(text, str(path), zone, slots)


def _read_csv(file: BinaryIO, place: str, zone: str | dt.tzinfo | None, slots: int | None) -> Traces:
    """The traces of an open file of CSV."""
    lines = _fields(file, place)
    _, header = next(lines, (0, None))
    if header is None:
        raise ValueError(f"{place}:1: the file is empty: its first line must name the columns {', '.join(COLUMNS)}")
    where = f"{place}:{{}}".format
    if "day" not in header or "time" in header:
        if slots is not None:
            raise ValueError(f"{place} is not a table of slots: --slots means nothing to it")
        user, time, context = _columns(header, COLUMNS, where(1))
        rows = (Row(line, row[user], row[time], row[context]) for line, row in lines)
        return Traces.gathered(rows, where, place, zone)
    if zone is not None:
        raise ValueError(f"{place} is a table of slots, which are local times: a time zone means nothing to it")
    found, numbered = _slots(header, lines, where)
    length = _slot_length(place, [row.slot for row in found], slots)
    table = SlotTable(length, numbered)
    begins = ((row, dt.datetime.combine(row.date, dt.time()) + row.slot * length) for row in found)
    return Traces.gathered((Row(row.line, row.user, at, row.context) for row, at in begins), where, place, None, table)


def _fields(file: BinaryIO, place: str) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows of CSV, each with the number of the line on which it begins."""
    comments = 0
    lines = _lines(file, place)
    first = next(lines, None)
    while first is not None and first.startswith(_COMMENT):
        comments += 1
        first = next(lines, None)
    if first is None:
        return
    reader = csv.reader(itertools.chain([first], lines), strict=True)
    header = _next(reader, place, comments + 1)
    if header is None:
        return
    yield comments + 1, header
    while True:
        line = comments + reader.line_num + 1
        row = _next(reader, place, line)
        if row is None:
            return
        if len(row) == len(header):
            yield line, row
        elif row:  # an empty line is none
            raise ValueError(f"{place}:{line}: the header names {len(header)} columns: this line has {len(row)}")


def _slots(
    header: list[str], lines: Iterable[tuple[int, list[str]]], where: Callable[[int], str]
) -> tuple[list[_SlotRow], bool]:
    """The rows of a table of slots, and whether their days are numbered."""
    slot = "slot" if "slot" in header else "step"
    context = "context" if "context" in header else "place"
    alone = header == _DAYS_FILE  # of one user
    columns = _columns(header, ["day", slot, context, *([] if alone else ["user"])], where(1))
    found: list[_SlotRow] = []
    numbered: bool | None = None
    for line, row in lines:
        try:
            day, number, label, *user = (row[column] for column in columns)
            date, is_number = _date(day)
            if numbered not in {None, is_number}:
                raise ValueError("some days are dates and others are numbers")  # noqa: TRY301  # the place is added
            numbered = is_number
            found.append(_SlotRow(line, user[0] if user else _ONLY_USER, date, _whole(number, slot, _MINUTES), label))
        except ValueError as error:
            raise ValueError(f"{where(line)}: {error}") from error
    return found, bool(numbered)


def _slot_length(place: str, slots: Sequence[int], number: int | None) -> dt.timedelta:
    """The length of a slot, from the number of slots of a day, or else from the highest slot."""
    lowest, highest = min(slots, default=0), max(slots, default=0)
    if number is not None:
        if not (0 < number <= _MINUTES and _MINUTES % number == 0):
            raise ValueError(f"--slots must divide a day into whole minutes: got {number}")
        if highest >= number:
            raise ValueError(f"{place}: slot {highest} lies outside a day of {number} slots, 0 to {number - 1}")
        return dt.timedelta(days=1) / number
    if _MINUTES % (highest + 1) or (lowest > 0 and _MINUTES % highest == 0):
        raise ValueError(
            f"{place}: the slots are {lowest} to {highest}, counted from 0: state how many a day has with --slots"
        )
    return dt.timedelta(days=1) / (highest + 1)


def _date(text: str) -> tuple[dt.date, bool]:
    """The date of a day, and whether the day is a number."""
    text = text.strip()
    if text.isdigit():
        return FIRST_DAY + dt.timedelta(days=_whole(text, "day", _LAST_NUMBER)), True
    try:
        return dt.date.fromisoformat(text), False
    except ValueError:
        raise ValueError(f"a day is a date such as 2027-03-01, or a number: got {shown(text)}") from None


def _whole(text: str, name: str, limit: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < limit):
        raise ValueError(f"a {name} is a whole number, from 0 to {limit - 1}: got {shown(text)}")
    return int(text)


def _next(reader: Iterator[list[str]], place: str, line: int) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        cause = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
        raise ValueError(f"{place}:{line}: this is not CSV: {cause}") from error


def _lines(file: BinaryIO, place: str) -> Iterator[str]:
    """The lines as text; decoded one by one, so that a bad one can be named."""
    line = 0
    try:
        for raw in file:
            line += 1
            yield raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place}:{line}: this line is not UTF-8 text") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{place}:{line + 1}: the gzip file is damaged or cut off: {error}") from error


def _columns(header: list[str], names: Sequence[str], where: str) -> tuple[int, ...]:
    """The positions of the columns."""
    for name in names:
        if header.count(name) != 1:
            has = "no column" if name not in header else f"{header.count(name)} columns"
            raise ValueError(f"{where}: the first line must name the columns {', '.join(names)}: it has {has} {name!r}")
    return tuple(map(header.index, names))


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415  # an extra
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  # the same
    except ImportError as error:
        raise MissingExtra("a Parquet file", "frames", "pyarrow") from error
    from reticent_client.habits.frames import rows_of  # noqa: PLC0415  # pandas is an extra

    with path.open("rb") as file:
        try:
            opened = pq.ParquetFile(file)
            wanted = [name for name in COLUMNS if name in opened.schema_arrow.names]
            frame = opened.read(columns=wanted).to_pandas(ignore_metadata=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{path}: this is not a Parquet file that can be read: {error}") from error
    return rows_of(frame, str(path))
