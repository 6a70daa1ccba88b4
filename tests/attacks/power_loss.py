"""Machines that lose power: what a server has not synced is gone then, or is there in part.

    disk = Disk(folder / "keys", shadow, library(folder))
    with launched(Servers(folder, keys_program=disk.watching(RETICENT))) as servers:
        servers.keys.after_kill = disk.lose
        servers.keys.restart()

power_loss.c says what is durable, and keeps it while the server runs. The server is killed when power fails; then the
folder is made what its disk would hold. At least that is what was synced. If it is left to chance, it is that and some
of the rest: of each name whether it was last as it is, of each file some sectors, and the old length or the new one.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Disk", "library"]

SOURCE = Path(__file__).with_name("power_loss.c")
SECTOR = 512
"""Bytes that a disk writes whole or not at all; file systems promise no more."""


def library(compiler: str, folder: Path) -> Path:
    """What watches a process, compiled into this folder."""
    made = folder / "power_loss.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", made, SOURCE], check=True)
    return made


class Disk:
    """That of a machine with one folder, which is taken to be empty when this begins.

    Args:
        place: The folder, which need not be there. The one that it is in is there whatever happens.
        shadow: Where to keep what would be left; it is made here, on the same file system.
        watch: The library.
    """

    def __init__(self, place: Path, shadow: Path, watch: Path) -> None:
        self._place = place.resolve()
        self._shadow = shadow.resolve()
        self._watch = watch
        for kind in ("content", "names", "live"):
            (self._shadow / kind).mkdir(parents=True)

    def watching(self, program: Sequence[str | Path]) -> tuple[str | Path, ...]:
        """How a program is begun that uses this disk."""
        return (
            "env",
            f"LD_PRELOAD={self._watch}",
            f"POWER_LOSS_DISK={self._place.parent}",
            f"POWER_LOSS_SHADOW={self._shadow}",
            *program,
        )

    def lose(self, chance: random.Random | None = None) -> None:
        """Have power fail, after all who use the folder were killed.

        Args:
            chance: What else has reached the disk, besides what was synced; nothing if not given.
        """
        above = self._place.parent
        synced = self._names(above).get(self._place.name) is not None
        if self._place.exists():
            if synced or (chance is not None and chance.random() < 0.5):
                self._keep_names(above, {self._place.name: self._place.stat().st_ino})
                self._restore(self._place, chance, set())
            else:
                self._remove(self._place)

    def _restore(self, folder: Path, chance: random.Random | None, done: set[int]) -> None:
        """Make a folder what is durable of it; and have what is there then be durable."""
        synced, present = self._names(folder), _present(folder)
        left = synced if chance is None else _some(synced, present, chance)
        for name, inode in present.items():
            if (folder / name).is_file():
                self._hold(folder / name, inode)
        for name, inode in present.items():
            if left.get(name) != inode:
                self._remove(folder / name)
        for name, inode in left.items():
            if present.get(name) != inode:
                os.link(self._shadow / "live" / str(inode), folder / name)  # no server removes a folder
        self._keep_names(folder, left)
        for name, inode in left.items():
            if (folder / name).is_dir():
                self._restore(folder / name, chance, done)
            elif inode not in done:
                done.add(inode)
                self._restore_content(folder / name, inode, chance)

    def _restore_content(self, path: Path, inode: int, chance: random.Random | None) -> None:
        kept = self._shadow / "content" / str(inode)
        synced = kept.read_bytes() if kept.exists() else b""
        present = path.read_bytes()
        left = synced if chance is None else _torn(synced, present, chance)
        if left != present:
            path.write_bytes(left)
        if left != synced:
            kept.write_bytes(left)

    def _hold(self, path: Path, inode: int) -> None:
        live = self._shadow / "live" / str(inode)
        if not live.exists():
            os.link(path, live)

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            for each in path.iterdir():
                self._remove(each)
            self._kept_names(path).unlink(missing_ok=True)  # another folder may get its number
            path.rmdir()
        else:
            path.unlink()

    def _names(self, folder: Path) -> dict[str, int]:
        """The durable entries of a folder."""
        kept = self._kept_names(folder)
        lines = kept.read_bytes().split(b"\0")[:-1] if kept.exists() else []
        split = (os.fsdecode(line).split(" ", 1) for line in lines)
        return {name: int(inode) for inode, name in split}

    def _keep_names(self, folder: Path, names: dict[str, int]) -> None:
        lines = (f"{inode} {name}\0" for name, inode in names.items())
        self._kept_names(folder).write_bytes(os.fsencode("".join(lines)))

    def _kept_names(self, folder: Path) -> Path:
        return self._shadow / "names" / str(folder.stat().st_ino)


def _present(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in sorted(folder.iterdir())}


def _some(synced: dict[str, int], present: dict[str, int], chance: random.Random) -> dict[str, int]:
    """What each name leads to: what it was last synced with, or what it was meant to lead to."""
    chosen = {name: chance.choice((synced, present)).get(name) for name in sorted({*synced, *present})}
    return {name: inode for name, inode in chosen.items() if inode is not None}


def _torn(synced: bytes, present: bytes, chance: random.Random) -> bytes:
    """Some sectors of a file as they were last synced, the others as they were meant to be."""
    length = len(chance.choice((synced, present)))
    share = chance.random()
    sectors = []
    for place in range(0, length, SECTOR):
        end = min(place + SECTOR, length)
        source = present if chance.random() < share else synced
        sectors.append(source[place:end].ljust(end - place, b"\0"))
    return b"".join(sectors)
