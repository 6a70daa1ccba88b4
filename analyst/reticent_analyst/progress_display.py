"""Progress on standard error while a command waits: lines, or a bar for a query on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TextIO

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from reticent.console.text import printable
from reticent.privacy import Query
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent_analyst.client import Timeouts
from reticent_analyst.handle import Progress
from reticent_analyst.render import terminal

__all__ = ["ProgressDisplay"]

FIRST = 2.0
"""Seconds before the first line."""
EVERY = 30.0
"""Seconds between two lines about the same subject."""
_TICK = 0.1


class ProgressDisplay:
    """Writes what a command waits for: after `first` seconds, for each new subject, and every `every` seconds.

    Args:
        stream: Where lines go; standard error if None.
        first: Seconds before the first line about a subject.
        every: Seconds between further lines.
        monotonic: The time in seconds, from any origin.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        first: float = FIRST,
        every: float = EVERY,
        monotonic: Callable[[], float] = Timeouts.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._stream = stream
        self._first, self._every = first, every
        self._lock = threading.Lock()
        self._subject, self._detail = "", ""
        self._written_subject, self._written_at = "", self._monotonic()
        self._update_bar: Callable[..., Any] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress display", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def show(self, subject: str, detail: str = "") -> None:
        """Set what the command waits for.

        Args:
            subject: The beginning of the line; a new subject gets a new line. Empty if the command waits for nothing.
            detail: The rest of the line.
        """
        if self._update_bar is not None:
            self._update_bar(state=printable(subject + detail))
            return
        with self._lock:
            if not self._subject:
                self._written_subject, self._written_at = "", self._monotonic()
            self._subject, self._detail = subject, detail

    def on_outage(self, server: str, seconds: float) -> None:
        """Show that a server is unavailable."""
        self.show(f"waiting for {server}", f" ({seconds:.0f} s)")

    def on_progress(self, progress: Progress) -> None:
        """Show the progress of a query."""
        if self._update_bar is not None:
            self._update_bar(completed=sum(progress.contributors))
        self.show(*_description(progress))

    @contextmanager
    def bar(self, query: Query) -> Iterator[None]:
        """Show a bar instead of lines, if standard error is a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        self.show("")
        with Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=terminal(is_for_errors=True),
            transient=True,
        ) as bars:
            task = bars.add_task(printable(query.id), total=query.population, state="")
            self._update_bar = lambda **fields: bars.update(task, **fields)
            try:
                yield
            finally:
                self._update_bar = None

    def write_line(self) -> None:
        """Write a line if one is due. A thread calls this while the display is entered."""
        with self._lock:
            line = self._due_line(self._monotonic())
        if line:
            stream = self._stream or sys.stderr
            stream.write(f"{printable(line)}\n")
            stream.flush()

    def _run(self) -> None:
        while not self._closed.wait(_TICK):
            self.write_line()

    def _due_line(self, now: float) -> str:
        delay = self._every if self._subject == self._written_subject else self._first
        if not self._subject or now - self._written_at < delay:
            return ""
        self._written_subject, self._written_at = self._subject, now
        return self._subject + self._detail


def _description(progress: Progress) -> tuple[str, str]:
    """The step that a query waits for, and its progress."""
    outage = f"; {KEY_SERVER_UNAVAILABLE}" if progress.is_key_server_unavailable else ""
    if progress.phase == "announced":
        return "waiting for the key server", f" to countersign{outage}"
    if progress.phase == "collecting":
        return "collecting: ", f"{sum(progress.contributors)} phones; closes in {progress.closes_in:.0f} s{outage}"
    return f"{progress.phase}: ", f"{progress.decided} of {len(progress.outcomes)} cohorts decided{outage}"
