"""The key pairs of a key server at rest: a folder of files that are encrypted under a passphrase."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from reticent.storage.files import erase
from reticent_keys.errors import KeyFileError
from reticent_keys.keypair import KeyPair

__all__ = ["KeyPairStore"]

_log = logging.getLogger(__name__)

SUFFIX = ".key"


class KeyPairStore:
    """Keeps key pairs in files, and those that were used in memory as well.

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
        key_id = pair.public.key_id.hex()
        if self._folder is not None:
            pair.save(self._path(key_id), self._passphrase)
        with self._lock:
            self._open[key_id] = pair

    def get(self, key_id: str) -> KeyPair:
        """The pair with this id.

        Raises:
            KeyFileError: Its file is missing, or cannot be opened.
        """
        with self._lock:
            if key_id not in self._open:
                self._open[key_id] = self._load(key_id)
            return self._open[key_id]

    def erase(self, key_id: str) -> None:
        """Overwrite and delete the pair, if there is one with this id."""
        with self._lock:
            self._open.pop(key_id, None)
        if self._folder is not None and self._path(key_id).exists():
            erase(self._path(key_id))
            _log.info("secret key erased", extra={"key": key_id[:16]})

    def erase_all(self) -> None:
        """Overwrite and delete all pairs, also those that no journal knows."""
        for path in () if self._folder is None else self._folder.glob(f"*{SUFFIX}"):
            self.erase(path.stem)

    def _load(self, key_id: str) -> KeyPair:
        if self._folder is None or not self._path(key_id).exists():
            raise KeyFileError(f"the key pair {key_id[:16]}… is missing in {self._folder}")
        pair = KeyPair.load(self._path(key_id), self._passphrase, simulation=self._simulation)
        if pair.public.key_id.hex() != key_id:
            raise KeyFileError(f"{self._path(key_id)} does not hold the key pair of its name")
        return pair

    def _path(self, key_id: str) -> Path:
        assert self._folder is not None  # noqa: S101  # checked by all callers
        return self._folder / f"{key_id}{SUFFIX}"

    def __repr__(self) -> str:
        return f"KeyPairStore({self._folder})"
