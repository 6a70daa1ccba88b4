"""Files that are there whole or not at all, whenever the phone is killed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PUBLIC = 0o666
"""Whoever the umask lets read it."""

PRIVATE = 0o600
"""Nobody but the owner."""


def write(path: str | Path, content: bytes, mode: int = PUBLIC) -> None:
    """Put the content on disk under this name, in place of what was there before.

    When this returns the content survives a loss of power; when it does not, the old content does.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.errno:  # whoever reads it knows the path that was given, and no draft
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the new name may be lost, though not what it names
    finally:
        os.close(folder)
