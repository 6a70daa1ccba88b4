"""The list of mutants, and how each is tried: one fault in a copy of the sources, and the tests that must fail.

A mutant is a line of a `.toml` file beside this module: what stands in a source file, what it becomes, and tests that
fail then. One that no test can find has an `explanation` instead.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).parents[2]
RAN = 10  # added to pytest's exit codes: a process that ends in another way ends with a smaller one
TIMEOUT = 120  # seconds: what never ends is found
SOURCES = ("core", "client", "server_keys", "server_agg", "analyst", "simulation")

LIBRARIES = ("cryptography.x509", "gmpy2", "google.protobuf.message", "grpc.aio", "hypothesis", "numpy", "scipy.stats")
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([*LIBRARIES, "pytest"])  # importing these takes longer than most tests

Verdict = Literal["killed", "survived", "explained"]


@dataclass(frozen=True)
class Mutant:
    """A fault.

    Args:
        name: The room and a few words, such as "privacy/half-of-the-cohorts-are-enough".
        file: The source, from the root of the project.
        old: What stands there, exactly once.
        new: What it becomes.
        tests: The arguments of pytest, of which some test must fail.
        explanation: Why no test can find it; empty for all others.
        slow: Whether slow tests are run, in place of fast ones.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    explanation: str = ""
    slow: bool = False

    def applied(self, root: Path = ROOT) -> str:
        """The source with the fault.

        Raises:
            ValueError: The source no longer has the text, or has it more than once.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.file} must have {self.old!r} once: found {count}")
        return text.replace(self.old, self.new)


def all_mutants() -> list[Mutant]:
    """The mutants of all files, in order."""
    return [each for path in sorted(Path(__file__).parent.glob("*.toml")) for each in _of_room(path)]


def _of_room(path: Path) -> Iterator[Mutant]:
    for file, content in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for each in content["mutants"]:
            tests, slow = each.get("tests", content["tests"]), each.get("slow", content.get("slow", False))
            yield Mutant(
                f"{path.stem}/{each['name']}",
                file,
                each["old"],
                each["new"],
                tuple(tests.split()),
                each.get("explanation", ""),
                slow,
            )


def changed_files(revision: str) -> set[str]:
    """The files that differ from where this branch left a revision, and new ones.

    Raises:
        subprocess.CalledProcessError: There is no such revision, or no repository.
    """
    base = _git("merge-base", revision, "HEAD").strip()
    changed = _git("diff", "--name-only", base).split() + _git("ls-files", "--others", "--exclude-standard").split()
    return set(changed)


class ProjectCopy:
    """A copy of the project, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "project"
        for name in filter(None, _git("ls-files", "-z", "-co", "--exclude-standard").split("\0")):
            if (ROOT / name).is_file():
                target = self._folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        self._writes = 0
        self._passed: set[tuple[str, bool]] = set()

    def check(self, mutants: Iterable[Mutant]) -> None:
        """Check once that the tests of mutants pass without a fault.

        Raises:
            ValueError: They do not.
        """
        wanted = {(test, each.slow) for each in mutants for test in each.tests} - self._passed
        for slow in (False, True):
            modules = sorted(test for test, is_slow in wanted if is_slow is slow)
            code, output = self._run(modules, slow=slow, timeout=TIMEOUT * len(modules)) if modules else (0, "")
            if code != 0:
                raise ValueError(f"the tests fail without any mutant:\n{output}")
        self._passed |= wanted

    def verdict(self, mutant: Mutant) -> Verdict:
        """Try one mutant.

        Raises:
            ValueError: The source has changed, or the tests do not run.
        """
        faulty, path = mutant.applied(self._folder), self._folder / mutant.file
        honest = path.read_text(encoding="utf-8")
        try:
            self._write(path, faulty)
            code, output = self._run(mutant.tests, slow=mutant.slow)
        finally:
            self._write(path, honest)
        if code not in {0, 1}:
            raise ValueError(f"{mutant.name}: its tests do not run:\n{output}")
        if code == 1:
            return "killed"
        return "explained" if mutant.explanation else "survived"

    def _write(self, path: Path, text: str) -> None:
        """Write a source, with a time of its own: bytecode of the same second and size would be taken for its own."""
        path.write_text(text, encoding="utf-8")
        self._writes += 1
        time = 1_000_000_000 + 10 * self._writes
        os.utime(path, (time, time))

    def _run(self, tests: Sequence[str], *, slow: bool, timeout: float = TIMEOUT) -> tuple[int, str]:
        output = self._folder.parent / "output"
        output.write_text("")
        process = FORKS.Process(
            target=_run_tests, args=(str(self._folder), str(output), ["-m", "slow" if slow else "not slow", *tests])
        )
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            return 1, "the tests do not end"
        return (process.exitcode or 0) - RAN, output.read_text(encoding="utf-8", errors="replace")


def _run_tests(folder: str, output: str, arguments: Sequence[str]) -> None:
    """Run tests in a copy of the project, in a process of their own that has the libraries already."""
    with Path(output).open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sources = [str(Path(folder, source)) for source in SOURCES]
    sys.path[:0] = [folder, *sources]
    sys.pycache_prefix, sys.dont_write_bytecode = f"{folder}.bytecode", False
    os.environ.update(PYTHONPATH=os.pathsep.join(sources), HYPOTHESIS_PROFILE="mutants")
    os.chdir(folder)
    known = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    try:
        code = int(pytest.main(["-x", "-q", "-W", known, "-p", "no:cacheprovider", *arguments]))
    except Exception:  # noqa: BLE001  # found after the last test, such as what was left open
        traceback.print_exc()
        code = 1
    sys.exit(RAN + code)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
