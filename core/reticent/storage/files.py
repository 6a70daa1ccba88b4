"""Files that are written whole or not at all, even if the process is killed."""

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
    "drafted_folder",
    "erase",
    "make_folder",
    "replace",
    "sync_file",
    "sync_folder",
    "write_all",
]

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700
PUBLIC = 0o644

_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_NOT_OURS = {errno.EPERM, errno.EACCES, errno.EROFS, errno.EINVAL}
"""Errors of syncing a folder of another user, who is responsible for it."""


def create(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a new file; it survives a loss of power when this returns.

    Raises:
        FileExistsError: There is a file of this name.
    """
    with drafted(path) as draft:
        _fill(draft, content, mode)


def replace(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a file, in place of one of the same name."""
    with drafted(path, over=True) as draft:
        _fill(draft, content, mode)


def erase(path: Path) -> None:
    """Overwrite a file in place, then delete it, if it exists.

    Copy-on-write file systems and flash memory may keep the former content elsewhere: it should be encrypted as well.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(folder: Path, mode: int = OWNER_ONLY_FOLDER) -> None:
    """Make a folder, if it does not exist, and its name survive a loss of power. Missing parents get the usual mode."""
    if folder.is_dir():
        try:
            sync_folder(folder.parent)  # whoever made it may have been killed before
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
        return
    make_folder(folder.parent, 0o777)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def write_all(contents: Sequence[tuple[Path, bytes]], mode: int = OWNER_ONLY) -> None:
    """Write all files, or none if this raises.

    A kill or a loss of power meanwhile may leave some files new and the others old, each of them whole.
    """
    targets = [target for target, _ in contents]
    check_distinct(targets)
    check_writable(targets)
    drafts = [_beside(target) for target in targets]
    with contextlib.ExitStack() as spares, contextlib.ExitStack() as undo:  # undoing needs the spares
        for draft, (target, content) in zip(drafts, contents, strict=True):
            undo.callback(draft.unlink, missing_ok=True)
            with _named(target):
                _fill(draft, content, mode)
        for draft, target in zip(drafts, targets, strict=True):
            with _named(target):
                _take_name(draft, target, undo, spares)
        undo.pop_all()  # from here on nothing is undone
    for folder in {target.parent for target in targets}:
        sync_folder(folder)


def check_distinct(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Refuse an output that is an input or another output, under any path; None stands for an unused option."""
    given = [output for output in outputs if output is not None]
    for output, read in product(given, [path for path in inputs if path is not None]):
        if _same(output, read):
            raise ValueError(f"{output} would overwrite the input {read}: name another output")
    for one, other in combinations(given, 2):
        if _same(one, other):
            raise ValueError(f"each output needs a file of its own: {one} and {other} are the same file")


def check_writable(targets: Iterable[Path]) -> None:
    """Refuse, before anything is written, a target that is a folder, or whose folder is missing or read-only."""
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
    """A draft beside the path: it gets the path when this block ends, and is deleted if the block raises.

    The file then survives a loss of power. If the file system has no hard links, a kill may leave an empty file under a
    new name, never a part of one.

    Args:
        path: Of the finished file.
        over: Replace an existing file.

    Raises:
        FileExistsError: There is a file of this name.
    """
    draft = _beside(path)
    try:
        if not over and os.path.lexists(path):  # before any work; checked again at the end
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
        raise type(error)(error.errno, error.strerror, str(path)) from error  # the user knows no draft
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


@contextlib.contextmanager
def drafted_folder(path: Path) -> Iterator[Path]:
    """A draft of a new folder, for its owner only: it gets the path when this block ends, and is deleted if it raises.

    The block makes the content of its files survive a loss of power; their names, and the folder's, then survive too.

    Raises:
        FileExistsError: There is a file or a folder of this name.
    """
    if not path.parent.is_dir():
        raise _error(errno.ENOENT, path.parent)
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "it exists: name a new folder", str(path))
    draft = _beside(path)
    try:
        draft.mkdir(mode=OWNER_ONLY_FOLDER)
        yield draft
        sync_folder(draft)
        draft.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    _sync(folder)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a loss of power, whichever process wrote it."""
    _sync(path)


def _fill(draft: Path, content: bytes, mode: int) -> None:
    with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _give_name(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)  # unlike a rename, never replaces a file
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))  # only one process can do this
        try:
            draft.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _make_last(path: Path, *, over: bool) -> None:
    """Make the name survive a loss of power; remove it again if that fails and it is new."""
    try:
        sync_folder(path.parent)
    except OSError:
        if not over:
            path.unlink(missing_ok=True)
        raise


def _take_name(draft: Path, target: Path, undo: contextlib.ExitStack, spares: contextlib.ExitStack) -> None:
    """Replace a file by a draft, so that it can be undone."""
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
    """A unique name beside the path."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _same(one: Path, other: Path) -> bool:
    """Whether two paths name the same file."""
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name this path in errors of the block."""
    try:
        yield
    except OSError as error:
        if error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error  # the user knows no draft
        raise


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
