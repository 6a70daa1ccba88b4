"""The exit codes: one table for all commands, and no two failures of different kinds with one code."""

import errno
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cyclopts
import pytest

from reticent.console import program
from reticent.errors import ExitCode, ReticentError
from reticent.protocol import Refusal, Refused
from tests.snapshots.help_texts import FOLDER, all_commands

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
PACKAGES = ("reticent", "reticent_agg", "reticent_analyst", "reticent_client", "reticent_keys", "reticent_sim")
ANSWERS = {"LevelBurnt", "NeverDecided", "QueryBurnt"}
"""The exceptions that are answers to a question: what became of a query."""


def _leaves() -> Iterator[tuple[str, ...]]:
    """The commands that do something, and are no groups of others."""
    commands = list(all_commands())
    for command in commands:
        if not any(other[: len(command)] == command and other != command for other in commands):
            yield command


LEAVES = list(_leaves())


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ", PAGE, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(each.value, each.name) for each in ExitCode]


def test_no_other_page_has_a_table_of_exit_codes() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    tables = re.compile(r"^\| *(exit )?codes? *\|", re.MULTILINE | re.IGNORECASE)
    assert [page.name for page in pages if tables.search(page.read_text(encoding="utf-8"))] == ["exit-codes.md"]


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_wrong_usage_of_every_command_is_bad_input(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([*command, "--no-such-option"]) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.startswith("reticent: ")


FAILURES = {
    "a bad answer": ("return", ExitCode.BAD_ANSWER),
    "a bad argument": (ValueError("x"), ExitCode.BAD_INPUT),
    "a missing file": (FileNotFoundError(errno.ENOENT, "No such file", "x"), ExitCode.BAD_INPUT),
    "a refusal": (Refused(Refusal.REVOKED), ExitCode.REFUSED),
    "a busy server": (Refused(Refusal.BUSY), ExitCode.RETRY_LATER),
    "an address in use": (OSError(errno.EADDRINUSE, "in use"), ExitCode.IN_USE),
    "a full disk": (OSError(errno.ENOSPC, "no space"), ExitCode.SYSTEM),
    "a mistake of our own": (KeyError("x"), ExitCode.DEFECT),
    "a server that is stopped before it serves": (SystemExit(), ExitCode.DONE),
    "a ctrl-C": (KeyboardInterrupt(), ExitCode.STOPPED),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_every_command_ends_with_the_same_code_for_the_same_failure(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever fails in a command: each is replaced by one that fails at once."""
    failure, code = FAILURES[kind]

    def fail() -> ExitCode:
        if isinstance(failure, BaseException):
            raise failure
        return code

    for command in LEAVES:
        app = _app_of(command)
        monkeypatch.setattr(app, "default_command", fail)
        assert program.main(list(command)) == code, command
        said = capsys.readouterr()
        assert said.out == ""
        assert ("Traceback" in said.err) == (code is ExitCode.DEFECT)


def _app_of(command: tuple[str, ...]) -> cyclopts.App:
    row = next(each for each in program.COMMANDS if each.name == command[0])
    module, attribute = row.app.split(":")
    app: cyclopts.App = getattr(importlib.import_module(module), attribute)
    for name in command[1:]:
        app = app[name]
    return app


def test_every_command_ends_quietly_without_a_reader() -> None:
    """As `reticent ... | head -n 1` does; all in one process, each with a closed pipe for its output."""
    code = f"""
import os, sys
from reticent.console.program import main
for command in {LEAVES!r}:
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)
    sys.stdout = open(1, "w", closefd=False)
    if main([*command, "--help"]) != {ExitCode.BROKEN_PIPE:d}:
        print(command, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_exceptions_that_are_answers_end_as_answers() -> None:
    """All others say that there is no answer, so that 1 means one thing."""
    found = {each.__name__: each.exit_code for each in _exceptions()}
    assert len(found) > 30
    assert {name for name, code in found.items() if code is ExitCode.BAD_ANSWER} == ANSWERS
    assert not {ExitCode.DONE, ExitCode.DEFECT, ExitCode.STOPPED, ExitCode.BROKEN_PIPE} & set(found.values())
    assert [name for name, code in found.items() if code is ExitCode.WRONG_PASSPHRASE] == ["WrongPassphrase"]
    assert {name for name, code in found.items() if code is ExitCode.IN_USE} == {"InUse", "AddressError"}


def _exceptions() -> list[type[ReticentError]]:
    for package in PACKAGES:
        for module in _modules(importlib.import_module(package)):
            importlib.import_module(module)
    pending, found = [ReticentError], []
    while pending:
        kind = pending.pop()
        found.append(kind)
        pending += [each for each in kind.__subclasses__() if each.__module__.split(".")[0] in PACKAGES]
    return found


def _modules(package: ModuleType) -> Iterator[str]:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__") and (package.__name__ == "reticent" or module.name.endswith("errors")):
            yield module.name


def test_the_help_names_the_codes_that_mean_something_else_than_failure() -> None:
    """A command that ends with 1 says when."""
    for command in LEAVES:
        source = inspect.getsource(_app_of(command).default_command)  # type: ignore[arg-type]
        text = (FOLDER / f"reticent-{'-'.join(command)}.txt").read_text(encoding="utf-8")
        if "ExitCode.BAD_ANSWER" in source:
            assert "Exits with 1 if" in " ".join(text.split()), command
