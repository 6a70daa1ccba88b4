"""A run on the terminal while it goes on."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reticent.console.text import printable
from reticent_sim.engine.coordinator import Snapshot
from reticent_sim.report.run.numbers import count, decimal

__all__ = ["LiveView"]

WIDTH = 24
"""The letters of a bar."""
EVERY = 1.0
"""The fewest seconds between two lines of the same phase, where the console is no terminal."""


class LiveView:
    """A few lines that change in place on a terminal; elsewhere a line a second, and one for each new phase.

    Args:
        console: Where they go.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None
        self._phase, self._written = "", float("-inf")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, snapshot: Snapshot) -> None:
        """Show a new state."""
        if self._live is not None:
            self._live.update(_panel(snapshot), refresh=True)
        elif snapshot.phase != self._phase or snapshot.seconds - self._written >= EVERY:
            self._phase, self._written = snapshot.phase, snapshot.seconds
            self._console.print(Text(_line(snapshot)), soft_wrap=True)


def _line(snapshot: Snapshot) -> str:
    parts = (_day(snapshot), printable(snapshot.phase), _counts(snapshot), _budget(snapshot))
    return "  ".join([f"{snapshot.seconds:6.1f} s", *filter(None, parts)])


def _panel(snapshot: Snapshot) -> Group:
    """The lines on a terminal: a title, bars for the days and the budget, and the open query."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(width=WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_row("days", _bar(snapshot.day, snapshot.days), _day(snapshot))
    table.add_row("budget", _bar(snapshot.epsilon_spent, snapshot.epsilon_limit), _budget(snapshot))
    table.add_row("counts", _bar(snapshot.contributions, snapshot.phones), _counts(snapshot))
    title = f"{count(snapshot.phones)} phones  {snapshot.seconds:.0f} s  {printable(snapshot.phase)}"
    return Group(Text(title, style="bold", no_wrap=True, overflow="ellipsis"), table)


def _bar(done: float, total: float) -> ProgressBar:
    return ProgressBar(total=max(total, 1e-9), completed=min(done, total), width=WIDTH)


def _day(snapshot: Snapshot) -> str:
    return f"day {snapshot.day + 1} of {snapshot.days}"


def _counts(snapshot: Snapshot) -> str:
    """The contributions to the open query; empty if none is open."""
    if not snapshot.contributions:
        return ""
    return f"{count(snapshot.contributions)} contributions, {decimal(snapshot.rate)} a second"


def _budget(snapshot: Snapshot) -> str:
    return f"epsilon {decimal(snapshot.epsilon_spent)} of {decimal(snapshot.epsilon_limit)}"
