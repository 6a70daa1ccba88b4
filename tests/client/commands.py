"""What the tests of the command line share: a folder of files, days, and runs in the same process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from reticent.console import program
from reticent.randomness import seeded
from reticent_client import mask_sensitive, simulatable
from reticent_client.mask.days_file import DayRecord, write_days
from tests.client.mask import chains


def lines(text: str) -> list[str]:
    """A text without the blanks at the ends of its lines."""
    return [line.rstrip() for line in text.splitlines()]


def days(count: int) -> list[DayRecord]:
    """Some days of two paths."""
    return [DayRecord(f"day {k}", list(chains.two_paths().sample(seeded(k)))) for k in range(count)]


def furnish(folder: Path) -> None:
    """A chain, days, a private policy and one that leaks."""
    chain = chains.two_paths()
    chain.save(folder / "chain.json")
    with (folder / "days.csv").open("w", newline="") as file:
        write_days(file, days(20))
    simulatable(chain, sensitive={"s"}, delta=0.1).save(folder / "private.npz")
    mask_sensitive(chain, sensitive={"s"}).save(folder / "leaky.npz")


@dataclass(frozen=True)
class Output:
    """What a run has written."""

    stdout: str
    stderr: str


Run = Callable[..., Output]


def runner(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `reticent mask` in a folder, in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str, code: int = 0, stdin: str = "") -> Output:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        returned = program.main(["mask", *arguments])
        out, err = capsys.readouterr()
        assert returned == code, err
        return Output(out, err)

    return run
