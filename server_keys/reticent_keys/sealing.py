"""Secrets at rest: bytes under a passphrase, in a file that is there whole or not at all.

The key is scrypt's, of the passphrase and a fresh salt; the seal is AES-256-GCM, over the header as well.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import unicodedata
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from reticent_keys.errors import KeyFileError, WrongPassphrase

__all__ = ["IDENTITY", "KEY_PAIR", "Sort", "create", "opened", "sealed"]


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
OWNER_ONLY = 0o600
NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


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


def create(path: str | Path, content: bytes) -> None:
    """Put the content on disk under a name that is not taken, readable by the owner only.

    When this returns, it survives a loss of power; when it raises an `OSError`, there is nothing of it under this
    name. Where the file system knows no hard links, being killed may leave an empty file, and never a part.

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
        _give_name(draft, target)
        _make_last(target)
    except OSError as error:  # whoever reads it knows the path that was given, and no draft
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _give_name(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)  # unlike a rename, refuses to replace what is there
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        _take_and_rename(draft, target)


def _take_and_rename(draft: Path, target: Path) -> None:
    """Take the name with an empty file, which nobody can do twice, and then replace our own."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    try:
        draft.replace(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _make_last(target: Path) -> None:
    """Have the name survive a loss of power, or take it back."""
    try:
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=KEY_BYTES, **SCRYPT_COST).derive(_encoded(passphrase))


def _encoded(passphrase: str) -> bytes:
    """UTF-8 of Unicode's composed form: what is typed alike on two systems may come as different characters."""
    if isinstance(passphrase, str):
        with contextlib.suppress(UnicodeEncodeError):  # which would carry the passphrase
            return unicodedata.normalize("NFC", passphrase).encode()
    raise ValueError("the passphrase must be text")
