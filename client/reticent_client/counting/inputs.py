"""The input of a user on the command line: counters in files, and an invitation."""

from __future__ import annotations

import csv
import math
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from reticent.privacy import Query
from reticent.protocol.invitation import Invitation
from reticent.storage.documents import parse_json
from reticent_client.counting.consent import Participation
from reticent_client.counting.contribution import source_of, within_bounds
from reticent_client.errors import Declined, Reason

__all__ = ["Counted", "read_invitation", "read_participation"]

HEADER = ["name", "value"]


class Counted:
    """Numbers by their names, from a file that is read anew for each query, and from arguments.

    Args:
        path: CSV with the header name,value, or one JSON object.
        pairs: As in "visits=3"; these count more than the file.
    """

    def __init__(self, path: Path | None, pairs: Sequence[str]) -> None:
        self._path = path
        self._pairs = dict(map(_pair, pairs))
        self._taken: dict[bytes, tuple[Query, Mapping[str, float]]] = {}  # since the last notes, by the query's digest
        self._names = self.all().keys()  # a bad file is reported at once

    def all(self) -> dict[str, float]:
        """All numbers."""
        return {**({} if self._path is None else _read(self._path)), **self._pairs}

    def among(self, query: Query) -> Mapping[str, float] | None:
        """The numbers for a query; None where neither a file nor a pair was given.

        Whether there are numbers never depends on what was counted: both servers see which phones take part.

        Raises:
            Declined: The file cannot be read, as while somebody writes it.
        """
        if self._path is None and not self._pairs:
            return None
        try:
            counted = self.all()
        except (OSError, ValueError) as error:
            raise Declined(Reason.BAD_COUNTERS, str(error), query.id) from error
        self._taken[query.digest] = query, counted
        return counted

    def notes(self, contributed: Collection[bytes], *, with_unused: bool) -> Iterator[str]:
        """The differences between the user's numbers and those contributed since the last call; a sentence each.

        The phone contributes all the same: both servers see who takes part, so it must not depend on the numbers.

        Args:
            contributed: The digests of the queries that the phone contributed to.
            with_unused: Name the numbers that no such contribution uses, too.
        """
        taken = [each for digest, each in self._taken.items() if digest in contributed]
        self._taken = {}
        for query, counted in taken:
            sources = {counter.name: source_of(counter.name, counted) for counter in query.counters}
            for name in sorted({*sources.values()} - counted.keys()):
                yield f"{query.id!r} asks for {name!r}, which was not given: it counts as 0"
            for counter in query.counters:
                if counter.name not in counted:
                    continue
                given, used = counted[counter.name], within_bounds(counter, counted[counter.name])
                if given != used:  # also where it is NaN
                    bounds = f"its bounds are {counter.low} and {counter.high}"
                    yield f"{query.id!r} takes {counter.name!r} as {used:g}, not {given:g}: {bounds}"
        wanted = {source_of(counter.name, counted) for query, counted in taken for counter in query.counters}
        unused = sorted(self._names - wanted)
        if with_unused and unused:
            yield f"no new contribution uses {', '.join(map(repr, unused))}"


def read_invitation(path: Path) -> tuple[Invitation, bool]:
    """The invitation of a file, and whether others than its owner could read it."""
    try:
        invitation = Invitation.from_text(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return invitation, bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def read_participation(path: Path) -> Participation:
    """Read a policy from a TOML file."""
    try:
        return Participation.from_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _pair(text: str) -> tuple[str, float]:
    name, found, value = text.partition("=")
    if not (name and found):
        raise ValueError(f"a counter is written as NAME=VALUE: got {text!r}")
    return name, _number(value, f"the counter {name!r}")


def _read(path: Path) -> dict[str, float]:
    text = path.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("{"):
        try:
            content = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from error
        return {name: _number(value, f"{path}: {name!r}", missing=None) for name, value in content.items()}
    rows = list(csv.reader(text.splitlines()))
    if not rows or rows[0] != HEADER:
        raise ValueError(f"{path} must be a JSON object, or CSV with the header {','.join(HEADER)}")
    found = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(HEADER) or row[0] in found:
            raise ValueError(f"{path}, line {number}: a line has a new name and a value: got {row}")
        found[row[0]] = _number(row[1], f"{path}, line {number}", missing="")
    return found


_NEVER = object()


def _number(value: object, where: str, missing: object = _NEVER) -> float:
    """A number; NaN where a file has none, because the phone contributes whatever was counted."""
    if value == missing:
        return math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, int(value))
        except ValueError:
            pass
    raise ValueError(f"{where} must be a number: got {value!r}")
