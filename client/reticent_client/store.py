"""The persistent state of phones: one SQLite file, for one phone or for many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from reticent.privacy import Composition, Cost, Ledger
from reticent.storage.database import claimed
from reticent.storage.group_commit import GroupedDatabase
from reticent.storage.sql import Execute, FileFormat, InUse
from reticent_client.errors import FileError

Result = TypeVar("Result")

APPLICATION = 0x52455443  # "RETC"
PHONE = "phone"
"""The name of the phone of a file that holds one."""

_SCHEMA = f"""
CREATE TABLE slots (
    phone TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (phone, name)
) WITHOUT ROWID;
CREATE TABLE messages (
    phone TEXT NOT NULL, stream TEXT NOT NULL, position INTEGER NOT NULL, message BLOB NOT NULL,
    PRIMARY KEY (phone, stream, position)
) WITHOUT ROWID;
CREATE TABLE contributions (
    phone TEXT NOT NULL, query BLOB NOT NULL, id TEXT NOT NULL, account TEXT NOT NULL, terms TEXT NOT NULL,
    cost TEXT NOT NULL, cohort INTEGER NOT NULL, identity BLOB NOT NULL, state TEXT NOT NULL, l1 INTEGER NOT NULL,
    l2_squared INTEGER NOT NULL, contribution BLOB NOT NULL, message BLOB, size INTEGER NOT NULL,
    seeded INTEGER NOT NULL, attempts INTEGER NOT NULL, not_before INTEGER NOT NULL, made INTEGER NOT NULL,
    detail TEXT NOT NULL, PRIMARY KEY (phone, query), UNIQUE (phone, id)
) WITHOUT ROWID;
CREATE INDEX contributions_by_state ON contributions (phone, state);
CREATE TABLE declined (
    phone TEXT NOT NULL, announcement BLOB NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL, sentence TEXT NOT NULL,
    policy TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (phone, announcement)
) WITHOUT ROWID;
CREATE TABLE counters (
    phone TEXT NOT NULL, app TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (phone, app, name)
) WITHOUT ROWID;
CREATE TABLE reports (phone TEXT NOT NULL, app TEXT NOT NULL, at INTEGER NOT NULL);
CREATE INDEX reports_by_app ON reports (phone, app, at);
CREATE TABLE ads (
    phone TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, day TEXT NOT NULL, app TEXT NOT NULL,
    position INTEGER, context TEXT, node TEXT NOT NULL, ad TEXT, showing TEXT, clicked INTEGER NOT NULL,
    explanation TEXT, PRIMARY KEY (phone, number)
) WITHOUT ROWID;
CREATE INDEX ads_by_day ON ads (phone, day);
CREATE INDEX ads_by_showing ON ads (phone, showing);
CREATE TABLE chosen_views (
    phone TEXT NOT NULL, account TEXT NOT NULL, at INTEGER NOT NULL, views TEXT NOT NULL, PRIMARY KEY (phone, account)
) WITHOUT ROWID;
{Ledger.SCHEMA};
"""
_DEVELOPMENT = "development"  # the slot that marks the store of a phone in development
_DROPPED = "dropped"  # the slot of the position of the last message that was forgotten

_KIND = FileFormat("a phone's store", APPLICATION, _SCHEMA, FileError)


class PhoneStore:
    """The persistent state of one phone, in a file that is readable by its owner only and may hold many phones.

    What a method has written is on disk when it returns; within `transaction`, when that ends. Phones of one process
    that write at the same time, from several threads or from tasks that use `transact`, wait for the disk together.

    Args:
        path: Where the file is or will be; in memory, for as long as it is used, unless given.
        phone: The name of the phone.

    >>> store = PhoneStore()
    >>> store.slot("mask").write("...")
    >>> store.slot("mask").read()
    '...'
    >>> store.of("another phone").slot("mask").read() is None
    True
    >>> store.close()
    """

    __slots__ = ("_file", "database", "phone")

    def __init__(self, path: str | Path | None = None, phone: str = PHONE) -> None:
        self._file = _File(None if path is None else Path(path))
        self.database: GroupedDatabase = self._file.database
        """The file, which holds other phones as well."""
        self.phone = phone

    def of(self, phone: str) -> PhoneStore:
        """The store of another phone in the same file."""
        store = object.__new__(type(self))
        store._file, store.database, store.phone = self._file, self.database, phone
        return store

    @property
    def path(self) -> Path | None:
        """The path of the file."""
        return self.database.path

    def transaction(self) -> contextlib.AbstractContextManager[Execute]:
        """Commit all that this thread writes together when this ends, or nothing."""
        return self.database.transaction()

    async def transact(self, change: Callable[[], Result]) -> Result:
        """Commit all that a function writes together: see `GroupedDatabase.transact`."""
        return await self.database.transact(change)

    def slot(self, name: str) -> StoreSlot:
        """The slot of this name: a `Store` for one text."""
        return StoreSlot(self, name)

    def ledger(self, budget: Cost, composition: Composition = "addition") -> Ledger:
        """The ledger of this phone, in the same file."""
        return Ledger(budget, self.database, composition=composition, subject=self.phone)

    @contextlib.contextmanager
    def claim(self, part: str = "") -> Iterator[None]:
        """Be the only one that runs this phone, or a part of it; and be the only process that does so from this file.

        Raises:
            InUse: Another one does.
        """
        with self._file.claim(part, self.phone):
            yield

    def beginning_with(self, prefix: str) -> dict[str, str]:
        """The contents of the slots whose names begin so, by the rest of their names."""
        with self.database.reading() as run:
            rows = run("SELECT name, content FROM slots WHERE phone = ? ORDER BY name", (self.phone,)).fetchall()
        return {name.removeprefix(prefix): content for name, content in rows if name.startswith(prefix)}

    def keep_only(self, prefix: str, names: Iterable[str]) -> None:
        """Forget the slots whose names begin so, but for some."""
        kept = set(names)
        with self.database.transaction() as run:
            for name in self.beginning_with(prefix):
                if prefix + name not in kept:
                    run("DELETE FROM slots WHERE phone = ? AND name = ?", (self.phone, prefix + name))

    def append(self, position: int, messages: Mapping[str, bytes], held: int) -> dict[str, bytes]:
        """Keep a message of each stream, of its last ones no more than are to be held, and none of other streams.

        What is kept: the first message, where one was kept for this position before.
        """
        kept = {}
        with self.database.transaction() as run:
            self._drop(run, list(messages), held - 1)
            for stream, message in messages.items():
                place = (self.phone, stream, position)
                run("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", (*place, message))
                row = run(
                    "SELECT message FROM messages WHERE phone = ? AND stream = ? AND position = ?", place
                ).fetchone()
                kept[stream] = message if row is None else bytes(row[0])
        return kept

    def messages(self) -> list[tuple[int, dict[str, bytes]]]:
        """The messages that are kept: the positions, and the message of each stream."""
        with self.database.reading() as run:
            rows = run(
                "SELECT position, stream, message FROM messages WHERE phone = ? ORDER BY position", (self.phone,)
            ).fetchall()
        found: dict[int, dict[str, bytes]] = {}
        for position, stream, message in rows:
            found.setdefault(int(position), {})[str(stream)] = bytes(message)
        return list(found.items())

    def forget_stream(self, stream: str) -> bool:
        """Delete the messages of a stream, for `database.erase_deleted` to erase. Returns whether there were any."""
        with self.database.transaction() as run:
            return run("DELETE FROM messages WHERE phone = ? AND stream = ?", (self.phone, stream)).rowcount > 0

    @property
    def dropped(self) -> int | None:
        """The position of the last message that is no longer kept; None where none was ever noted."""
        text = self.slot(_DROPPED).read()
        return None if text is None else int(text)

    @dropped.setter
    def dropped(self, position: int) -> None:
        self.slot(_DROPPED).write(str(position))

    @property
    def in_development(self) -> bool:
        """Whether this is the store of a phone that lives past days on a fast clock."""
        return self.slot(_DEVELOPMENT).read() is not None

    def mark_in_development(self) -> None:
        """State that this phone never runs in real time."""
        self.slot(_DEVELOPMENT).write("")

    def close(self) -> None:
        """Close the file, for all of its phones."""
        self._file.database.close()

    def _drop(self, run: Execute, streams: Sequence[str], held: int) -> None:
        """Forget the messages of other streams, and remember up to where those of these were forgotten."""
        marks = ", ".join("?" * len(streams))
        run(f"DELETE FROM messages WHERE phone = ? AND stream NOT IN ({marks})", (self.phone, *streams))  # noqa: S608  # only marks
        (last,) = run(
            "SELECT max(position) FROM (SELECT DISTINCT position FROM messages WHERE phone = ? "
            "ORDER BY position DESC LIMIT -1 OFFSET ?)",
            (self.phone, held),
        ).fetchone()
        if last is not None:
            run("DELETE FROM messages WHERE phone = ? AND position <= ?", (self.phone, last))
            self.dropped = int(last)


class StoreSlot:
    """One text of a phone's store."""

    __slots__ = ("_database", "_phone", "name")

    def __init__(self, store: PhoneStore, name: str) -> None:
        self._database, self._phone = store.database, store.phone
        self.name = name

    def read(self) -> str | None:
        """The content of the slot, None where nothing was ever written."""
        with self._database.reading() as run:
            row = run("SELECT content FROM slots WHERE phone = ? AND name = ?", (self._phone, self.name)).fetchone()
        return None if row is None else str(row[0])

    def write(self, text: str) -> None:
        """Replace the content of the slot."""
        with self._database.transaction() as run:
            run("INSERT OR REPLACE INTO slots VALUES (?, ?, ?)", (self._phone, self.name, text))

    def change(self, function: Callable[[str | None], str]) -> None:
        """Replace the content by what a function makes of it; nobody else writes in between."""
        with self._database.transaction():
            self.write(function(self.read()))


class _File:
    """An open file, and which of its phones this process runs."""

    def __init__(self, path: Path | None) -> None:
        self.database = GroupedDatabase(path, _KIND)
        self._claims: dict[str, tuple[contextlib.ExitStack, set[str]]] = {}

    @contextlib.contextmanager
    def claim(self, part: str, phone: str) -> Iterator[None]:
        path = self.database.path
        if path is None:
            yield
            return
        occupied = InUse(f"another process runs the phone of {path}")
        if part not in self._claims:
            stack = contextlib.ExitStack()
            stack.enter_context(claimed(Path(f"{path}{part and f'.{part}'}"), occupied))
            self._claims[part] = stack, set()
        stack, phones = self._claims[part]
        if phone in phones:
            raise occupied
        phones.add(phone)
        try:
            yield
        finally:
            phones.remove(phone)
            if not phones:
                del self._claims[part]
                stack.close()
