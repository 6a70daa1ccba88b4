"""The optimal check against an earlier revision of it: releases, the gap to the best possible policy, and time.

A chain is an hour a step, of the ten most visited places, "other" and gaps, from all days of a person; the third most
visited context is sensitive. Without traces, people are simulated. `python -m benchmarks.optimal --help` has options.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.chains import all_days, learned, visited
from benchmarks.measure import ONE_CORE, Row, grid, table
from reticent_client import MarkovChain

ROOT = Path(__file__).parents[1]
ROLES = (".", "core", "client", "simulation", "analyst", "server_agg", "server_keys")
BEFORE = "7673268"
"""The last revision whose windows were cut, and whose ceilings forgot privacy after a cut."""

TOP = 10  # places by name
CLOSE = 0.02  # a gap that is small
WORKER = """
import json, sys, time
from reticent_client import MarkovChain, optimal
path, *places = sys.argv[1:]
chain = MarkovChain.load(path)
begin, used = time.perf_counter(), time.process_time()
policy = optimal(chain, sensitive=set(places), delta=0.1)
taken = time.perf_counter() - begin, time.process_time() - used
print(json.dumps([policy.utility, policy.ceiling, policy.readings, policy.complete, *taken]))
"""


def run(traces: Path | None, horizon: int = 24, sensitive: int = 1, before: str = BEFORE) -> Iterator[str]:
    """A table of the people, and one of both revisions."""
    if traces is None:
        people = {f"simulated {seed}": learned(horizon, TOP + 2, 60, seed) for seed in range(5)}
    else:
        people = all_days(traces, horizon, TOP)
    lines: list[tuple[str, ...]] = [("", "now", "gap", "seconds", "before", "gap", "seconds")]
    found: list[list[Measured]] = []
    with tempfile.TemporaryDirectory() as folder:
        former = Path(folder) / "before"
        _git("worktree", "add", "--detach", "-f", str(former), before)
        try:
            for name, chain in people.items():
                pair = [_measured(root, chain, visited(chain, sensitive), Path(folder)) for root in (ROOT, former)]
                found.append(pair)
                lines.append((name, *(cell for each in pair for cell in each.cells)))
                print(*lines[-1], file=sys.stderr, flush=True)
        finally:
            _git("worktree", "remove", "--force", str(former))
    what = f"The optimal check, {horizon} steps, {sensitive} sensitive, delta 0.1; before: revision {before}"
    yield grid(what, lines)
    yield table("All people", _summary([pair[0] for pair in found], [pair[1] for pair in found]))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)  # noqa: S603, S607  # our own


class Measured:
    """What one revision made of one person."""

    def __init__(self, output: str) -> None:
        self.utility, self.ceiling, self.readings, self.complete, self.seconds, self.used = json.loads(output)
        self.gap = (self.ceiling - self.utility) / self.ceiling

    @property
    def cells(self) -> tuple[str, ...]:
        """The released share, the gap and the seconds, as text."""
        return f"{self.utility / self.readings:.2%}", f"{self.gap:.2%}", f"{self.seconds:.1f}"


def _measured(root: Path, chain: MarkovChain, sensitive: set[str], folder: Path) -> Measured:
    """Compute a policy in a fresh process, with the code of a folder. The linear algebra has one thread."""
    chain.save(folder / "chain.json")
    paths = os.pathsep.join(str(root / role) for role in ROLES)
    done = subprocess.run(  # noqa: S603  # our own
        [sys.executable, "-c", WORKER, folder / "chain.json", *sorted(sensitive)],
        env=os.environ | ONE_CORE | {"PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
        cwd=root,
    )
    return Measured(done.stdout)


def _summary(now: list[Measured], former: list[Measured]) -> list[Row]:
    """Medians and the worst, of both."""

    def small(found: list[Measured]) -> str:
        return f"{sum(each.gap < CLOSE for each in found)} of {len(found)}"

    fewer = sum(new.utility < old.utility - 1e-6 for new, old in zip(now, former, strict=True))
    total, before = sum(each.seconds for each in now), sum(each.seconds for each in former)
    middle, middle_before = median(each.seconds for each in now), median(each.seconds for each in former)
    most, most_before = max(each.seconds for each in now), max(each.seconds for each in former)
    used, used_before = sum(each.used for each in now), sum(each.used for each in former)
    return [
        Row("total", f"{total:.0f} s", f"{before:.0f} s", before / total, ">= 4 x"),
        Row("median", f"{middle:.1f} s", f"{middle_before:.1f} s", middle_before / middle, "< 5 s"),
        Row("worst", f"{most:.1f} s", f"{most_before:.1f} s", most_before / most, "< 40 s"),
        Row("total on all cores", f"{used:.0f} s", f"{used_before:.0f} s", used_before / used),
        Row("a gap below 2 %", small(now), small(former)),
        Row("widest gap", f"{max(each.gap for each in now):.1%}", f"{max(each.gap for each in former):.1%}"),
        Row("releases less than before", str(fewer), target="0"),
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimal", description=__doc__)
    parser.add_argument("--traces", type=Path, help="a gzipped CSV of half hours: user, day, slot and place")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--sensitive", type=int, default=1, help="the number of sensitive contexts")
    parser.add_argument("--before", default=BEFORE, help="the git revision to compare with")
    options = parser.parse_args()
    for text in run(options.traces, options.steps, options.sensitive, options.before):
        print(text, flush=True)


if __name__ == "__main__":
    main()
