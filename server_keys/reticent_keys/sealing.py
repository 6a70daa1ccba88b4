"""Secrets at rest: bytes that are encrypted under a passphrase.

The key comes from the passphrase and a fresh salt by scrypt. AES-256-GCM encrypts, and authenticates the header too.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import unicodedata
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from reticent_keys.errors import KeyFileError, WrongPassphrase

__all__ = ["IDENTITY", "KEY_PAIR", "SecretKind", "opened", "sealed"]


class SecretKind(NamedTuple):
    """The kind of secret in a file; each kind has its own header."""

    format: bytes
    name: str  # as in "this is no key pair"

    @property
    def head(self) -> bytes:
        """The first bytes of the file."""
        return self.format + bytes([VERSION])


KEY_PAIR = SecretKind(b"reticent-key-pair", "key pair")
IDENTITY = SecretKind(b"reticent-identity", "identity")
VERSION = 1
SALT_BYTES = 16
NONCE_BYTES = 12
KEY_BYTES = 32
DIGEST_BYTES = 32
# Version 1 fixes these, so that no file can demand more memory: 128 MB and about half a second.
SCRYPT_COST = {"n": 1 << 17, "r": 8, "p": 1}


def sealed(content: bytes, passphrase: str, kind: SecretKind = KEY_PAIR) -> bytes:
    """The content under a passphrase: format, version, salt, nonce, ciphertext, and a digest that reveals damage.

    Raises:
        ValueError: The passphrase is empty, or not text.
    """
    if not passphrase:
        raise ValueError("the passphrase must not be empty")
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    head = kind.head + salt + nonce
    data = head + AESGCM(_key(passphrase, salt)).encrypt(nonce, content, head)
    return data + hashlib.sha256(data).digest()


def opened(data: bytes, passphrase: str, kind: SecretKind = KEY_PAIR) -> bytes:
    """The content of what `sealed` returned.

    Raises:
        WrongPassphrase: It was sealed with another passphrase.
        KeyFileError: It is damaged, foreign or of a newer version.
    """
    if not data.startswith(kind.format):
        raise KeyFileError(f"this is no {kind.name}")
    version = [*data[len(kind.format) : len(kind.head)]]
    if version != [VERSION]:
        found = version[0] if version else "none"
        raise KeyFileError(f"this {kind.name} is of version {found}, and this Reticent reads version {VERSION}")
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise KeyFileError(f"this {kind.name} is damaged: its digest differs")
    salt, nonce = body[len(kind.head) :][:SALT_BYTES], body[len(kind.head) + SALT_BYTES :][:NONCE_BYTES]
    head = kind.head + salt + nonce
    if len(body) < len(head):
        raise KeyFileError(f"this {kind.name} is incomplete")
    key = _key(passphrase, salt)
    try:
        return AESGCM(key).decrypt(nonce, body[len(head) :], head)
    except (InvalidTag, ValueError):
        raise WrongPassphrase(f"the passphrase is not the one that this {kind.name} was sealed with") from None


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, **SCRYPT_COST).derive(_encoded(passphrase))


def _encoded(passphrase: str) -> bytes:
    """UTF-8 of Unicode's composed form: two systems may encode the same letters differently."""
    if isinstance(passphrase, str):
        with contextlib.suppress(UnicodeEncodeError):  # whose message would contain the passphrase
            return unicodedata.normalize("NFC", passphrase).encode()
    raise ValueError("the passphrase must be text")
