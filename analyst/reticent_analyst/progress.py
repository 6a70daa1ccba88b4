"""What an analyst is told on standard error while something takes its time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from reticent.console.text import printable
from reticent_analyst.client import Patience
from reticent_analyst.handle import Handle, Progress, Watcher
from reticent_analyst.render import terminal

__all__ = ["FIRST", "Narration", "in_short", "told", "watching"]

FIRST = 2.0
"""Seconds that are nothing to speak of."""
EVERY = 30.0
"""Seconds between two lines about the same thing."""
_TICK = 0.1


class Narration:
    """Says what is waited for, when that takes more than a moment, and again when it is something else.

    Args:
        stream: Where; standard error unless given.
        first: After how many seconds.
        every: And after how many more.
        monotonic: Says what time it is, in seconds since anything.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        first: float = FIRST,
        every: float = EVERY,
        monotonic: Callable[[], float] = Patience.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._stream = stream
        self._first, self._every = first, every
        self._lock = threading.Lock()
        self._about, self._text = "", ""
        self._said_about, self._said_at = "", self._monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="narration", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def now(self, about: str, text: str = "") -> None:
        """What is being waited for; nothing if that is empty.

        Args:
            about: The line; or how it begins, which tells it from lines about something else.
            text: And how it goes on.
        """
        with self._lock:
            if not self._about:
                self._said_about, self._said_at = "", self._monotonic()
            self._about, self._text = about, text

    def hindered(self, who: str) -> None:
        """Somebody does not answer."""
        self.now(f"waiting for {who}")

    def say(self) -> None:
        """Say what is to be said now, if anything; done again and again while this is entered."""
        with self._lock:
            line = self._due(self._monotonic())
        if line:
            stream = self._stream or sys.stderr
            stream.write(f"{printable(line)}\n")
            stream.flush()

    def _run(self) -> None:
        while not self._over.wait(_TICK):
            self.say()

    def _due(self, now: float) -> str:
        """The line that is to be said now."""
        pause = self._every if self._about == self._said_about else self._first
        if not self._about or now - self._said_at < pause:
            return ""
        self._said_about, self._said_at = self._about, now
        return self._about + self._text


@contextmanager
def watching(handle: Handle, narration: Narration) -> Iterator[Watcher]:
    """A bar on standard error where somebody looks at it; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        yield lambda progress: narration.now(*told(progress))
        return
    narration.now("")
    query = handle.query
    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        console=terminal(is_for_errors=True),
        transient=True,
    ) as bars:
        bar = bars.add_task(printable(query.id), total=query.population, state="")

        def watch(progress: Progress) -> None:
            bars.update(bar, completed=sum(progress.contributors), state=in_short(progress))

        yield watch


def in_short(progress: Progress) -> str:
    """How far a query is, in a few words."""
    if progress.away:
        return f"the server does not answer, for {progress.away:.0f} s"
    return "".join(told(progress))


def told(progress: Progress) -> tuple[str, str]:
    """What a query waits for, and how far it is."""
    if progress.away:
        return "waiting for the aggregation server", f", for {progress.away:.0f} s"
    if progress.phase == "announced":
        return "waiting for the key server", " to countersign"
    decided = f"{progress.decided} of {len(progress.outcomes)} cohorts decided"
    if progress.phase == "collecting":
        return "collecting: ", f"{sum(progress.contributors)} phones; closes in {progress.closes_in:.0f} s"
    return f"{progress.phase}: ", decided
