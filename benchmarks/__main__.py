"""Run the benchmarks: `python -m benchmarks [--traces FILE] [NAME ...]`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import ONE_CORE


def main() -> None:
    """Print one table after the other."""
    os.environ.update(ONE_CORE)  # before NumPy is loaded: ratios compare one core with one core
    from benchmarks import broker, checks, utility  # noqa: PLC0415  # see above

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Reticent beside its rivals.")
    parser.add_argument(
        "names", nargs="*", choices=["checks", "utility", "broker", []], help="what to run; all by default"
    )
    parser.add_argument(
        "--traces",
        type=Path,
        default=os.environ.get("RETICENT_TRACES"),
        help="a gzipped table user,day,slot,place of half hours, for `utility` (or RETICENT_TRACES)",
    )
    arguments = parser.parse_args()
    chosen = arguments.names or ["checks", "utility", "broker"]
    if "checks" in chosen:
        _print(checks.run())
    if "broker" in chosen:
        _print(broker.run())
    if "utility" in chosen:
        _print(utility.run(None if arguments.traces is None else Path(arguments.traces)))


def _print(tables: Iterable[str]) -> None:
    for text in tables:
        print(text, flush=True)


if __name__ == "__main__":
    main()
