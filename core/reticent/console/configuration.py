"""Where options come from: the command line, else the environment, else a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict, Env

__all__ = ["FILE", "NAMED", "configured"]

FILE = Path("reticent.toml")
"""The file that is read where it is there, and none is named."""

NAMED = "RETICENT_CONFIG"
"""The environment's variable that names one."""

PROGRAMS = ("keys", "agg", "count", "phone")
"""Those that read it, each its own tables."""

Source = Callable[[App, tuple[str, ...], ArgumentCollection], Any]


def configured(name: str) -> list[Source]:
    """What an app takes its options from, the strongest first.

    Args:
        name: The app's, such as "keys".
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
    """Refuse a table of no program, and one of no command of this program; those of others are theirs."""
    program = next((each for each in app.app_stack.current_frame if name in each.name), None)
    own = content.get(name)
    unknown = [table for table in content if table not in PROGRAMS and table != name]
    if program is not None and isinstance(own, dict):
        unknown += [f"{name}.{table}" for table in own if table not in program]
    if unknown:
        raise ValueError(f"{path} has a table of no command: [{unknown[0]}]")


def _within(name: str, commands: tuple[str, ...]) -> tuple[str, ...]:
    """The commands that were given, beginning with the app's name, which is not there where it is called by itself."""
    return commands if commands[:1] == (name,) else (name, *commands)


def _file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get(NAMED)
    path = Path(named) if named else FILE
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise
        return path, {}
    except ValueError as error:  # no TOML, or no UTF-8
        raise ValueError(f"{path} cannot be read as TOML: {error}") from error
