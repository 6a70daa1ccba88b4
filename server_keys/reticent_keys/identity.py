"""The identity of a key server: the key with which it signs, and by which phones know it."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from reticent.protocol import SigningKey
from reticent.protocol.keys import KEY_BYTES
from reticent.storage.files import create
from reticent_keys import sealing
from reticent_keys.errors import KeyFileError

__all__ = ["Identity"]


STORAGE = b"reticent.storage.1\n"  # separates the storage key from any other use of the signing key


class Identity:
    """The signing key of a key server, which never changes; a new one unless one is given. It never prints its secret.

    Args:
        signing: Signs memberships, countersignatures and decisions.
    """

    def __init__(self, signing: SigningKey | None = None) -> None:
        self.signing = signing or SigningKey()

    @property
    def public(self) -> bytes:
        """The public Ed25519 key, which invitations name."""
        return self.signing.public

    def storage_key(self) -> bytes:
        """The key that encrypts the keys of single queries at rest, so that the passphrase protects them too."""
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=STORAGE).derive(self.signing.to_bytes())

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the identity, sealed, to a new file, readable by its owner only, whole or not at all.

        Raises:
            FileExistsError: The file exists.
            ValueError: The passphrase is empty, or not text.
        """
        create(Path(path), sealing.sealed(self.signing.to_bytes(), passphrase, sealing.IDENTITY))

    @classmethod
    def load(cls, path: str | Path, passphrase: str) -> Identity:
        """The identity of a file that `save` wrote.

        Raises:
            WrongPassphrase: It was sealed with another passphrase.
            KeyFileError: It is damaged, foreign or of a newer version.
        """
        content = sealing.opened(Path(path).read_bytes(), passphrase, sealing.IDENTITY)
        if len(content) != KEY_BYTES:
            raise KeyFileError("this does not hold an identity")
        return cls(SigningKey(content))

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()[:16]}…)"
