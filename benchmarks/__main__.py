"""Run the benchmarks: `python -m benchmarks [--traces FILE] [NAME ...]`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.measure import ONE_CORE

LONG = ("learning", "many_phones")
DEFAULT = ("checks", "broker", "calibration", "encryption", "counting", "utility")


def main() -> None:
    """Print one table after the other."""
    os.environ.update(ONE_CORE)  # before NumPy is loaded: ratios compare one core with one core
    from benchmarks import (  # noqa: PLC0415  # see above
        broker,
        calibration,
        checks,
        counting,
        encryption,
        learning,
        many_phones,
        utility,
    )

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Reticent beside its rivals.")
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*DEFAULT, *LONG, []],
        help=f"what to run; {', '.join(DEFAULT)} unless named: {' and '.join(LONG)} take minutes",
    )
    parser.add_argument(
        "--traces",
        type=Path,
        default=os.environ.get("RETICENT_TRACES"),
        help="a gzipped table user,day,slot,place of half hours, for utility and learning (or RETICENT_TRACES)",
    )
    arguments = parser.parse_args()
    traces = None if arguments.traces is None else Path(arguments.traces)
    runs: dict[str, Callable[[], Iterable[str]]] = {
        "checks": checks.run,
        "broker": broker.run,
        "calibration": calibration.run,
        "encryption": encryption.run,
        "counting": counting.run,
        "many_phones": many_phones.run,
        "utility": lambda: utility.run(traces),
        "learning": lambda: learning.run(traces),
    }
    for name in arguments.names or DEFAULT:
        _print(runs[name]())


def _print(tables: Iterable[str]) -> None:
    for text in tables:
        print(text, flush=True)


if __name__ == "__main__":
    main()
