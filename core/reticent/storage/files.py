"""Files of ours that are there whole or not at all, whenever we are killed."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from pathlib import Path

__all__ = [
    "OWNER_ONLY",
    "OWNER_ONLY_FOLDER",
    "PUBLIC",
    "check_distinct",
    "check_writable",
    "create",
    "drafted",
    "erase",
    "replace",
    "sync_folder",
    "write_all",
]

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700
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


def erase(path: Path) -> None:
    """Overwrite a file where it lies, then delete it, if it is there.

    File systems that copy on write, and flash memory, may keep the former content elsewhere: what is erased should have
    been encrypted, too.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_all(contents: Sequence[tuple[Path, bytes]], mode: int = OWNER_ONLY) -> None:
    """Put each content on disk under its name; or none of them, where this raises.

    A kill or a loss of power in the midst of it may leave some of the files new and the others old, each of them whole.
    """
    targets = [target for target, _ in contents]
    check_distinct(targets)
    check_writable(targets)
    drafts = [_beside(target) for target in targets]
    with contextlib.ExitStack() as spares, contextlib.ExitStack() as undo:  # what is undone needs the spares
        for draft, (target, content) in zip(drafts, contents, strict=True):
            undo.callback(draft.unlink, missing_ok=True)
            with _named(target):
                _fill(draft, content, mode)
        for draft, target in zip(drafts, targets, strict=True):
            with _named(target):
                _take_name(draft, target, undo, spares)
        undo.pop_all()  # nothing is to be undone any more
    for folder in {target.parent for target in targets}:
        sync_folder(folder)


def check_distinct(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
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
    draft = _beside(path)
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


def _take_name(draft: Path, target: Path, undo: contextlib.ExitStack, spares: contextlib.ExitStack) -> None:
    """Have a draft take the place of what was there, in a way that can be undone."""
    if target.exists():
        spare = _beside(target)
        spares.callback(spare.unlink, missing_ok=True)
        shutil.copy2(target, spare)
        draft.replace(target)
        undo.callback(spare.replace, target)
    else:
        draft.replace(target)
        undo.callback(target.unlink, missing_ok=True)


def _beside(path: Path) -> Path:
    """A name next to the path that nobody else has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, or would."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """What is wrong within is wrong with this path."""
    try:
        yield
    except OSError as error:
        if error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error  # whoever reads it knows no draft
        raise


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
