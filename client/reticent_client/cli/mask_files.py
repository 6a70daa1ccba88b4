"""Shared by the commands of `reticent mask`: reading files, progress and tables."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from reticent.console.options import in_json
from reticent_client.errors import FileError
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.days_file import DayRecord, read_days
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import SensitiveState

Output = Annotated[Path, Parameter(name=["--output", "-o"])]
OptionalOutput = Annotated[Path | None, Parameter(name=["--output", "-o"])]

MOST_UNKNOWN = 0.5
"""The share of readings with labels that a policy does not know above which days are not those of its user."""


def read_chain(path: Path) -> MarkovChain:
    """The chain in a file."""
    with bad_file():
        return MarkovChain.load(path)


def read_policy(path: Path) -> Policy:
    """The policy in a file."""
    with bad_file():
        return Policy.load(path)


def read_any_days(path: Path | None, horizon: int | None = None) -> list[DayRecord]:
    """The days in a file, or on standard input."""
    if path is None:
        return read_days(sys.stdin, place_of(path), horizon)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return read_days(file, str(path), horizon)


def read_policy_days(path: Path | None, policy: Policy) -> list[DayRecord]:
    """Days for a policy to decide; `ValueError` if they are plainly of another chain."""
    days = read_any_days(path, policy.horizon)
    readings = [label for day in days for label in day.labels if label is not None]
    unknown = [label for label in readings if policy.chain.find(label) is None]
    if len(unknown) > MOST_UNKNOWN * len(readings):
        raise ValueError(
            f"{place_of(path)}: the policy does not know the contexts of {len(unknown)} of {len(readings)} readings, "
            f"such as {unknown[0]!r}: give days with the contexts of its chain"
        )
    return days


def place_of(path: Path | None) -> str:
    """The name of a file of days in errors."""
    return "standard input" if path is None else str(path)


def sensitive_state(text: str, chain: MarkovChain) -> SensitiveState:
    """A context, or the context of a step."""
    state = re.fullmatch(r"(\d+):(.*)", text)
    if chain.find(text) is not None or state is None:
        return text
    return int(state[1]), state[2]


@contextlib.contextmanager
def bad_file() -> Iterator[None]:
    """Report a bad file as bad input (exit code 2)."""
    try:
        yield
    except FileError as error:
        raise ValueError(str(error)) from error


@contextlib.contextmanager
def busy(text: str, shown_on: Console | None = None) -> Iterator[Callable[[str], None]]:
    """A spinner with the elapsed time on standard error; yields the function that changes its text."""
    console = Console(stderr=True) if shown_on is None else shown_on
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text)
        yield lambda changed: progress.update(task, description=changed)


def terminal() -> Console:
    """Standard output, without markup: labels are printed as they are."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)


def new_table(*headers: str) -> Table:
    """A table without lines."""
    return Table(*headers, box=None, show_header=bool(headers), pad_edge=False)


def write_json(data: dict[str, Any]) -> None:
    """Write JSON to standard output."""
    sys.stdout.write(in_json(data) + "\n")
