"""The attacks as a command, and the table of them in the documents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reticent_sim.engine import ANALYST, ServerPair, launched
from tests.attacks.__main__ import main
from tests.attacks.target import Target
from tests.parties import aggregation
from tests.parties.aggregation import Phone, Time

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.attacks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_log_of_a_server_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "aggregation.db"
    server = aggregation.opened(path, Time())
    query = aggregation.collecting(server, aggregation.make_query())
    for number in range(3):
        server.collection.contribute([Phone(number).contribution(query)])
    done = run("log", "--database", path)  # beside the server, as whoever copies the files
    server.close()
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "log: SUCCEEDED: 3 single ciphertexts, which match their receipts\n"
    done = run("log")
    assert done.returncode == 2
    assert "--database says which file to look at" in done.stderr


@pytest.mark.slow
def test_an_attack_that_cannot_be_tried_has_not_succeeded(tmp_path: Path) -> None:
    """The command says what it needs instead, and exits with 2."""
    with launched(ServerPair(tmp_path, keys_options=("--min-honest", "2", "--min-liars-share", "0"))) as servers:
        target, folder = Target.of(servers), tmp_path / "invitations-1"
        where = (
            *("--certs", servers.certs, "--enrolment", target.enrolment, "--deciding", target.deciding),
            *("--collecting", target.collecting, "--counting", target.counting),
        )
        servers.invitations(5)
        done = run("known-number", *where, "--invitations", folder)
        assert (done.returncode, done.stdout.split(":")[:2]) == (1, ["known number", " SUCCEEDED"])
        done = run("restored-phone", *where, "--invitations", folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert "could not be tried: INVITATION: another phone has used the invitation" in done.stderr
        servers.invitations(5)
        done = run("two-subsets", *where, "--invitations", tmp_path / "invitations-2")
        assert (done.returncode, done.stdout) == (2, "")
        assert "the key server has 5 other phones: this attack needs one without" in done.stderr
        done = run("large-query", *where, "--invitations", tmp_path / "invitations-2", "--analyst", ANALYST)
        assert (done.returncode, done.stdout) == (2, "")
        assert "the attack could not be tried" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("answers",), "could not be tried"),
        (("connections", "--enrolment", "10.0.0.1:7101"), "on this machine only"),
        (("connections",), "--analyst names the honest caller"),
        (("answers", "--listener", "deciding"), "nobody can call deciding without a certificate"),
        (("large-query", "--invitations", "."), "could not be tried"),
        (("two-subsets",), "--invitations names a folder"),
    ],
    ids=str,
)
def test_whoever_asks_for_an_attack_wrongly_is_told_why(
    tmp_path: Path,
    arguments: tuple[str, ...],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["attacks", *arguments, "--certs", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        main()
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err


@pytest.mark.parametrize("address", ["0.0.0.0:7101", "10.0.0.1:7101", "example.org:7101", "[2001:db8::1]:7101"])
def test_other_machines_are_not_attacked(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="on this machine only"):
        Target(tmp_path, "127.0.0.1:1", "127.0.0.1:2", address, "localhost:3")


def test_each_attack_of_the_table_names_a_test_that_is_there() -> None:
    rows = [line for line in (ROOT / "docs" / "attacks.md").read_text().splitlines() if line.startswith("| ")]
    named = re.findall(r"`(tests/[a-z_/]+\.py)`", "\n".join(rows))
    assert len(set(named)) > 15
    assert not [path for path in named if not (ROOT / path).exists()]
