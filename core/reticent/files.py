"""Files of ours that are there whole or not at all, whenever we are killed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OWNER_ONLY", "PUBLIC", "create", "drafted", "replace", "sync_folder"]

OWNER_ONLY = 0o600
PUBLIC = 0o644

_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def create(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Put the content on disk under a name that is not taken.

    Raises:
        FileExistsError: The name is taken.
    """
    with drafted(path) as draft:
        _fill(draft, content, mode)


def replace(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Put the content on disk under this name, in place of what was there."""
    with drafted(path, over=True) as draft:
        _fill(draft, content, mode)


@contextlib.contextmanager
def drafted(path: Path, *, over: bool = False) -> Iterator[Path]:
    """A name beside the path, for a file that gets the path when this ends, and is gone if it raises.

    When this has ended the file survives a loss of power. Where the file system knows no hard links, being killed may
    leave an empty file under a name that was not taken, and never a part.

    Args:
        path: The name that the file gets.
        over: Also in place of one that is there.

    Raises:
        FileExistsError: The name is taken.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        if not over and os.path.lexists(path):  # before any work; what counts is asked again at the end
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        yield draft
        if over:
            draft.replace(path)
        else:
            _give_name(draft, path)
        _make_last(path, over=over)
    except OSError as error:
        if error.errno is None or error.filename not in {None, str(draft), draft, os.fspath(path.parent), path.parent}:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # whoever reads it knows no draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a loss of power."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _fill(draft: Path, content: bytes, mode: int) -> None:
    with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _give_name(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)  # unlike a rename, refuses to replace what is there
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))  # which nobody can do twice
        try:
            draft.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _make_last(path: Path, *, over: bool) -> None:
    """Have the name survive a loss of power; or take it back, where nothing had it before."""
    try:
        sync_folder(path.parent)
    except OSError:
        if not over:
            path.unlink(missing_ok=True)
        raise
