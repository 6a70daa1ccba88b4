"""What each command prints for `--help`, and the files that hold it."""

import contextlib
import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import cyclopts

from reticent.console import program
from reticent.errors import ExitCode

FOLDER = Path(__file__).parent
DISPLAY = {"COLUMNS": "80", "NO_COLOR": "1"}
"""The environment variables that the texts depend on."""


def all_commands() -> Iterator[tuple[str, ...]]:
    """Every command and subcommand, after the program's name; the program itself first."""
    yield ()
    for command in program.COMMANDS:
        module, attribute = command.app.split(":")
        yield from _within((command.name,), getattr(importlib.import_module(module), attribute))


def _within(words: tuple[str, ...], app: cyclopts.App) -> Iterator[tuple[str, ...]]:
    yield words
    for name in app:
        if not name.startswith("-"):
            yield from _within((*words, name), app[name])


def help_of(command: tuple[str, ...]) -> str:
    """What a command prints for `--help`, without blanks at the ends of lines; under the variables of `DISPLAY`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = program.main([*command, "--help"])
    if code != ExitCode.DONE:
        raise AssertionError(f"{' '.join(command)} --help ended with {code}")
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def file_of(command: tuple[str, ...]) -> Path:
    """Where the help of a command is kept."""
    return FOLDER / f"{'-'.join(('reticent', *command))}.txt"


def rewrite() -> None:
    """Write the files of all commands, and delete those of commands that are gone."""
    os.environ.update(DISPLAY)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for command in all_commands():
        file_of(command).write_text(help_of(command), encoding="utf-8")
