"""Secrets at rest: bytes under a passphrase, in a file that is there whole or not at all.

The key is scrypt's, of the passphrase and a fresh salt; the seal is AES-256-GCM, over the header as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from reticent_keys.errors import KeyFileError, WrongPassphrase

__all__ = ["create", "opened", "sealed"]

FORMAT = b"reticent-key-pair"
VERSION = 1
HEAD = FORMAT + bytes([VERSION])
SALT_BYTES = 16
NONCE_BYTES = 12
KEY_BYTES = 32
DIGEST_BYTES = 32
# Version 1 means these, so that nobody's file can ask for more memory: 128 MB and about half a second.
SCRYPT_COST = {"n": 1 << 17, "r": 8, "p": 1}
OWNER_ONLY = 0o600


def sealed(content: bytes, passphrase: str) -> bytes:
    """The content under a passphrase: format, version, salt, nonce, ciphertext, and a digest that shows damage."""
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    head = HEAD + salt + nonce
    data = head + AESGCM(_key(passphrase, salt)).encrypt(nonce, content, head)
    return data + hashlib.sha256(data).digest()


def opened(data: bytes, passphrase: str) -> bytes:
    """What was sealed.

    Raises:
        WrongPassphrase: It was sealed with another one.
        KeyFileError: It is damaged, foreign or of a newer version.
    """
    if not data.startswith(FORMAT):
        raise KeyFileError("this is no key pair")
    version = [*data[len(FORMAT) : len(HEAD)]]
    if version != [VERSION]:
        found = version[0] if version else "none"
        raise KeyFileError(f"this key pair is of version {found}, and this Reticent reads version {VERSION}")
    body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise KeyFileError("this key pair is damaged: its digest differs")
    salt, nonce = body[len(HEAD) :][:SALT_BYTES], body[len(HEAD) + SALT_BYTES :][:NONCE_BYTES]
    head = HEAD + salt + nonce
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, body[len(head) :], head)
    except (InvalidTag, ValueError):
        raise WrongPassphrase("the passphrase is not the one that this key pair was sealed with") from None


def create(path: str | Path, content: bytes) -> None:
    """Put the content on disk under a name that is not taken, readable by the owner only.

    When this returns, it survives a loss of power; when it does not, there is nothing under this name.

    Raises:
        FileExistsError: The name is taken.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, target)  # unlike a rename, refuses to replace what is there
    except OSError as error:  # whoever reads it knows the path that was given, and no draft
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, **SCRYPT_COST).derive(passphrase.encode())
