"""Standard output of a process that must not wait for its reader."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time

from reticent_client.apps.messages import Step

UNREAD = 1000
"""Lines that wait for the reader."""
TIMEOUT = 1.0
"""Seconds in which they may be read at the end."""
POLL_INTERVAL = 0.01
"""Seconds between two checks whether they were read."""


class LinePrinter:
    """Writes to standard output and never waits for its reader: lines beyond the limit are dropped."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue(UNREAD)

    def begin(self) -> None:
        """Begin to write."""
        with contextlib.suppress(OSError, ValueError):  # there is no standard output
            threading.Thread(target=self._write, args=(sys.stdout.fileno(),), daemon=True).start()

    def print_line(self, line: str) -> None:
        """Write a line, unless too many wait already."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(f"{line}\n")

    def step(self, step: Step) -> None:
        """Write what is released at a step."""
        self.print_line(f"{step.date} {step.time}  {'-' if step.context is None else step.context}")

    def finish(self) -> None:
        """Wait a moment for lines that are not written yet."""
        end = time.monotonic() + TIMEOUT
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(POLL_INTERVAL)

    def _write(self, out: int) -> None:
        """Write past Python's buffer: its lock, held by a thread that waits, would keep the process from ending."""
        has_reader = True
        while True:
            line = self._lines.get().encode()
            while has_reader and line:
                try:
                    line = line[os.write(out, line) :]
                except OSError:  # nobody reads any more; the phone goes on
                    has_reader = False
            self._lines.task_done()
