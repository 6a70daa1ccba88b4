"""The trace of a run: what happened to each phone and at the servers, in an order that no timing changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["SERVERS", "Event", "Trace"]

SERVERS = -1
"""Stands for the servers, where an event is of no phone."""


class Event(NamedTuple):
    """One event.

    Args:
        order: A number that grows with simulated time: events of the same order are independent of each other.
        phone: The number of the phone; `SERVERS` for what servers published.
        text: What happened, in one line.
    """

    order: int
    phone: int
    text: str

    def __str__(self) -> str:
        return f"{self.order}\t{'servers' if self.phone == SERVERS else f'phone {self.phone}'}\t{self.text}"


class Trace:
    """Events in the order of simulated time, and of phones at the same time.

    The events of a phone at the same time keep the order in which the phone recorded them.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._file = None if path is None else path.open("w", encoding="utf-8", newline="\n")

    def add(self, events: Iterable[Event]) -> None:
        """Add events of the same span of time, from all workers; later calls are about later times."""
        for event in sorted(events, key=lambda event: event[:2]):
            line = f"{event}\n"
            self._digest.update(line.encode())
            if self._file is not None:
                self._file.write(line)

    @property
    def hash(self) -> str:
        """The digest of all events so far."""
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def first_difference(first: Path, second: Path) -> tuple[str | None, str | None] | None:
    """The first lines in which two files of traces differ; None stands for the end of a file."""
    with first.open(encoding="utf-8") as one, second.open(encoding="utf-8") as other:
        for left, right in _pairs(one, other):
            if left != right:
                return left, right
    return None


def _pairs(one: Iterable[str], other: Iterable[str]) -> Iterator[tuple[str | None, str | None]]:
    left, right = iter(one), iter(other)
    while True:
        pair = next(left, None), next(right, None)
        if pair == (None, None):
            return
        yield tuple(None if line is None else line.rstrip("\n") for line in pair)  # type: ignore[misc]
