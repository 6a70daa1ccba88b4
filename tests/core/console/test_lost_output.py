"""What a command does where its output is lost: a full disk, a reader that ended, a closed stream."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from reticent.errors import ExitCode
from reticent.tls.certificates import create
from reticent_client import PhoneStore
from reticent_keys import administration, sealing
from reticent_keys.folder import Folder
from tests.keys.conftest import CHEAP
from tests.parties import aggregation
from tests.parties.phone import Phone

PROGRAM = Path(sys.executable).with_name("reticent")
FULL = Path("/dev/full")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
PASSPHRASE = "nobody knows"  # noqa: S105  # of tests

needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")

MASK_COMMANDS = ["--version", "--help", "mask fit days.csv -o chain.json --json", "mask show days.csv"]
PHONE_COMMANDS = ["phone status", "phone status --json", "phone apps add app{number}"]
KEYS_COMMANDS = [
    "keys invite -n 3",
    "keys revoke {phone}",
    "keys phones",
    "keys status --json",
    "keys rotate --key-bits 1024 --simulation --passphrase-file passphrase",
    "keys backup keys-copy{number}",
]
AGG_COMMANDS = ["agg abort first", "agg restored", "agg prune", "agg status", "agg backup agg-copy{number}"]
COMMANDS = [*MASK_COMMANDS, *PHONE_COMMANDS, *KEYS_COMMANDS, *AGG_COMMANDS]

LOSE_OUTPUT = f"""
import io, json, os, sys
from reticent.console.program import main
from reticent_keys import sealing

sealing.SCRYPT_COST["n"] = {CHEAP}

lost_in, runs = sys.argv[1], json.loads(sys.argv[2])
for command, is_buffered in runs:
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer if lost_in == "pipe" else os.open(lost_in, os.O_WRONLY), 1)
    os.close(writer)
    stream = io.FileIO(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(stream) if is_buffered else stream, write_through=not is_buffered)
    print(json.dumps([command, main(command.split())]), file=sys.stderr)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with a phone and both servers; returns the names in it."""
    monkeypatch.setitem(sealing.SCRYPT_COST, "n", CHEAP)
    (tmp_path / "days.csv").write_text("day,step,context\n1,1,gym\n1,2,home\n2,1,gym\n2,2,home\n")
    (tmp_path / "passphrase").touch(mode=0o600)
    (tmp_path / "passphrase").write_text(PASSPHRASE)
    PhoneStore(tmp_path / "phone.db").close()
    create(tmp_path / "certs", hosts=["127.0.0.1"], analysts=[], days=2)
    now = dt.datetime.now(dt.UTC)
    with Folder(tmp_path / "keys", bits=1024, simulation=True).served(PASSPHRASE, now=lambda: now) as server:
        [token] = administration.invite(server.journal, 1, expires=now + dt.timedelta(days=1))
        phone = server.members.join(Phone(token).joining()).phone.hex()
    (tmp_path / "aggregation").mkdir()
    with closing(aggregation.opened(tmp_path / "aggregation" / "aggregation.db", aggregation.Time())) as server:
        for name in ("first", "second"):
            aggregation.collecting(server, aggregation.make_query(id=name))
    return {"phone": phone}


@needs_full_device
@pytest.mark.parametrize(
    ("lost_in", "code", "sentences"),
    [
        ("/dev/full", ExitCode.SYSTEM, ["reticent: [Errno 28] No space left on device"]),
        pytest.param("pipe", ExitCode.BROKEN_PIPE, [], marks=pytest.mark.slow),  # `test_exit_codes` has all help texts
    ],
)
def test_lost_output_is_an_error_of_a_command_that_ends(
    tmp_path: Path, home: dict[str, str], lost_in: str, code: ExitCode, sentences: list[str]
) -> None:
    """All in one process, each with the same lost output; with Python's buffer, and without as by PYTHONUNBUFFERED."""
    runs = [(command.format(number=int(each), **home), each) for each in (True, False) for command in COMMANDS]
    done = _in(tmp_path, sys.executable, "-c", LOSE_OUTPUT, lost_in, json.dumps(runs))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    ended = [tuple(json.loads(line)) for line in lines if line.startswith("[")]
    assert ended == [(command, code) for command, _ in runs]
    assert [line for line in lines if not line.startswith("[")] == sentences * len(runs)
    assert len(list((tmp_path / "invitations").iterdir())) == 6


NOTES = {
    "--version": ExitCode.DONE,
    "mask show nothing": ExitCode.BAD_INPUT,
    "mask audit policy.npz nothing": ExitCode.BAD_INPUT,
    "mask learn traces.csv -o chain.json --min-days 1": ExitCode.DONE,
    "phone leave": ExitCode.REFUSED,
}


@needs_full_device
@pytest.mark.parametrize(
    ("command", "redirection"),
    [
        *((command, "2>/dev/full") for command in NOTES),
        ("mask show nothing", "2>&-"),
        *(pytest.param(command, "2>&-", marks=pytest.mark.slow) for command in NOTES if command != "mask show nothing"),
    ],
)
def test_lost_notes_do_not_change_the_exit_code(tmp_path: Path, command: str, redirection: str) -> None:
    PhoneStore(tmp_path / "phone.db").close()
    readings = [f"ada,2027-03-{day:02}T{hour:02}:00,gym" for day in range(1, 9) for hour in range(24)]
    (tmp_path / "traces.csv").write_text("\n".join(["user,time,context", *readings, ""]))
    assert _shell(tmp_path, f"{command} {redirection}").returncode == NOTES[command]


def test_a_closed_output_is_like_the_null_device(tmp_path: Path) -> None:
    """A service manager or a script may close it."""
    (tmp_path / "days.csv").write_text("day,step,context\n1,1,gym\n1,2,home\n")
    done = _shell(tmp_path, "mask fit days.csv -o chain.json --json >&-")
    assert (done.returncode, done.stderr) == (ExitCode.DONE, "")
    assert json.loads((tmp_path / "chain.json").read_text())


def _shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return _in(folder, "sh", "-c", f"exec {PROGRAM} {command}")


def _in(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
