"""The key pairs of a key server: pending, active, draining until all their queries are decided, and destroyed."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Callable

from reticent.protocol import Refusal, Refused
from reticent.times import Now, milliseconds
from reticent_keys.errors import KeyFileError
from reticent_keys.journal import IN_USE, Journal, Key, KeyState
from reticent_keys.keypair import KeyPair
from reticent_keys.keypair_store import KeyPairStore

__all__ = ["ROTATION", "Keyring"]

ROTATION = dt.timedelta(days=90)
"""The time for which a key is active. Whoever steals one can use it for the queries of this time only."""
AHEAD = dt.timedelta(days=1)
"""The time by which a key is made before it is due: making one takes seconds, and no query should wait for that."""

_log = logging.getLogger(__name__)


class Keyring:
    """The key pairs of a key server.

    Another process may rotate them at any time, so each method reads their states from the journal.

    Args:
        journal: Records the state of each pair.
        pairs: Keeps the secret keys.
        generate: Makes a new pair, which takes seconds.
        now: The clock.
    """

    def __init__(self, journal: Journal, pairs: KeyPairStore, generate: Callable[[], KeyPair], now: Now) -> None:
        self._journal = journal
        self._pairs = pairs
        self._generate = generate
        self._now = now
        self._logged_active = ""
        self._logged_failures: dict[str, str] = {}  # reasons by key

    def start(self) -> None:
        """Make a first key if none is active, and finish what a crash interrupted.

        Raises:
            KeyFileError: The active key pair cannot be opened.
        """
        if not self._journal.keys(KeyState.ACTIVE):
            self.rotate()
        for key in self._journal.keys(*IN_USE):  # the operator should learn of failures before a cohort is due
            if key.state is KeyState.ACTIVE:
                self._pairs.get(key.id)
            else:
                with contextlib.suppress(Refused):  # queries under the active key can still be decided
                    self.pair(key)
        self.active()
        self.erase_unused()

    def rotate(self) -> str:
        """Make a new key pair the active one; the former one drains. Returns the id of the active one.

        Raises:
            Refused: UNAVAILABLE: an operator retires all keys at this moment.
        """
        self._activate(self._made())
        return self._active().id

    def rotate_if_due(self, every: dt.timedelta) -> None:
        """Make the next key a day before it is due, and the active one when it is due.

        Args:
            every: The time for which a key is active.

        Raises:
            JournalError: The journal was restored from a backup.
        """
        active, since = self._journal.keys(KeyState.ACTIVE), self._journal.active_since()
        if not active or since is None:  # an operator rotates at this moment
            return
        due = since + every // dt.timedelta(milliseconds=1)
        now = milliseconds(self._now())
        if now < due - AHEAD // dt.timedelta(milliseconds=1):
            return
        self._journal.check_complete()
        key = self._pending()
        if key is None:
            key = self._made()
            self._journal.add_pending(key, now)
            _log.info("next key made", extra={"key": key.id[:16], "bits": key.bits})
        if now >= due:
            self._activate(key, replaces=active[0].id)

    def _made(self) -> Key:
        """A new key, whose pair is on disk."""
        pair = self._generate()
        self._pairs.put(pair)
        return Key(pair.public.key_id.hex(), pair.public.bits, pair.public.to_bytes())

    def _pending(self) -> Key | None:
        """A key that was made ahead, and can be opened."""
        for key in self._journal.keys(KeyState.PENDING):
            with contextlib.suppress(KeyFileError, OSError, ValueError):
                self._pairs.get(key.id)
                return key
        return None

    def _activate(self, key: Key, replaces: str | None = None) -> None:
        self._journal.activate(key, milliseconds(self._now()), replaces)
        self.erase_unused()

    def erase_unused(self) -> None:
        """Erase the secret keys that are not in use any more, also those of which all queries are overdue."""
        if self._journal.keys(KeyState.DRAINING):
            self._journal.destroy_unused(milliseconds(self._now()))
        for key in self._journal.keys(KeyState.DESTROYED, KeyState.RETIRED):
            self._pairs.erase(key.id)

    def active(self) -> Key:
        """The key for new queries.

        Raises:
            Refused: UNAVAILABLE: its pair cannot be opened; or an operator retires all keys at this moment, and has not
                made a new one yet.
        """
        key = self._active()
        self.pair(key)  # otherwise phones would spend budget on queries that cannot be decided
        if key.id != self._logged_active:
            _log.info("key active", extra={"key": key.id[:16], "bits": key.bits})
            self._logged_active = key.id
        return key

    def _active(self) -> Key:
        active = self._journal.keys(KeyState.ACTIVE)
        if not active:
            raise Refused(Refusal.UNAVAILABLE, "no key is active at present")
        return active[0]

    def pair(self, key: Key) -> KeyPair:
        """The secret key, for decryption.

        Raises:
            Refused: KEY_RETIRED: the key is not in use any more. UNAVAILABLE: its pair cannot be opened; the log says
                why.
        """
        if key.state not in IN_USE:
            raise Refused(Refusal.KEY_RETIRED, f"nothing is decided under this key: {key.state.value}")
        try:
            pair = self._pairs.get(key.id)
        except (KeyFileError, OSError, ValueError) as error:
            self._log_failure(key.id, str(error))
            raise Refused(Refusal.UNAVAILABLE, f"the key pair {key.id[:16]}… cannot be opened at present") from error
        self._logged_failures.pop(key.id, None)
        return pair

    def _log_failure(self, key_id: str, reason: str) -> None:
        """Log that a pair cannot be opened, once for each reason in a row."""
        if self._logged_failures.get(key_id) != reason:
            self._logged_failures[key_id] = reason
            _log.error(
                "a key pair cannot be opened: no query is countersigned or decided under it",
                extra={"key": key_id[:16], "reason": reason},
            )
