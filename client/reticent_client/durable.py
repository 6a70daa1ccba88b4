"""Files that are there whole or not at all, whenever the phone is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
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
    draft = _beside(target, "tmp")
    try:
        _fill(draft, content, mode)
        draft.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.errno:
            raise _about(path, error) from error
        raise
    _sync_folder(target.parent)


def write_all(contents: Sequence[tuple[str | Path, bytes]], mode: int = PUBLIC) -> None:
    """Put each content on disk under its name; or none of them, where this raises.

    A kill or a loss of power in the midst of it may leave some of the files new and the others old, each of them whole.
    """
    targets = [Path(path) for path, _ in contents]
    check_apart(targets)
    check_writable(targets)
    with contextlib.ExitStack() as spares, contextlib.ExitStack() as undo:  # what is undone needs the spares
        for target, (path, content) in zip(targets, contents, strict=True):
            undo.callback(_beside(target, "tmp").unlink, missing_ok=True)
            with _named(path):
                _fill(_beside(target, "tmp"), content, mode)
        for target in targets:
            with _named(target):
                _give_name(target, undo, spares)
        undo.pop_all()  # nothing is to be undone any more
    for folder in {target.parent for target in targets}:
        _sync_folder(folder)


def check_apart(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse an output that is an input, or another output, by whatever path; None is a file that nobody asked for."""
    asked = [output for output in outputs if output is not None]
    for output, read in product(asked, [path for path in inputs if path is not None]):
        if _same(output, read):
            raise ValueError(f"{output} would overwrite {read}, which is read: give another output")
    for one, other in combinations(asked, 2):
        if _same(one, other):
            raise ValueError(f"each output needs a file of its own: {one} and {other} are one")


def check_writable(targets: Iterable[Path]) -> None:
    """Refuse, before anything is written, what cannot be: in a folder that is not there or locked, or over a folder."""
    for target in targets:
        folder = target.parent
        if target.is_dir():
            raise _error(errno.EISDIR, target)
        if not folder.is_dir():
            raise _error(errno.ENOTDIR if folder.exists() else errno.ENOENT, target)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _error(errno.EACCES, target)


def _give_name(target: Path, undo: contextlib.ExitStack, spares: contextlib.ExitStack) -> None:
    """Have a draft take the place of what was there, in a way that can be undone."""
    if target.exists():
        spare = _beside(target, "old")
        spares.callback(spare.unlink, missing_ok=True)
        shutil.copy2(target, spare)
        _beside(target, "tmp").replace(target)
        undo.callback(spare.replace, target)
    else:
        _beside(target, "tmp").replace(target)
        undo.callback(target.unlink, missing_ok=True)


def _beside(target: Path, ending: str) -> Path:
    """A file of this process next to the target."""
    return target.with_name(f".{target.name}.{os.getpid()}.{ending}")


def _fill(draft: Path, content: bytes, mode: int) -> None:
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the new name may be lost, though not what it names
    finally:
        os.close(folder)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, or would."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """What is wrong within is wrong with this path."""
    try:
        yield
    except OSError as error:
        if error.errno:
            raise _about(path, error) from error
        raise


def _about(path: str | Path, error: OSError) -> OSError:
    """The same error: whoever reads it knows the path that was given, and no draft."""
    return OSError(error.errno, error.strerror, str(path))


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
