"""The attacks as a command, and the table of them in the documents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agg import parties
from tests.agg.parties import Phone, Time
from tests.attacks.target import Target

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.attacks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_log_of_a_server_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "aggregation.db"
    server = parties.opened(path, Time())
    query = parties.collecting(server, parties.ask())
    for number in range(3):
        server.collection.contribute([Phone(number).contribution(query)])
    done = run("log", "--database", path)  # beside the server, as whoever copies the files
    server.close()
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "log: SUCCEEDED: 3 single ciphertexts, which match their receipts\n"
    done = run("log")
    assert done.returncode == 2
    assert "--database says which file to look at" in done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:7101", "10.0.0.1:7101", "example.org:7101", "[2001:db8::1]:7101"])
def test_other_machines_are_not_attacked(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="on this machine only"):
        Target(tmp_path, "127.0.0.1:1", "127.0.0.1:2", address, "localhost:3")


def test_each_attack_of_the_table_names_a_test_that_is_there() -> None:
    rows = [line for line in (ROOT / "docs" / "attacks.md").read_text().splitlines() if line.startswith("| ")]
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", "\n".join(rows))
    assert len(set(named)) > 15
    assert not [path for path in named if not (ROOT / path).exists()]
