"""Time and memory measurements, in fresh processes if needed, and tables."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


MANY_TIMES = 3  # a ratio below has decimals


@dataclass(frozen=True)
class Row:
    """A line of a table: the quantity, our value, the rival's, their ratio and the target."""

    what: str
    ours: str
    rival: str = ""
    ratio: float | None = None
    target: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        return self.what, self.ours, self.rival, "" if self.ratio is None else _ratio(self.ratio), self.target


def best_of(times: int, call: Callable[[], Any]) -> float:
    """The shortest of several runs, in seconds: the time on an idle machine."""
    shortest = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def table(title: str, rows: list[Row]) -> str:
    """A table in plain text."""
    return grid(title, [("", "Reticent", "rival", "ratio", "target"), *(row.cells for row in rows)])


def grid(title: str, lines: Sequence[tuple[str, ...]]) -> str:
    """Columns below their heads, the first line; without the columns that are empty."""
    used = [k for k in range(len(lines[0])) if any(line[k] for line in lines[1:])]
    widths = {k: max(len(line[k]) for line in lines) for k in used}
    text = ["  ".join(line[k].ljust(widths[k]) for k in used).rstrip() for line in lines]
    return "\n".join([title, "-" * len(title), *text, ""])


def seconds(value: float) -> str:
    """A time with a suitable unit."""
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.1f} µs" if value >= 1e-6 else f"{value * 1e9:.0f} ns"


def _ratio(value: float) -> str:
    return f"{value:,.0f} x" if value >= MANY_TIMES else f"{value:.2f} x"


def in_fresh_process(function: str) -> dict[str, float]:
    """The result of `module:function` in a fresh process on one core, and that process's peak memory in MB."""
    module, name = function.split(":")
    code = f"from {module} import {name}; from benchmarks.measure import report; report({name}())"
    run = subprocess.run(  # noqa: S603  # our own interpreter, and functions named in this folder
        [sys.executable, "-c", code], env=os.environ | ONE_CORE, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found


def report(values: dict[str, float]) -> None:
    """Print the measurements of a fresh process."""
    print(json.dumps(values | {"memory": _peak()}))


def memory() -> float:
    """The present size of this process in MB; on macOS, its peak size."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return _peak()


def _peak() -> float:
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
