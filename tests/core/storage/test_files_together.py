"""Files that are written together: all of them or none."""

import os
from pathlib import Path

import pytest

from reticent.storage import files


def contents(folder: Path) -> dict[str, bytes]:
    """What a folder holds."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_all_files_are_on_disk_before_any_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the contents, then the names, then the folder."""
    events: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        events.append("sync")
        sync(descriptor)

    def replaced(draft: Path, target: Path) -> Path:
        events.append(f"replace {target.name}")
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    (tmp_path / "b").write_bytes(b"old")
    files.write_all([(tmp_path / "a", b"one"), (tmp_path / "b", b"two")])
    assert contents(tmp_path) == {"a": b"one", "b": b"two"}
    assert events == ["sync", "sync", "replace a", "replace b", "sync"]


@pytest.mark.parametrize("bad", ["none/b", "folder", "file/b"])
@pytest.mark.parametrize("first", [False, True])
def test_where_one_cannot_be_written_none_is(tmp_path: Path, bad: str, first: bool) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    wanted = [(tmp_path / "a", b"new"), (tmp_path / "file", b"new"), (tmp_path / bad, b"new")]
    with pytest.raises(OSError) as caught:  # noqa: PT011  # which one is asked below
        files.write_all(wanted[::-1] if first else wanted)
    assert caught.value.filename == str(tmp_path / bad)
    assert contents(tmp_path) == {"file": b"old"}
    assert contents(tmp_path / "folder") == {}


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_what_was_there_is_put_back_where_a_name_cannot_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """Whichever of the three it is; and nothing else is left."""
    targets = [tmp_path / name for name in "abc"]
    targets[1].write_bytes(b"old")
    targets[1].chmod(0o600)
    before = contents(tmp_path)
    replace, refused = Path.replace, targets[fails - 1]

    def replaced(draft: Path, target: Path) -> Path:
        if target == refused and draft.read_bytes() == b"new":
            raise PermissionError(1, "Operation not permitted", str(draft))
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", replaced)
    with pytest.raises(PermissionError) as caught:
        files.write_all([(target, b"new") for target in targets])
    assert caught.value.filename == str(refused)
    assert contents(tmp_path) == before
    assert targets[1].stat().st_mode & 0o777 == 0o600


def test_an_output_is_no_input_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by another path, nor by a link of either kind, nor in a file that is not there yet."""
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("x")
    Path("soft").symlink_to("in")
    os.link("in", "hard")
    for name in ("in", "./in", str(tmp_path / "in"), "soft", "hard", f"../{tmp_path.name}/in"):
        with pytest.raises(ValueError, match=r"^.* would overwrite the input in: name another output$"):
            files.check_distinct([Path("out"), Path(name)], inputs=[Path("other"), None, Path("in")])
    Path("dangling").symlink_to("out")
    for one, other in (("out", "./out"), ("dangling", "out"), ("hard", "soft")):
        with pytest.raises(ValueError, match=r"^each output needs a file of its own: "):
            files.check_distinct([Path(one), None, Path(other)])
    files.check_distinct([Path("out"), Path("hard"), None], inputs=[Path("none")])
