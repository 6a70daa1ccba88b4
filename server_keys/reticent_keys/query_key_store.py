"""The key server's secrets for single queries, which are erased when the last cohort of a query is decided.

With the key of a query and its own key, each contribution shares a secret with the key server. The contribution's pads
come from that secret. Without the query's key nobody can compute the pads, whatever ciphertexts are left on disks.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from reticent.protocol import AgreementKey
from reticent.storage.files import OWNER_ONLY_FOLDER, erase, replace
from reticent_keys.errors import KeyFileError

__all__ = ["QueryKeyStore"]

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
        self._open: dict[bytes, AgreementKey] = {}
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)

    def make(self, query: bytes) -> AgreementKey:
        """A new key for a query, by its digest: when this returns, it survives a loss of power.

        A second call for the same query makes another key, which replaces the first.
        """
        key = AgreementKey()
        if self._folder is not None:
            nonce = secrets.token_bytes(NONCE_BYTES)
            replace(self._path(query), nonce + self._cipher.encrypt(nonce, key.to_bytes(), query))
        with self._lock:
            self._open[query] = key
        return key

    def get(self, query: bytes) -> AgreementKey:
        """The key of a query.

        Raises:
            KeyFileError: Its file is missing, or cannot be opened.
        """
        with self._lock:
            if query not in self._open:
                self._open[query] = self._load(query)
            return self._open[query]

    def erase(self, query: bytes) -> None:
        """Overwrite and delete the key of a query, if there is one."""
        with self._lock:
            self._open.pop(query, None)
        if self._folder is not None:
            erase(self._path(query))

    def erase_all_but(self, queries: Collection[bytes]) -> None:
        """Erase every key but those of these queries, and files that a crash left incomplete."""
        kept = set(queries)
        with self._lock:
            self._open = {query: key for query, key in self._open.items() if query in kept}
        names = {f"{query.hex()}{SUFFIX}" for query in kept}
        for path in () if self._folder is None else list(self._folder.iterdir()):
            if path.name not in names:
                erase(path)

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
