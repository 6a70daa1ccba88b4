"""The keys of phones and servers, for signatures and shared secrets. They never print their secrets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Never

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = [
    "KEY_BYTES",
    "PHONE_BYTES",
    "SIGNATURE_BYTES",
    "AgreementKey",
    "SigningKey",
    "has_small_order",
    "identity_of",
    "shared_secret",
    "signed_by",
]

KEY_BYTES = 32
SIGNATURE_BYTES = 64
PHONE_BYTES = 16
_FIELD = 2**255 - 19
_CURVE = -121665 * pow(121666, -1, _FIELD) % _FIELD  # d of the curve of Ed25519
SECRET = b"reticent.secret.1\n"  # separates these secrets from others of the same keys


class _Secret:
    """A secret key, which is never printed."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __reduce__(self) -> Never:
        raise TypeError("a secret key cannot be copied or pickled: use to_bytes")


class SigningKey(_Secret):
    """An Ed25519 key pair: the one with these 32 bytes, or a new one."""

    def __init__(self, content: bytes | None = None) -> None:
        self._key = Ed25519PrivateKey.generate() if content is None else Ed25519PrivateKey.from_private_bytes(content)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """The signature of a statement of `reticent.protocol.statements`; it is deterministic."""
        return self._key.sign(statement)

    def to_bytes(self) -> bytes:
        """The secret key."""
        return self._key.private_bytes_raw()


class AgreementKey(_Secret):
    """An X25519 key pair: the one with these 32 bytes, or a new one."""

    def __init__(self, content: bytes | None = None) -> None:
        self._key = X25519PrivateKey.generate() if content is None else X25519PrivateKey.from_private_bytes(content)
        self.public = self._key.public_key().public_bytes_raw()

    def exchange(self, other: bytes) -> bytes:
        """The result of the key exchange, the same for both holders, for `shared_secret`.

        Raises:
            ValueError: The other key is invalid.
        """
        return self._key.exchange(X25519PublicKey.from_public_bytes(other))

    def to_bytes(self) -> bytes:
        """The secret key."""
        return self._key.private_bytes_raw()


def shared_secret(own: AgreementKey, *, phone: bytes, phone_key: bytes, query_key: bytes) -> bytes:
    """The 32 secret bytes that one contribution shares with the key server, from which its tags and pads come.

    HKDF-SHA-256 of the X25519 exchange; its info names the phone and both public keys.

    Args:
        own: The secret key of the caller: the phone's or the key server's.
        phone: The phone's id.
        phone_key: The phone's public X25519 key for this contribution.
        query_key: The key server's public X25519 key for this query.

    Raises:
        ValueError: No secret can be shared with the other key.
    """
    other = query_key if own.public == phone_key else phone_key
    derivation = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=SECRET + phone + phone_key + query_key)
    return derivation.derive(own.exchange(other))


def signed_by(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether the holder of this public key made the signature."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def has_small_order(public: bytes) -> bool:
    """Whether this Ed25519 key is a point of small order, for which anybody can make signatures.

    These are the points with y in {0, 1, -1}, and the four points of order 8. Doubling one of those four gives y = 0,
    hence x² = -y², and so d y⁴ + 2 y² = 1.
    """
    y = (int.from_bytes(public, "little") & (2**255 - 1)) % _FIELD  # without the sign of x
    square = y * y % _FIELD
    return y * (square - 1) * (_CURVE * square * square + 2 * square - 1) % _FIELD == 0


def identity_of(given: str) -> bytes:
    """The identity of a key server, its public Ed25519 key, from 64 hexadecimal digits or a file with them."""
    digits = given.strip()
    if Path(given).is_file():
        digits = Path(given).read_text(encoding="utf-8").strip()
    with contextlib.suppress(ValueError):
        if len(content := bytes.fromhex(digits)) == KEY_BYTES:
            return content
    raise ValueError(f"an identity is {2 * KEY_BYTES} hexadecimal digits, or a file with them: got {given[:100]!r}")
