"""What the checks of journals begin with: an implementation, four members and an active key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from reticent_keys import Journal
from reticent_keys.journal import CountersignedQuery, Deal, EnrolledPhone, Key, RecordedDecision
from tests.parties.key_server import QUERY

NOW = 1_000_000
LATER = NOW + 1000
DEADLINE = NOW + 5000
FIRST, SECOND = Key("first", 2048, b"public 1"), Key("second", 3072, b"public 2")
ASKED = replace(QUERY, population=4, cohorts=2, min_contributions=2, liars=0, key_id="first")


class Interrupted(BaseException):
    """As if the process were killed."""


class Storage(Protocol):
    """An implementation under test. It has to be picklable."""

    def open(self, path: Path) -> Journal:
        """A journal in this file."""

    def content(self, journal: Journal) -> object:
        """All that it records, to compare."""

    def interrupted(self, journal: Journal, step: int) -> AbstractContextManager[None]:
        """Raise `Interrupted` at this access to the storage, counted from 1, instead of doing it."""

    def between(self, journal: Journal, change: Callable[[], object]) -> AbstractContextManager[None]:
        """Have another process change something, once, just before the second access to the storage from now on."""

    def interrupted_backup(self, journal: Journal) -> AbstractContextManager[None]:
        """Raise `Interrupted` after the content was copied, and before the copy is closed to earlier queries."""


@dataclass
class Setting:
    """A journal with four members and an active key."""

    storage: Storage
    path: Path
    journal: Journal

    def reopened(self) -> Journal:
        """The journal as it is after a restart."""
        self.journal.close()
        self.journal = self.storage.open(self.path)
        return self.journal


def phone(number: int, **changes: object) -> EnrolledPhone:
    return EnrolledPhone(bytes([number]) * 16, bytes([number]) * 32, NOW, LATER)._replace(**changes)  # type: ignore[arg-type]


def enrol(journal: Journal, number: int) -> EnrolledPhone:
    journal.add_invitations([bytes([number])], LATER)
    return journal.enrol(bytes([number]), phone(number))


def halves(members: Sequence[int]) -> Deal:
    """The first four members, the first two in cohort 0."""
    return Deal(b"agreement", [(member, place // 2) for place, member in enumerate(members[:4])])


def countersigned(journal: Journal, **changes: object) -> CountersignedQuery:
    return journal.countersign(replace(ASKED, **changes), halves, NOW, DEADLINE)  # type: ignore[arg-type]


def decision(request: bytes, content: bytes = b"signed") -> RecordedDecision:
    return RecordedDecision(request, content)


def states(journal: Journal) -> dict[str, str]:
    return {key.id: key.state for key in journal.summary(NOW).keys}


def setting(storage: Storage, folder: Path) -> Setting:
    """What a check begins with."""
    path = folder / "journal"
    journal = storage.open(path)
    journal.take_ownership(b"server")
    for number in (1, 2, 3, 4):
        enrol(journal, number)
    journal.activate(FIRST, NOW)
    return Setting(storage, path, journal)
