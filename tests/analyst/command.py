"""`reticent count`: the program, a question in a file, and what becomes of it."""

import sys
from pathlib import Path

from reticent.privacy import CohortSum

PROGRAM = Path(sys.executable).with_name("reticent")
QUESTION = """
id = "gym"
epsilon = 1.0
delta = 1e-6
cohorts = 3
min_contributions = 12
closes_after = "1h"
[counters]
visits = [0, 2]
[expected]
absent = 0.2
"""
KNOWN = [CohortSum(15, (20,)), CohortSum(16, (25,)), CohortSum(14, (18,))]


def rows(text: str) -> dict[str, list[str]]:
    """The lines of a table by their first word."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
