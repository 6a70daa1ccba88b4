"""Power fails under both servers, again and again: what they have acknowledged is there, and is counted once."""

from __future__ import annotations

import asyncio
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from reticent_keys.folder import Folder
from reticent_sim.engine import RETICENT, ServerExited, ServerPair, ServerProcess, launched
from tests.attacks.power_loss import SECTOR, Disk, library
from tests.parties.callers import enrolled, members
from tests.system.campaign import ALLOWED, START, Campaign, campaign

pytestmark = pytest.mark.slow  # real processes, begun again and again

SEED = 7
PYTHON = (sys.executable, "-c")


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What watches a process."""
    if platform.system() != "Linux":
        pytest.skip("what a disk would hold is watched on Linux only")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler, by the name of cc")
    return library(compiler, tmp_path_factory.mktemp("library"))


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")  # noqa: T201  # pytest shows it where a test fails
    return random.Random(SEED)  # noqa: S311  # when power fails is no secret


# The disk itself

BEFORE = """
import os

def write(name, text):
    with open(name, "w") as file:
        file.write(text)

def sync(name):
    opened = os.open(name, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)

write("old", "old")
sync("old")
sync(".")
sync("..")
"""
LEFT = {
    "nothing was done": ("", {"old": "old"}),
    "written, not synced": ("write('old', 'longer')", {"old": "old"}),
    "written and synced": ("write('old', 'new'); sync('old'); write('old', 'lost')", {"old": "new"}),
    "made, not synced": ("write('new', 'new')", {"old": "old"}),
    "made, only the content synced": ("write('new', 'new'); sync('new')", {"old": "old"}),
    "made, only the name synced": ("write('new', 'new'); sync('.')", {"old": "old", "new": ""}),
    "made and synced": ("write('new', 'new'); sync('new'); sync('.')", {"old": "old", "new": "new"}),
    "renamed, not synced": ("os.rename('old', 'new')", {"old": "old"}),
    "renamed and synced": ("os.rename('old', 'new'); sync('.')", {"new": "old"}),
    "replaced, not synced": ("write('new', 'new'); sync('new'); os.replace('new', 'old')", {"old": "old"}),
    "replaced and synced": ("write('new', 'new'); sync('new'); os.replace('new', 'old'); sync('.')", {"old": "new"}),
    "linked and synced": ("os.link('old', 'new'); sync('.'); write('old', 'n'); sync('new')", {"old": "n", "new": "n"}),
    "deleted, not synced": ("os.unlink('old')", {"old": "old"}),
    "deleted, then another made": ("os.unlink('old'); write('new', 'new'); sync('new')", {"old": "old"}),
    "deleted and synced": ("os.unlink('old'); sync('.')", {}),
    "a folder, not synced": ("os.mkdir('in'); write('in/a', 'a'); sync('in/a'); sync('in')", {"old": "old"}),
    "a folder, synced": ("os.mkdir('in'); write('in/a', 'a'); sync('in'); sync('.')", {"old": "old", "in/a": ""}),
}


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("script", "left"), LEFT.values(), ids=LEFT)
def test_what_was_synced_is_left_and_nothing_else(
    watch: Path, tmp_path: Path, script: str, left: dict[str, str]
) -> None:
    place = tmp_path / "machine"
    place.mkdir()
    disk = Disk(place, tmp_path / "shadow", watch)
    subprocess.run([*disk.watching(PYTHON), BEFORE + script], cwd=place, check=True)
    disk.lose()
    assert content(place) == left
    disk.lose()
    assert content(place) == left


def test_by_chance_some_sectors_and_some_names_are_left_besides(watch: Path, tmp_path: Path) -> None:
    place = tmp_path / "machine"
    seen: set[str] = set()
    for seed in range(30):
        place.mkdir()
        disk = Disk(place, tmp_path / f"shadow {seed}", watch)
        script = f"write('old', 'o' * {SECTOR}); sync('old'); write('old', 'n' * {2 * SECTOR}); write('new', '')"
        subprocess.run([*disk.watching(PYTHON), BEFORE + script], cwd=place, check=True)
        disk.lose(random.Random(seed))  # noqa: S311  # no secret
        left = content(place)
        seen |= {re.sub(r"(.)\1*", r"\1", left.pop("old")), *left}
        shutil.rmtree(place)
    assert seen == {"o", "n", "o\0", "on", "n\0", "new"}


# Both servers

LAX = """
import sys
from reticent.console import program
from reticent.storage.database import Database

honest = Database._open

def opened(database):
    honest(database)
    with database.reading() as run:
        if run("SELECT count(*) FROM {table}").fetchone() != (0,):
            run("PRAGMA synchronous = OFF")

Database._open = opened
sys.exit(program.main(sys.argv[1:]))
"""
"""A server that does not sync its database, in those of its lives that begin with something in this table."""


def on_disks(
    folder: Path,
    watch: Path,
    chance: random.Random | None = None,
    *,
    keys: Sequence[str | Path] = RETICENT,
    aggregation: Sequence[str | Path] = RETICENT,
) -> tuple[ServerPair, list[Disk]]:
    """Both servers, each on a machine of its own, that loses power when the server is killed.

    With `chance`, some kills are only kills, and some losses spare a part of what was not synced.
    """
    disks = [Disk(folder / name, folder / "shadows" / name, watch) for name in ("keys", "aggregation")]
    servers = ServerPair(
        folder,
        clock=START,
        keys_options=ALLOWED,
        keys_program=disks[0].watching(keys),
        aggregation_program=disks[1].watching(aggregation),
    )
    for process, disk in zip(servers.processes, disks, strict=True):
        process.after_kill = disk.lose if chance is None else partial(fail, disk, chance)
    return servers, disks


def fail(disk: Disk, chance: random.Random) -> None:
    how = chance.choice(("killed", "lost", "torn"))
    if how != "killed":
        disk.lose(chance if how == "torn" else None)


def lax(folder: Path, table: str) -> tuple[str | Path, ...]:
    program = folder / "lax.py"
    program.write_text(LAX.format(table=table))
    return (sys.executable, program)


def identities(servers: ServerPair) -> set[str]:
    """Those that the key server ever said it had."""
    return set(re.findall(r"^identity (.*)$", servers.keys.log.read_text(), re.MULTILINE))


def test_whenever_power_fails_what_was_acknowledged_is_counted_once(
    watch: Path, tmp_path: Path, chance: random.Random
) -> None:
    servers, _ = on_disks(tmp_path, watch, chance)
    with launched(servers):
        held = asyncio.run(campaign(servers, chance, phones=96, by_clock=[False, True], kills=(3, 5, 3)))
        servers.keys.restart()
        assert asyncio.run(members(servers, held.phones, chance)) == len(held.phones)
        assert len(identities(servers)) == 1
        assert not list((servers.keys_folder / "queries").iterdir())  # as all is decided


def test_an_aggregation_server_that_does_not_sync_is_seen_to_lose_contributions(
    watch: Path, tmp_path: Path, chance: random.Random
) -> None:
    servers, _ = on_disks(tmp_path, watch, aggregation=lax(tmp_path, "queries"))
    with launched(servers):
        contradictions = asyncio.run(contributed(servers, chance))
    assert any("acknowledged, and then LATE" in each for each in contradictions), contradictions


async def contributed(servers: ServerPair, chance: random.Random) -> list[str]:
    """Phones say again what was acknowledged, while the server loses power, and when the query is closed."""
    held = Campaign(servers, chance)
    await held.join(64, kills=0)
    await held.announce([True])
    servers.aggregation.restart()
    await held.contribute(kills=1)
    return held.contradictions


def test_a_key_server_that_does_not_sync_is_seen_to_lose_phones(
    watch: Path, tmp_path: Path, chance: random.Random
) -> None:
    servers, _ = on_disks(tmp_path, watch, keys=lax(tmp_path, "keys"))
    with servers:
        servers.keys.start()
        servers.keys.restart()
        phones = asyncio.run(enrolled(servers, 10, chance))
        assert asyncio.run(members(servers, phones, chance)) == len(phones)
        servers.keys.restart()
        assert asyncio.run(members(servers, phones, chance)) == 0


# As they begin


def begun(process: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have power fail at a server's first sync, in its next life at the second, and so on; how many until it serves."""
    for number in count(1):
        monkeypatch.setenv("POWER_LOSS_AT", str(number))
        process.spawn()
        monkeypatch.delenv("POWER_LOSS_AT")
        try:
            process.wait()
        except ServerExited:
            if process.exit_status != -signal.SIGKILL:
                raise
            process.after_kill()
        else:
            return number
    raise AssertionError


def test_a_server_whose_power_fails_as_it_begins_begins_again(
    watch: Path, tmp_path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, disks = on_disks(tmp_path, watch, chance)
    with servers:
        for process, disk in zip(servers.processes, disks, strict=True):
            assert begun(process, monkeypatch) > 5
            process.after_kill = disk.lose
            process.restart()
        assert len(identities(servers)) == 1


def test_a_copy_survives(watch: Path, tmp_path: Path) -> None:
    servers, _ = on_disks(tmp_path, watch)
    keys = servers.keys_folder
    with servers:
        servers.keys.start()
        servers.run("keys", "backup", keys / "copy", "--folder", keys)
        servers.keys.kill()
        assert (keys / "copy" / "identity").read_bytes() == (keys / "identity").read_bytes()
        with Folder(keys / "copy", bits=1024, simulation=True).served(servers.passphrase, now=lambda: START) as server:
            assert {server.identity.hex()} == identities(servers)


NOTEBOOK = """
import os, sys
from pathlib import Path
from reticent.storage.database import Database
from reticent.storage.sql import FileFormat

notes = FileFormat("a notebook", 0x4E4F5445, "CREATE TABLE notes (text TEXT);", ValueError)
database = Database(Path("notes.db"), notes)
with database.reading() as run:
    print(*(text for (text,) in run("SELECT text FROM notes")), flush=True)
for note in sys.argv[1:]:
    with database.transaction() as run:
        run("INSERT INTO notes VALUES (?)", (note,))
    print(note, flush=True)
os._exit(0)  # as if it were killed: who closes a database syncs it
"""


def test_what_is_read_after_a_kill_survives_a_loss_of_power(
    watch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was killed may have written, and not synced. The next process reads that, and may acknowledge it."""
    disk = Disk(tmp_path / "machine", tmp_path / "shadow", watch)
    place = tmp_path / "machine"
    place.mkdir()
    subprocess.run([*disk.watching(PYTHON), BEFORE], cwd=place, check=True)

    def life(*notes: str) -> tuple[set[str], bool]:
        program = [*disk.watching(PYTHON), NOTEBOOK, *notes]
        done = subprocess.run(program, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        return set(done.stdout.split()), done.returncode == 0

    for number in count(1):
        monkeypatch.setenv("POWER_LOSS_AT", str(number))
        _, whole = life(f"note-{number}")
        monkeypatch.delenv("POWER_LOSS_AT")
        read, _ = life()
        disk.lose()
        assert life() == (read, True)
        if whole:
            break
    said, _ = life("last")
    disk.lose()
    assert "last" in said
    assert life() == (said, True)
