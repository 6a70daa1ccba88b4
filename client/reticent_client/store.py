"""What a phone must not forget, in one SQLite file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from reticent.storage.database import Database, Execute, FileFormat, InUse, claimed
from reticent_client.errors import FileError

APPLICATION = 0x52455443  # "RETC"
VERSION = 2

_SCHEMA = """
CREATE TABLE places (name TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (
    stream TEXT NOT NULL, position INTEGER NOT NULL, message BLOB NOT NULL, PRIMARY KEY (stream, position)
) WITHOUT ROWID;
"""
_COUNTING = """
CREATE TABLE contributions (
    query BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, account TEXT NOT NULL, terms TEXT NOT NULL, cost TEXT NOT NULL,
    cohort INTEGER NOT NULL, identity BLOB NOT NULL, state TEXT NOT NULL, l1 INTEGER NOT NULL,
    l2_squared INTEGER NOT NULL, contribution BLOB NOT NULL, message BLOB, size INTEGER NOT NULL,
    seeded INTEGER NOT NULL, attempts INTEGER NOT NULL, not_before INTEGER NOT NULL, made INTEGER NOT NULL,
    detail TEXT NOT NULL, settled INTEGER NOT NULL
);
CREATE INDEX contributions_by_state ON contributions (state);
CREATE INDEX contributions_by_account ON contributions (account);
CREATE INDEX contributions_by_answer ON contributions (contribution);
CREATE TABLE declined (
    announcement BLOB PRIMARY KEY, id TEXT NOT NULL, reason TEXT NOT NULL, sentence TEXT NOT NULL, policy TEXT NOT NULL,
    at INTEGER NOT NULL
);
"""
_DROPPED = "dropped"  # the place of the position of the last message that was forgotten


_KIND = FileFormat("a phone's store", APPLICATION, VERSION, _SCHEMA, FileError, migrations=(_COUNTING,))


class SqliteStore:
    """One file, readable by its owner only, with a place for each thing that must survive a kill.

    What a place has taken is on disk when `write` returns. Several processes may use the file, one of them as the
    phone.

    Args:
        path: Where the file is or will be; in memory, for as long as it is used, unless given.

    >>> store = SqliteStore()
    >>> store.place("mask").write("...")
    >>> store.place("mask").read()
    '...'
    >>> store.close()
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._database = Database(self.path, _KIND, older=True)

    @property
    def database(self) -> Database:
        """The file, for those who keep tables of their own in it."""
        return self._database

    def place(self, name: str) -> Place:
        """The place of this name: a `Store` for one text."""
        return Place(self, name)

    @contextlib.contextmanager
    def claim(self, part: str = "") -> Iterator[None]:
        """Be the one process that runs the phone of this file, or a part of the phone.

        Raises:
            InUse: Another one does.
        """
        if self.path is None:
            yield
            return
        taken = InUse(f"another process runs the phone of {self.path}")
        with claimed(Path(f"{self.path}{part and f'.{part}'}"), taken):
            yield

    def read(self, name: str) -> str | None:
        """What a place holds, None where nothing was ever written."""
        with self._database.reading() as run:
            row = run("SELECT content FROM places WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def beginning_with(self, prefix: str) -> dict[str, str]:
        """What the places hold whose names begin so, by the rest of their names."""
        with self._database.reading() as run:
            rows = run("SELECT name, content FROM places ORDER BY name").fetchall()
        return {name.removeprefix(prefix): content for name, content in rows if name.startswith(prefix)}

    def write(self, name: str, content: str) -> None:
        """Put a text in the place of what was there."""
        with self._database.transaction() as run:
            run("INSERT OR REPLACE INTO places VALUES (?, ?)", (name, content))

    def keep_only(self, prefix: str, names: Iterable[str]) -> None:
        """Forget the places whose names begin so, but for some."""
        kept = set(names)
        with self._database.transaction() as run:
            for (name,) in run("SELECT name FROM places").fetchall():
                if name.startswith(prefix) and name not in kept:
                    run("DELETE FROM places WHERE name = ?", (name,))

    def change(self, name: str, function: Callable[[str | None], str]) -> None:
        """Put in a place what a function makes of what it holds; nobody else writes in between."""
        with self._database.transaction() as run:
            row = run("SELECT content FROM places WHERE name = ?", (name,)).fetchone()
            content = function(None if row is None else str(row[0]))
            run("INSERT OR REPLACE INTO places VALUES (?, ?)", (name, content))

    def append(self, position: int, messages: Mapping[str, bytes], held: int) -> dict[str, bytes]:
        """Keep a message of each stream, of its last ones no more than are to be held, and none of other streams.

        What is kept: the first message, where one was kept for this position before.
        """
        kept = {}
        with self._database.transaction() as run:
            _drop(run, list(messages), held - 1)
            for stream, message in messages.items():
                run("INSERT OR IGNORE INTO messages VALUES (?, ?, ?)", (stream, position, message))
                row = run(
                    "SELECT message FROM messages WHERE stream = ? AND position = ?", (stream, position)
                ).fetchone()
                kept[stream] = message if row is None else bytes(row[0])
        return kept

    def messages(self) -> list[tuple[int, dict[str, bytes]]]:
        """What is kept: the positions, and the message of each stream."""
        with self._database.reading() as run:
            rows = run("SELECT position, stream, message FROM messages ORDER BY position").fetchall()
        found: dict[int, dict[str, bytes]] = {}
        for position, stream, message in rows:
            found.setdefault(int(position), {})[str(stream)] = bytes(message)
        return list(found.items())

    @property
    def dropped(self) -> int | None:
        """The position of the last message that is no longer kept; None where that was never said."""
        text = self.read(_DROPPED)
        return None if text is None else int(text)

    @dropped.setter
    def dropped(self, position: int) -> None:
        self.write(_DROPPED, str(position))

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


class Place:
    """One text of a `SqliteStore`."""

    def __init__(self, store: SqliteStore, name: str) -> None:
        self._store = store
        self.name = name

    def read(self) -> str | None:
        """What it holds, None where nothing was ever written."""
        return self._store.read(self.name)

    def write(self, text: str) -> None:
        """Put a text in the place of what was there; on disk when this returns."""
        self._store.write(self.name, text)

    def change(self, function: Callable[[str | None], str]) -> None:
        """Put in it what a function makes of what it holds; nobody else writes in between."""
        self._store.change(self.name, function)


def _drop(run: Execute, streams: Sequence[str], held: int) -> None:
    """Forget the messages of other streams, and remember up to where those of these were forgotten."""
    marks = ", ".join("?" * len(streams))
    run(f"DELETE FROM messages WHERE stream NOT IN ({marks})", streams)  # noqa: S608  # only marks
    (last,) = run(
        "SELECT max(position) FROM (SELECT DISTINCT position FROM messages ORDER BY position DESC LIMIT -1 OFFSET ?)",
        (held,),
    ).fetchone()
    if last is not None:
        run("DELETE FROM messages WHERE position <= ?", (last,))
        run("INSERT OR REPLACE INTO places VALUES (?, ?)", (_DROPPED, str(last)))
