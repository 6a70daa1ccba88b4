"""`python -m benchmarks`: its help describes every benchmark, and a run prints tables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks

ROOT = Path(__file__).parents[2]
MODULES = {path.stem for path in Path(benchmarks.__path__[0]).glob("*.py") if "\ndef run(" in path.read_text()}


def printed(*arguments: str) -> str:
    """What `python -m benchmarks` prints."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_the_help_says_of_each_benchmark_what_it_measures_against_what() -> None:
    shown = printed("--help").partition("benchmarks:\n")[2]
    described = dict(re.findall(r"^  (\w+) +(\w.*(?:\n {10,}.*)*)", shown, re.MULTILINE))
    assert described.keys() == MODULES
    assert all(" against " in " ".join(summary.split()) for summary in described.values())


@pytest.mark.slow
def test_a_benchmark_prints_its_tables() -> None:
    out = printed("calibration")
    assert "theorem 1 as printed and exactly" in out
    assert re.search(r"^gaussian_sigma +[\d.]+ (ms|µs)", out, re.MULTILINE)
