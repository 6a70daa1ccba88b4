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
from reticent_sim.engine.snapshot import Snapshot
from reticent_sim.report.run.numbers import count, decimal

__all__ = ["LiveView"]

HOURS = 24
EVERY = 5.0
"""The fewest seconds between two lines of the same phase, where the console is no terminal."""


class LiveView:
    """A few lines that change in place on a terminal; elsewhere a line every five seconds, and one for each new phase.

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


def _time(snapshot: Snapshot) -> str:
    return f"day {snapshot.day + 1} of {snapshot.days}, {snapshot.step:02}:00"


def _budget(snapshot: Snapshot) -> str:
    return f"epsilon {decimal(snapshot.epsilon_spent)} of {decimal(snapshot.epsilon_limit)}"


def _line(snapshot: Snapshot) -> str:
    parts = [
        f"{snapshot.seconds:6.1f} s", _time(snapshot), printable(snapshot.phase),
        f"{count(snapshot.present)} of {count(snapshot.phones)} phones",
        f"{count(snapshot.contributions)} contributions ({decimal(snapshot.rate)}/s)",
        _budget(snapshot),
    ]  # fmt: skip
    return "  ".join(parts)


def _panel(snapshot: Snapshot) -> Group:
    """The lines on a terminal: a title, and a bar for the days, the phones and the budget."""
    hours = snapshot.day * HOURS + snapshot.step
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(width=24)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, done, total, words in (
        ("days", hours, snapshot.days * HOURS, _time(snapshot)),
        ("phones", snapshot.present, snapshot.phones, f"{count(snapshot.present)} of {count(snapshot.phones)} present"),
        ("budget", snapshot.epsilon_spent, snapshot.epsilon_limit, _budget(snapshot)),
    ):
        table.add_row(name, ProgressBar(total=max(total, 1e-9), completed=min(done, total), width=24), words)
    table.add_row("counts", "", f"{count(snapshot.contributions)} contributions, {decimal(snapshot.rate)} a second")
    title = Text(
        f"{printable(snapshot.phase)}  {snapshot.seconds:.0f} s", style="bold", no_wrap=True, overflow="ellipsis"
    )
    return Group(title, table)
