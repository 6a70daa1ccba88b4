"""A folder with policies and days for one test, and `reticent mask` run in it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from reticent.console import program
from tests.client.apps.command import ENVIRONMENT, PROGRAM, QUICK, Ask, Run
from tests.client.apps.phones import releasing
from tests.client.commands import furnish


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policies, and days to replay."""
    folder = tmp_path_factory.mktemp("furnished")
    furnish(folder)
    releasing(QUICK).save(folder / "quick.npz")
    releasing(4).save(folder / "slow.npz")
    days = [("2027-02-01", ["home", "hospital", "work", ""]), ("2027-02-02", ["work", "", "elsewhere", "home"])]
    text = [f"{day},{step},{context}\n" for day, contexts in days for step, context in enumerate(contexts)]
    (folder / "days.csv").write_text("day,step,context\n" + "".join(text))
    return folder


@pytest.fixture
def folder(furnished: Path, tmp_path: Path) -> Path:
    """A folder with all that, for one test."""
    return shutil.copytree(furnished, tmp_path / "folder")


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs the program in that folder until it ends."""

    def run(*arguments: str, code: int = 0, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAM, "phone", *arguments],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """What the program says on standard output and on standard error, asked in this process."""
    monkeypatch.chdir(folder)

    def ask(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert program.main(["phone", *arguments]) == code
        captured = capsys.readouterr()
        return captured.out, captured.err

    return ask
