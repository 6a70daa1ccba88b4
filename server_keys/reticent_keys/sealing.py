"""Secrets at rest: bytes under a passphrase.

The key is scrypt's, of the passphrase and a fresh salt; the seal is AES-256-GCM, over the header as well.
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

__all__ = ["IDENTITY", "KEY_PAIR", "Sort", "opened", "sealed"]


class Sort(NamedTuple):
    """What is sealed, so that nothing is taken for something else."""

    format: bytes
    name: str  # as in "this is no key pair"

    @property
    def head(self) -> bytes:
        """What the file begins with."""
        return self.format + bytes([VERSION])


KEY_PAIR = Sort(b"reticent-key-pair", "key pair")
IDENTITY = Sort(b"reticent-identity", "identity")
VERSION = 1
SALT_BYTES = 16
NONCE_BYTES = 12
KEY_BYTES = 32
DIGEST_BYTES = 32
# Version 1 means these, so that nobody's file can ask for more memory: 128 MB and about half a second.
SCRYPT_COST = {"n": 1 << 17, "r": 8, "p": 1}


def sealed(content: bytes, passphrase: str, sort: Sort = KEY_PAIR) -> bytes:
    """The content under a passphrase: format, version, salt, nonce, ciphertext, and a digest that shows damage.

    Raises:
        ValueError: The passphrase is empty, or no text.
    """
    if not passphrase:
        raise ValueError("the passphrase must not be empty")
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    head = sort.head + salt + nonce
    data = head + AESGCM(_key(passphrase, salt)).encrypt(nonce, content, head)
    return data + hashlib.sha256(data).digest()


def opened(data: bytes, passphrase: str, sort: Sort = KEY_PAIR) -> bytes:
    """What was sealed.

    Raises:
        WrongPassphrase: It was sealed with another one.
        KeyFileError: It is damaged, foreign or of a newer version.
    """
    if not data.startswith(sort.format):
        raise KeyFileError(f"this is no {sort.name}")
    version = [*data[len(sort.format) : len(sort.head)]]
    if version != [VERSION]:
        found = version[0] if version else "none"
        raise KeyFileError(f"this {sort.name} is of version {found}, and this Reticent reads version {VERSION}")
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise KeyFileError(f"this {sort.name} is damaged: its digest differs")
    salt, nonce = body[len(sort.head) :][:SALT_BYTES], body[len(sort.head) + SALT_BYTES :][:NONCE_BYTES]
    head = sort.head + salt + nonce
    if len(body) < len(head):
        raise KeyFileError(f"this does not hold an entire {sort.name}")
    key = _key(passphrase, salt)
    try:
        return AESGCM(key).decrypt(nonce, body[len(head) :], head)
    except (InvalidTag, ValueError):
        raise WrongPassphrase(f"the passphrase is not the one that this {sort.name} was sealed with") from None


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, **SCRYPT_COST).derive(_encoded(passphrase))


def _encoded(passphrase: str) -> bytes:
    """UTF-8 of Unicode's composed form: what is typed alike on two systems may come as different characters."""
    if isinstance(passphrase, str):
        with contextlib.suppress(UnicodeEncodeError):  # which would carry the passphrase
            return unicodedata.normalize("NFC", passphrase).encode()
    raise ValueError("the passphrase must be text")
