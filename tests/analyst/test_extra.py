"""The extra `analyst` alone runs `reticent count`: no library of a server is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.analyst.command import KNOWN, QUESTION
from tests.parties.counting_server import CountingServer

BLOCKED = ("phe", "grpc_health", "sqlalchemy", "prometheus_client", "matplotlib", "reticent_agg", "reticent_keys")
PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # importing any of these raises ImportError
from reticent.console.program import main
sys.exit(main(sys.argv[1:]))
"""


def count(folder: Path, *arguments: str) -> str:
    """The standard output of `reticent count` without the libraries of servers."""
    (folder / "gym.toml").write_text(QUESTION)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "count", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_plan_needs_no_library_of_a_server(tmp_path: Path) -> None:
    assert "3, each decrypted with at least 12 contributions" in count(tmp_path, "plan", "gym.toml", "--population=60")


@pytest.mark.slow
def test_a_query_needs_no_library_of_a_server(server: CountingServer, tmp_path: Path) -> None:
    server.phones = lambda _: KNOWN
    where = ["--address", server.address, "--certs", str(server.folder), "--analyst", "ann"]
    shown = count(tmp_path, "new", "gym.toml", "--yes", *where, "--identity", server.signer.public.hex())
    assert "contributors  45" in shown
