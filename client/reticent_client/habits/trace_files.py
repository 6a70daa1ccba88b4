"""Traces in files: CSV, gzipped or not, and Parquet. What is wrong with a file is one `ValueError` with the line."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from reticent.errors import MissingExtra
from reticent_client.habits.traces import COLUMNS, Row, Traces


def read_traces(path: str | Path, *, zone: str | dt.tzinfo | None = None) -> Traces:
    """Read CSV (also `.csv.gz`), or Parquet where a file is called `.parquet`.

    The first line of CSV names the columns; those beside user, time and context are ignored. An empty context is a
    reading of nothing.

    Args:
        path: The file.
        zone: The time zone of local times, and of the days of instants.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        return Traces.gathered(_parquet(path), f"{path}, row {{}}".format, str(path), zone)
    with path.open("rb") as file:
        text = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
        return Traces.gathered(_csv(text, str(path)), f"{path}:{{}}".format, str(path), zone)


def _csv(file: BinaryIO, place: str) -> Iterator[Row]:
    """The rows of CSV, each with the number of the line on which it begins."""
    reader = csv.reader(_lines(file, place), strict=True)
    header = _next(reader, place, 1)
    if header is None:
        raise ValueError(f"{place}:1: the file is empty: its first line must name the columns {', '.join(COLUMNS)}")
    user, time, context = _columns(header, f"{place}:1")
    while True:
        line = reader.line_num + 1
        row = _next(reader, place, line)
        if row is None:
            return
        if len(row) == len(header):
            yield Row(line, row[user], row[time], row[context])
        elif row:  # an empty line is none
            raise ValueError(f"{place}:{line}: the header names {len(header)} columns: this line has {len(row)}")


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


def _columns(header: list[str], where: str) -> tuple[int, ...]:
    """Where the columns stand."""
    for name in COLUMNS:
        if header.count(name) != 1:
            has = "no column" if name not in header else f"{header.count(name)} columns"
            raise ValueError(
                f"{where}: the first line must name the columns {', '.join(COLUMNS)}: it has {has} {name!r}"
            )
    return tuple(map(header.index, COLUMNS))


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
