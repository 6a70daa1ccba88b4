"""Sources of options: the command line, else the environment, else a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict, Env

__all__ = ["FILE", "VARIABLE", "configured"]

FILE = Path("reticent.toml")
"""The file that is read if it exists and the environment names no other."""

VARIABLE = "RETICENT_CONFIG"
"""The environment variable that names a file."""

PROGRAMS = ("keys", "agg", "ads", "count", "rates", "phone", "simulate")
"""The programs that read the file; each has tables of its own."""

Source = Callable[[App, tuple[str, ...], ArgumentCollection], Any]


def configured(name: str) -> list[Source]:
    """The sources of an app's options; the first one wins.

    Args:
        name: Of the app, such as "keys".
    """

    def environment(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        words = "_".join(("RETICENT", *_within(name, commands))).upper().replace("-", "_")
        Env(f"{words}_", command=False)(app, commands, arguments)

    def file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        path, content = _file()
        _refuse_unknown_tables(path, content, app, name)
        if content:
            Dict(content, source=str(path))(app, _within(name, commands), arguments)

    return [environment, file]


def _refuse_unknown_tables(path: Path, content: dict[str, Any], app: App, name: str) -> None:
    """Refuse a table that is no program's, and a table of this program that is no command's."""
    program = next((each for each in app.app_stack.current_frame if name in each.name), None)
    own = content.get(name)
    unknown = [table for table in content if table not in PROGRAMS and table != name]
    if program is not None and isinstance(own, dict):
        unknown += [f"{name}.{table}" for table in own if table not in program]
    if unknown:
        raise ValueError(f"{path} has a table of no command: [{unknown[0]}]")


def _within(name: str, commands: tuple[str, ...]) -> tuple[str, ...]:
    """The commands, with the app's name first: it is missing if the app runs by itself."""
    return commands if commands[:1] == (name,) else (name, *commands)


def _file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else FILE
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))  # noqa: TID251  # the console reads no stored documents
    except FileNotFoundError:
        if named:
            raise
        return path, {}
    except (ValueError, RecursionError) as error:  # not TOML, nested too deeply, or not UTF-8
        raise ValueError(f"{path} cannot be read as TOML: {error}") from error
