"""Which key pairs there are: one active, others until what was countersigned under them is decided."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reticent.database import Database
from reticent.protocol import Refusal, Refused
from reticent.times import milliseconds
from reticent_keys.errors import KeyFileError, KeysError
from reticent_keys.journal import KeyState, Now
from reticent_keys.keypair import KeyPair

__all__ = ["Keyring", "PublicPart", "Vault", "finish_drained", "retire_all"]

_log = logging.getLogger(__name__)

USED = (KeyState.ACTIVE.name, KeyState.DRAINING.name)
SUFFIX = ".key"


class Vault:
    """Key pairs at rest, in a folder of sealed files.

    Args:
        folder: Where the files are; None to keep the pairs in memory only.
        passphrase: Opens all of them.
        simulation: Accept lengths that are only good for simulation as well.
    """

    def __init__(self, folder: Path | None, passphrase: str = "", *, simulation: bool = False) -> None:
        self._folder = folder
        self._passphrase = passphrase
        self._simulation = simulation
        self._open: dict[str, KeyPair] = {}
        self._lock = threading.Lock()

    def put(self, pair: KeyPair) -> None:
        """Keep a new pair: when this returns, it survives a loss of power."""
        name = pair.public.key_id.hex()
        if self._folder is not None:
            pair.save(self._path(name), self._passphrase)
        with self._lock:
            self._open[name] = pair

    def get(self, key_id: str) -> KeyPair:
        """The pair of this id.

        Raises:
            KeyFileError: It is not there, or cannot be opened.
        """
        with self._lock:
            if key_id not in self._open:
                self._open[key_id] = self._loaded(key_id)
            return self._open[key_id]

    def destroy(self, key_id: str) -> None:
        """Have the pair no longer, if it was there."""
        with self._lock:
            self._open.pop(key_id, None)
        if self._folder is not None and self._path(key_id).exists():
            self._path(key_id).unlink(missing_ok=True)
            _log.info("a secret key is destroyed", extra={"key": key_id[:16]})

    def _loaded(self, key_id: str) -> KeyPair:
        if self._folder is None or not self._path(key_id).exists():
            raise KeyFileError(f"the key pair {key_id[:16]}… is not where it was kept: {self._folder}")
        pair = KeyPair.load(self._path(key_id), self._passphrase, simulation=self._simulation)
        if pair.public.key_id.hex() != key_id:
            raise KeyFileError(f"{self._path(key_id)} holds another key pair than its name says")
        return pair

    def _path(self, key_id: str) -> Path:
        assert self._folder is not None  # noqa: S101  # asked by all who call it
        return self._folder / f"{key_id}{SUFFIX}"

    def __repr__(self) -> str:
        return f"Vault({self._folder})"


class PublicPart(NamedTuple):
    """What the journal says of a key pair."""

    number: int
    id: str
    state: KeyState
    bits: int
    public: bytes


class Keyring:
    """The key pairs of a key server.

    Another process may rotate them meanwhile: what is good for what is looked up in the journal each time.

    Args:
        journal: Says what each pair is good for.
        vault: Has the secret keys.
        generate: Makes a new pair, which takes seconds.
        now: Says what time it is.
    """

    def __init__(self, journal: Database, vault: Vault, generate: Callable[[], KeyPair], now: Now) -> None:
        self._journal = journal
        self._vault = vault
        self._generate = generate
        self._now = now
        self._told = ""  # which key the log says to be active

    def begin(self) -> None:
        """Make a first key where none is active, and finish what a crash may have cut short.

        Raises:
            KeyFileError: The active key pair cannot be opened.
        """
        if self._active() is None:
            self.rotate()
        self._vault.get(self.active().id)  # rather told now than when the first cohort is to be decided
        self.clear()

    def rotate(self) -> str:
        """Have a new key pair be the active one; the former one drains. Returns the new one's id."""
        pair = self._generate()
        public = pair.public
        self._vault.put(pair)
        with self._journal.changing() as run:
            former = run("SELECT number FROM keys WHERE state = ?", (KeyState.ACTIVE.name,)).fetchone()
            if former is not None:
                run("UPDATE keys SET state = ? WHERE number = ?", (KeyState.DRAINING.name, *former))
                finish_drained(run, *former)
            run(
                "INSERT INTO keys (id, state, bits, public, made) VALUES (?, ?, ?, ?, ?)",
                (
                    public.key_id.hex(),
                    KeyState.ACTIVE.name,
                    public.bits,
                    public.to_bytes(),
                    milliseconds(self._now()),
                ),
            )
        self.clear()
        return public.key_id.hex()

    def clear(self) -> None:
        """Have no pair any longer that is of no use."""
        with self._journal.reading() as run:
            over = run("SELECT id FROM keys WHERE state NOT IN (?, ?)", USED).fetchall()
        for (key_id,) in over:
            self._vault.destroy(key_id)

    def active(self) -> PublicPart:
        """The key that new queries are to name.

        Raises:
            Refused: UNAVAILABLE: somebody retires all keys and makes a new one at this moment.
        """
        found = self._active()
        if found is None:
            raise Refused(Refusal.UNAVAILABLE, "no key is active at present")
        if found.id != self._told:  # by whomever it was made
            _log.info("a key is active", extra={"key": found.id[:16], "bits": found.bits})
            self._told = found.id
        return found

    def of_id(self, key_id: str) -> PublicPart | None:
        """The key of this id, if there ever was one."""
        return self._found("id = ?", key_id)

    def of_number(self, number: int) -> PublicPart:
        """The key that the journal has under this number."""
        found = self._found("number = ?", number)
        if found is None:
            raise KeysError(f"the journal knows no key of number {number}")
        return found

    def pair(self, key: PublicPart) -> KeyPair:
        """The secret key, for deciding.

        Raises:
            Refused: The key is not in use any more.
        """
        if key.state.name not in USED:
            raise Refused(Refusal.KEY_RETIRED, f"nothing is decided under this key: {key.state.value}")
        return self._vault.get(key.id)

    def _active(self) -> PublicPart | None:
        return self._found("state = ?", KeyState.ACTIVE.name)

    def _found(self, which: str, value: str | int) -> PublicPart | None:
        with self._journal.reading() as run:
            row = run(f"SELECT number, id, state, bits, public FROM keys WHERE {which}", (value,)).fetchone()  # noqa: S608
        return row and PublicPart(row[0], row[1], KeyState[row[2]], row[3], row[4])


def finish_drained(run: Callable[..., object], key: int) -> None:
    """Within a transaction: this key is over, if it drains and all its queries are decided in all cohorts."""
    run(
        "UPDATE keys SET state = ? WHERE number = ? AND state = ?"
        " AND (SELECT coalesce(sum(cohorts), 0) FROM queries WHERE key = keys.number)"
        " = (SELECT count(*) FROM decisions JOIN queries ON queries.number = decisions.query"
        " WHERE queries.key = keys.number)",
        (KeyState.DESTROYED.name, key, KeyState.DRAINING.name),
    )


def retire_all(journal: Database) -> None:
    """Have no key be good for anything: this journal may not know all that was decided."""
    with journal.changing() as run:
        run("UPDATE keys SET state = ? WHERE state IN (?, ?)", (KeyState.RETIRED.name, *USED))
