"""Faults of PostgreSQL: before any statement of a transaction, at its COMMIT, and a file system that is full."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from reticent.storage import _postgres as module
from tests.postgres import new_server, server


class Faults:
    """Runs statements, and has a fault happen before one of them, or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._honest = module._execute
        self._before: int | None = None
        self._fault: Callable[[Any], None] = lambda _: None
        self._after_commit = False
        self.count = 0
        monkeypatch.setattr(module, "_execute", self._execute)

    @contextlib.contextmanager
    def planned(
        self, before: int | None, fault: Callable[[Any], None], *, after_commit: bool = False
    ) -> Iterator[None]:
        self.count, self._before, self._fault, self._after_commit = 0, before, fault, after_commit
        try:
            yield
        finally:
            self._before, self._after_commit = None, False

    def _execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> Any:
        number, self.count = self.count, self.count + 1
        if number == self._before:
            self._fault(connection)
        found = self._honest(connection, statement, values)
        if statement == "COMMIT" and self._after_commit:
            self._after_commit = False
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return found


def deadlock(_: object) -> None:
    raise psycopg.errors.DeadlockDetected("deadlock detected")


def serialisation_failure(_: object) -> None:
    raise psycopg.errors.SerializationFailure("could not serialize access")


def full_disk(_: object) -> None:
    raise psycopg.errors.DiskFull("could not extend file: No space left on device")


def lost(connection: Any) -> None:
    _other().execute("SELECT pg_terminate_backend(%s, 5000)", (connection.info.backend_pid,))


@cache
def _other() -> psycopg.Connection[Any]:
    return psycopg.connect(server().url(), autocommit=True)


@contextlib.contextmanager
def small_disk() -> Iterator[tuple[Path, str]]:
    """A file system of a few megabytes, and the address of a database on it. Only root can make one."""
    own = new_server()
    folder = Path(tempfile.mkdtemp(prefix="tiny-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m,mode=777", "tmpfs", folder], check=True)
    try:
        (folder / "space").mkdir()
        shutil.chown(folder / "space", "postgres" if Path("/var/lib/postgresql").exists() else "nobody")
        own.run(f"CREATE TABLESPACE tiny LOCATION '{folder / 'space'}'")
        own.run("CREATE DATABASE tiny TABLESPACE tiny")
        yield folder, own.url("tiny")
    finally:
        own.stop("immediate")
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def make_room(folder: Path) -> None:
    """Make a small file system larger, as its operator does."""
    subprocess.run(["mount", "-o", "remount,size=60m", folder], check=True)
