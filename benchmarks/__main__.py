"""Run the benchmarks: `python -m benchmarks [--traces FILE] [NAME ...]`."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import textwrap
from pathlib import Path

from benchmarks.measure import ONE_CORE

DEFAULT = (
    "checks",
    "broker",
    "calibration",
    "encryption",
    "counting",
    "deciding",
    "ads_service",
    "utility",
    "selection",
    "off_policy",
    "rates",
)
LONG = ("learning", "many_phones", "optimal", "simulation", "prio3", "unit_costs")
"""These take minutes or a network: they run only if they are named."""
WITH_TRACES = ("utility", "learning", "optimal")

DESCRIPTION = "Measure Reticent beside published algorithms and other programs, on this machine."
TABLES = (
    "Each benchmark prints tables. The column 'Reticent' has our figure, 'rival' the other program's, 'ratio' how "
    "many times more the rival needs, and 'target' the goal."
)


def main() -> None:
    """Print one table after the other."""
    os.environ.update(ONE_CORE)  # before NumPy is loaded: ratios compare one core with one core
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION,
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        choices=[*DEFAULT, *LONG, []],
        help=f"the benchmarks to run (default: all but {' and '.join(LONG)}, which take minutes or a network)",
    )
    parser.add_argument(
        "--traces",
        metavar="FILE",
        type=Path,
        default=os.environ.get("RETICENT_TRACES"),
        help="real people for utility, learning and optimal: a gzipped CSV of half hours with the columns user, day, "
        "slot and place (default: RETICENT_TRACES, else simulated people)",
    )
    options = parser.parse_args()
    traces = None if options.traces is None else Path(options.traces)
    for name in options.names or DEFAULT:
        run = importlib.import_module(f"benchmarks.{name}").run
        for text in run(traces) if name in WITH_TRACES else run():
            print(text, flush=True)


def _epilog() -> str:
    """What each benchmark measures, and against what: the first paragraph of its module."""
    parts = []
    for name in (*DEFAULT, *LONG):
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
        lines = textwrap.wrap(" ".join(summary.split()), 62)
        parts += [f"  {title:<12} {line}" for title, line in zip([name, *[""] * len(lines)], lines, strict=False)]
    return "\n".join(["benchmarks:", *parts, "", *textwrap.wrap(TABLES, 78)])


if __name__ == "__main__":
    main()
