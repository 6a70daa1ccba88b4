"""Tries mutants: `python -m tests.mutants [--changed-since REV] [NAME ...]`, where a name may be a part of one."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.mutants import ProjectCopy, all_mutants, changed_files


def main() -> int:
    """Try the mutants; 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Try mutants, and list survivors.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants whose name has this in it")
    parser.add_argument("--changed-since", metavar="REV", help="only mutants of files that changed since this revision")
    given = parser.parse_args()
    mutants = all_mutants()
    if unknown := [name for name in given.names if not any(name in each.name for each in mutants)]:
        parser.error(f"no mutant has this in its name: {', '.join(unknown)}")
    mutants = [each for each in mutants if not given.names or any(name in each.name for name in given.names)]
    if given.changed_since:
        changed = changed_files(given.changed_since)
        mutants = [each for each in mutants if each.file in changed]
    survivors, started = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        project_copy = ProjectCopy(Path(folder))
        if mutants:
            project_copy.check(mutants)
        for mutant in mutants:
            verdict = project_copy.verdict(mutant)
            print(f"{time.monotonic() - started:6.0f} s  {verdict:9}  {mutant.name}", flush=True)  # noqa: T201
            if verdict == "survived":
                survivors.append(mutant)
    for mutant in survivors:
        print(f"\n{mutant.name} survived in {mutant.file}:\n- {mutant.old}\n+ {mutant.new}")  # noqa: T201
    print(f"\n{len(mutants)} mutants, {len(survivors)} survived")  # noqa: T201
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
