"""The numbers of records under each key, kept outside of the journal: a journal that has fewer lacks some.

So a journal that was restored from a backup is noticed before it decides a cohort again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from reticent.storage.documents import parse_json
from reticent.storage.files import OWNER_ONLY, replace
from reticent_keys.errors import JournalError

__all__ = ["RecordCounts"]


class RecordCounts:
    """Keeps, for each key, the most records that a journal had when a reply was sent.

    Threads and processes may share a file.

    Args:
        path: The file, which is made with the first count.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[str, int]:
        """The numbers of records that a journal must have, by the ids of their keys.

        Raises:
            JournalError: The file is damaged.
        """
        try:
            counts = parse_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            counts = None
        if not _are_counts(counts):
            raise JournalError(
                f"{self._path} is damaged: stop all key servers, delete it, run `reticent keys rotate --retire`, and "
                "start them again"
            )
        return counts

    def raise_to(self, key_id: str, records: int) -> None:
        """Keep this number, unless a higher one is kept; when this returns, it survives a loss of power."""
        if self.all().get(key_id, 0) >= records:
            return
        with self._locked():
            counts = self.all()
            if counts.get(key_id, 0) < records:
                self._write(counts | {key_id: records})

    def lower_to(self, records: Mapping[str, int]) -> None:
        """Accept that a journal has only these numbers of records, and no other keys."""
        if not self.all():
            return
        with self._locked():
            counts = self.all().items()
            self._write({key_id: min(count, records[key_id]) for key_id, count in counts if key_id in records})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(f"{self._path}.lock", "w", encoding="utf-8", opener=_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, counts: dict[str, int]) -> None:
        replace(self._path, json.dumps(counts, indent=1).encode())

    def __repr__(self) -> str:
        return f"RecordCounts({self._path})"


def _are_counts(content: object) -> TypeGuard[dict[str, int]]:
    return isinstance(content, dict) and all(type(count) is int for count in content.values())


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, OWNER_ONLY)
