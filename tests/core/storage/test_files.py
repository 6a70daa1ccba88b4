"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from reticent.storage.files import create, drafted, make_folder, replace


def no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "this file system has none")


@pytest.mark.parametrize("links", [True, False])
def test_a_name_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Also where the file system knows no hard links, and when it was taken meanwhile."""
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "name"
    create(path, b"first")
    with pytest.raises(FileExistsError, match=str(path)):
        create(path, b"second")
    late = tmp_path / "late"
    with pytest.raises(FileExistsError, match=str(late)), drafted(late) as draft:  # noqa: PT012  # it is the order
        draft.write_bytes(b"ours")
        late.write_bytes(b"theirs")
    assert (path.read_bytes(), late.read_bytes()) == (b"first", b"theirs")
    assert {each.name for each in tmp_path.iterdir()} == {"name", "late"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_replaced_is_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "name"
    replace(path, b"old")
    replace(path, b"new", 0o644)
    assert path.read_bytes() == b"new"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(path, b"lost")
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["name"]


def test_an_error_names_the_path_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "name"
    for write in (create, replace):
        with pytest.raises(FileNotFoundError) as caught:
            write(path, b"content")
        assert caught.value.filename == str(path)


def test_a_dangling_link_is_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "name").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError):
        create(tmp_path / "name", b"content")
    assert not (tmp_path / "nothing").exists()


def test_a_folder_and_those_that_it_is_in_are_on_disk_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is there: whoever made it may have been killed before its name was on disk."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino))
    folder = tmp_path / "outer" / "inner"
    make_folder(folder)
    inodes = [each.stat().st_ino for each in (tmp_path.parent, tmp_path, folder.parent)]
    assert synced == inodes
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    make_folder(folder)
    assert synced == [*inodes, inodes[-1]]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EINVAL, errno.EIO])
def test_a_folder_that_is_there_may_be_in_one_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It is by somebody else then, as a mount point is. A disk that fails is told of in any case."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)):
            make_folder(tmp_path)
    else:
        make_folder(tmp_path)
    with pytest.raises(OSError, match=os.strerror(number)):
        make_folder(tmp_path / "new")
