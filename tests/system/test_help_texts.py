"""The help of every command is what the snapshots have; `python -m tests.snapshots` rewrites them."""

import re

import pytest

from reticent.console import program
from reticent.errors import ExitCode
from tests.snapshots.help_texts import DISPLAY, FOLDER, all_commands, file_of, help_of

COMMANDS = list(all_commands())


@pytest.fixture(autouse=True)
def _display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DISPLAY.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(("reticent", *command)))
def test_the_help_of_a_command_is_that_of_its_snapshot(command: tuple[str, ...]) -> None:
    assert help_of(command) == file_of(command).read_text(encoding="utf-8")


def test_there_are_no_other_snapshots() -> None:
    assert sorted(FOLDER.glob("*.txt")) == sorted(map(file_of, COMMANDS))


def test_all_commands_describe_json_alike() -> None:
    """The linter wants a text beside each option, so no type can hold it once."""
    found = [file_of(command).read_text(encoding="utf-8") for command in COMMANDS]
    texts = {text for each in found for text in re.findall(r"│ +--json +(.*?) +│", each)}
    assert {text.removesuffix(" [default: False]") for text in texts} == {"Print JSON."}


@pytest.mark.parametrize("command", [command for command in COMMANDS if len(command) < 2])
def test_no_line_is_wider_than_the_terminal(command: tuple[str, ...]) -> None:
    assert max(map(len, help_of(command).splitlines())) <= int(DISPLAY["COLUMNS"])


@pytest.mark.parametrize("group", ["mask", "phone", "certs", "keys", "agg", "count", "rates", "experiment"])
def test_a_group_without_a_command_prints_its_help(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([group]) == ExitCode.DONE
    printed = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    assert printed == file_of((group,)).read_text(encoding="utf-8")
