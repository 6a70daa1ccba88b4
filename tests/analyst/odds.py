"""A number that was planned against a simulation: it is not refused, and one that is 30 % off is."""

import math

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6  # of each test; the streams are fixed, so it passes always or never
OFF = 0.3
OFFS = (1 - OFF, 1 + OFF)
SEEN = 400  # times that something must happen for 30 % to be seen
LIMIT = float(stats.norm.isf(FALSE_ALARM / 2))


def off(values: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of these is off; each stands for one run, and runs are independent."""
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


def check_chance(happened: int, runs: int, chance: float) -> None:
    """A chance passes; when it, or that it does not happen, is 30 % off, it is refused, if anybody could see that."""
    assert stats.binomtest(happened, runs, chance).pvalue > FALSE_ALARM
    small = min(chance, 1 - chance)
    if small * runs > SEEN:
        for wrong in OFFS:
            other = small * wrong
            assert stats.binomtest(happened, runs, other if small == chance else 1 - other).pvalue < FALSE_ALARM
