"""The key server's secrets for single queries, which are erased when the last cohort of a query is decided.

With the key of a query and its own key, each contribution shares a secret with the key server. The contribution's pads
come from that secret. Without the query's key nobody can compute the pads, whatever ciphertexts are left on disks.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reticent.protocol import AgreementKey
from reticent.storage.files import erase, make_folder, replace
from reticent_keys.errors import KeyFileError

__all__ = ["QueryKeyStore"]

_log = logging.getLogger(__name__)

SUFFIX = ".key"
NONCE_BYTES = 12


class QueryKeyStore:
    """Keeps an X25519 key for each undecided query, in a folder of encrypted files.

    Args:
        folder: Where the files are; None to keep the keys in memory only.
        storage_key: Encrypts the files: 32 bytes.
    """

    def __init__(self, folder: Path | None, storage_key: bytes = bytes(32)) -> None:
        self._folder = folder
        self._cipher = AESGCM(storage_key)
        self._in_memory: dict[bytes, AgreementKey] = {}  # without a folder only: what is erased is then nowhere
        self._to_erase: set[bytes] = set()
        self._lock = threading.Lock()
        if folder is not None:
            make_folder(folder)

    def make(self, query: bytes) -> AgreementKey:
        """A new key for a query, by its digest: when this returns, it survives a loss of power.

        A second call for the same query makes another key, which replaces the first.
        """
        key = AgreementKey()
        if self._folder is None:
            self._in_memory[query] = key
        else:
            nonce = secrets.token_bytes(NONCE_BYTES)
            replace(self._path(query), nonce + self._cipher.encrypt(nonce, key.to_bytes(), query))
        return key

    def get(self, query: bytes) -> AgreementKey:
        """The key of a query.

        Raises:
            KeyFileError: Its file is missing, or cannot be opened.
        """
        return self._in_memory.get(query) or self._load(query)

    def erase(self, query: bytes) -> None:
        """Overwrite and delete the key of a query, if there is one.

        A file that cannot be erased is logged, and tried again by the next call and by the next start.
        """
        self._in_memory.pop(query, None)
        if self._folder is None:
            return
        with self._lock:
            self._to_erase.add(query)
            for each in sorted(self._to_erase):
                try:
                    erase(self._path(each))
                except OSError as error:
                    _log.error("the key of a query cannot be erased", extra={"query": each.hex(), "reason": str(error)})
                else:
                    self._to_erase.remove(each)

    def erase_all_but(self, queries: Collection[bytes]) -> None:
        """Erase every key but those of these queries, and files that a crash left incomplete.

        No key may be made meanwhile.

        Raises:
            OSError: A file cannot be erased; all others are.
        """
        kept = set(queries)
        for query in set(self._in_memory) - kept:
            self._in_memory.pop(query, None)
        names = {f"{query.hex()}{SUFFIX}" for query in kept}
        failure: OSError | None = None
        for path in () if self._folder is None else list(self._folder.iterdir()):
            if path.name not in names:
                try:
                    erase(path)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure

    def _load(self, query: bytes) -> AgreementKey:
        if self._folder is None or not self._path(query).exists():
            raise KeyFileError(f"the key of the query {query.hex()[:16]}… is missing in {self._folder}")
        content = self._path(query).read_bytes()
        try:
            return AgreementKey(self._cipher.decrypt(content[:NONCE_BYTES], content[NONCE_BYTES:], query))
        except (InvalidTag, ValueError):
            raise KeyFileError(f"{self._path(query)} is damaged, or was encrypted by another server") from None

    def _path(self, query: bytes) -> Path:
        assert self._folder is not None  # noqa: S101  # checked by all callers
        return self._folder / f"{query.hex()}{SUFFIX}"

    def __repr__(self) -> str:
        return f"QueryKeyStore({self._folder})"
