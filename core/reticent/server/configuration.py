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
        if content:
            Dict(content, source=str(path))(app, _within(name, commands), arguments)

    return [environment, file]


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
