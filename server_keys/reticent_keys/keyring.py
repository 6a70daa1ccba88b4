"""The key pairs of a key server: one is active, former ones drain until all their queries are decided."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from reticent.protocol import Refusal, Refused
from reticent.times import Now, milliseconds
from reticent_keys.errors import KeyFileError
from reticent_keys.journal import IN_USE, Journal, Key, KeyState
from reticent_keys.keypair import KeyPair
from reticent_keys.keypair_store import KeyPairStore

__all__ = ["Keyring"]

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
        """Make a new key pair the active one; the former one drains. Returns the id of the new one."""
        pair = self._generate()
        key = Key(pair.public.key_id.hex(), pair.public.bits, pair.public.to_bytes())
        self._pairs.put(pair)
        self._journal.activate(key, milliseconds(self._now()))
        self.erase_unused()
        return key.id

    def erase_unused(self) -> None:
        """Erase the secret keys that are not in use any more."""
        for key in self._journal.keys(KeyState.DESTROYED, KeyState.RETIRED):
            self._pairs.erase(key.id)

    def active(self) -> Key:
        """The key for new queries.

        Raises:
            Refused: UNAVAILABLE: its pair cannot be opened; or an operator retires all keys at this moment, and has not
                made a new one yet.
        """
        active = self._journal.keys(KeyState.ACTIVE)
        if not active:
            raise Refused(Refusal.UNAVAILABLE, "no key is active at present")
        [key] = active
        self.pair(key)  # otherwise phones would spend budget on queries that cannot be decided
        if key.id != self._logged_active:
            _log.info("key active", extra={"key": key.id[:16], "bits": key.bits})
            self._logged_active = key.id
        return key

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
