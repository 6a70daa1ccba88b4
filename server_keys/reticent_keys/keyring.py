"""Which key pairs there are: one active, others until what was countersigned under them is decided."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database, Execute
from reticent.storage.files import erase
from reticent.times import Now, milliseconds
from reticent_keys.errors import KeyFileError, KeysError
from reticent_keys.journal import IS_DECIDED, UNDECIDED, KeyState
from reticent_keys.keypair import KeyPair

__all__ = ["Keyring", "PublicPart", "Vault", "decidable", "finish_drained", "refuse_retired", "retire_all"]

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
            erase(self._path(key_id))
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
        self._complaints: dict[str, str] = {}  # which keys it says not to be opened, and why

    def begin(self) -> None:
        """Make a first key where none is active, and finish what a crash may have cut short.

        Raises:
            KeyFileError: The active key pair cannot be opened.
        """
        if self._active() is None:
            self.rotate()
        for key in self._found("state IN (?, ?)", *USED):  # rather told now than when the first cohort is to be decided
            if key.state is KeyState.ACTIVE:
                self._vault.get(key.id)
            else:
                with contextlib.suppress(Refused):  # what is under the active one can be decided nevertheless
                    self.pair(key)
        self.active()
        self.clear()

    def rotate(self) -> str:
        """Have a new key pair be the active one; the former one drains. Returns the new one's id."""
        pair = self._generate()
        public = pair.public
        self._vault.put(pair)
        with self._journal.transaction() as run:
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
            Refused: UNAVAILABLE: its pair cannot be opened; or somebody retires all keys and makes a new one at this
                moment.
        """
        found = self._active()
        if found is None:
            raise Refused(Refusal.UNAVAILABLE, "no key is active at present")
        self.pair(found)  # or phones would spend what nobody can decide
        if found.id != self._told:  # by whomever it was made
            _log.info("a key is active", extra={"key": found.id[:16], "bits": found.bits})
            self._told = found.id
        return found

    def of_id(self, key_id: str) -> PublicPart | None:
        """The key of this id, if there ever was one."""
        return next(self._found("id = ?", key_id), None)

    def of_number(self, number: int) -> PublicPart:
        """The key that the journal has under this number."""
        found = next(self._found("number = ?", number), None)
        if found is None:
            raise KeysError(f"the journal knows no key of number {number}")
        return found

    def pair(self, key: PublicPart) -> KeyPair:
        """The secret key, for deciding.

        Raises:
            Refused: KEY_RETIRED: the key is not in use any more. UNAVAILABLE: it cannot be opened; the log says why.
        """
        if key.state.name not in USED:
            raise Refused(Refusal.KEY_RETIRED, f"nothing is decided under this key: {key.state.value}")
        try:
            pair = self._vault.get(key.id)
        except (KeyFileError, OSError, ValueError) as error:
            self._complain(key.id, str(error))
            raise Refused(Refusal.UNAVAILABLE, f"the key pair {key.id[:16]}… cannot be opened at present") from error
        self._complaints.pop(key.id, None)
        return pair

    def _active(self) -> PublicPart | None:
        return next(self._found("state = ?", KeyState.ACTIVE.name), None)

    def _found(self, which: str, *values: str | int) -> Iterator[PublicPart]:
        with self._journal.reading() as run:
            rows = run(f"SELECT number, id, state, bits, public FROM keys WHERE {which}", values).fetchall()  # noqa: S608  # constants
        return (PublicPart(row[0], row[1], KeyState[row[2]], row[3], row[4]) for row in rows)

    def _complain(self, key_id: str, reason: str) -> None:
        """Tell the operator that a pair cannot be opened, once until it can be, or cannot for another reason."""
        if self._complaints.get(key_id) != reason:
            self._complaints[key_id] = reason
            told = {"key": key_id[:16], "reason": reason}
            _log.error("a key pair cannot be opened: nothing is countersigned or decided under it", extra=told)


def refuse_retired(state: KeyState) -> None:
    """Refuse what is asked under a key in this state, if the journal may not know all that was decided under it.

    Raises:
        Refused: KEY_RETIRED.
    """
    if state is KeyState.RETIRED:
        raise Refused(Refusal.KEY_RETIRED, KeyState.RETIRED.value)


def finish_drained(run: Execute, key: int) -> None:
    """Within a transaction: this key is over, if it drains and all its queries are decided in all cohorts."""
    run(
        f"UPDATE keys SET state = ? WHERE number = ? AND state = ? AND {UNDECIDED} = 0",  # noqa: S608  # constants
        (KeyState.DESTROYED.name, key, KeyState.DRAINING.name),
    )


def decidable(journal: Database) -> list[bytes]:
    """The queries of which a cohort may still have to be decrypted, by their digests."""
    with journal.reading() as run:
        found = run(
            "SELECT digest FROM queries JOIN keys ON keys.number = queries.key"  # noqa: S608  # constants
            f" WHERE state IN (?, ?) AND NOT {IS_DECIDED}",
            USED,
        ).fetchall()
    return [digest for (digest,) in found]


def retire_all(journal: Database) -> None:
    """Have no key be good for anything: this journal may not know all that was decided."""
    with journal.transaction() as run:
        run("UPDATE keys SET state = ? WHERE state IN (?, ?)", (KeyState.RETIRED.name, *USED))
