"""Figure 5.3 of Götz's dissertation: the number of phases that a query takes if users are absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reticent.randomness import seeded
from reticent_sim.experiments.results import Finding, Result, Row
from reticent_sim.experiments.statistics import CONFIDENCE, Estimate, mean
from reticent_sim.experiments.verdicts import Verdict
from reticent_sim.rivals.phases import OURS, PROTOCOLS, RASTOGI_NATH, SHI, TOLERATED, Protocol, law, simulate

NAME = "phases"
QUERIES, QUICK_QUERIES = 1000, 100

USERS, ABSENT = 100_000, 0.01
"""The N of one half of the figure and the p of the other. The text does not state its own."""
OVER_ABSENT = (1e-7, 1e-6, 3e-6, 1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 1e-3, 1e-2, 1e-1)
OVER_USERS = (10, 20, 50, 100, 200, 300, 500, 1000, 10_000, 100_000)

MAX_SIMULATED = 2000
"""The largest mean that is simulated; beyond, there is the closed form only."""
NEAR, IMPRACTICAL = 1.05, 1000.0
"""A protocol is at its minimum with 5 % more phases, and impractical with a thousand."""
RARE, CLOSE = 0.1, 1.5
"""If N p is at most a tenth, less than one and a half times the minimum is close to it."""
GROWTH = 0.9
"""The least logarithm of a rival's mean over its minimum, for each N p, if the growth is exponential."""
MAX_ERRORS = 4.5
"""The most standard errors between simulation and closed form: chance exceeds it once in 100,000 numbers."""


@dataclass(frozen=True)
class PhaseSettings:
    """The options of the experiment."""

    seed: int = 1
    quick: bool = False

    @property
    def queries(self) -> int:
        """The number of simulated queries of each number."""
        return QUICK_QUERIES if self.quick else QUERIES


@dataclass(frozen=True)
class PhaseCount:
    """A protocol with a number of users and a probability of absence, and the phases of its queries."""

    protocol: Protocol
    users: int
    absent: float
    simulated: Estimate | None

    @property
    def log10_mean(self) -> float:
        """The closed form, as a decimal logarithm."""
        return law(self.protocol, self.users, self.absent).log10_mean

    @property
    def rate(self) -> float:
        """The logarithm of the mean over the minimum, for each N p."""
        return (self.log10_mean * math.log(10) - math.log(self.protocol.phases)) / (self.users * self.absent)

    @property
    def excess(self) -> float:
        """The mean of the closed form over the minimum, at most 1e300."""
        return float(10 ** min(300.0, self.log10_mean)) / self.protocol.phases

    @property
    def errors(self) -> float:
        """The distance of simulation and closed form, in standard errors of the closed form; 0 if not simulated."""
        if self.simulated is None:
            return 0.0
        exact = law(self.protocol, self.users, self.absent)
        error = math.sqrt(exact.variance / self.simulated.n)
        distance = abs(self.simulated.value - exact.mean)
        # If less than one query in the sample is expected to need more than the minimum, one is no surprise.
        return distance / max(error, self.protocol.phases / self.simulated.n)


def run(settings: PhaseSettings) -> Result:
    """Compute and simulate all points."""
    found = list(points(settings))
    return Result(
        NAME,
        "Phases of a query if users are absent (figure 5.3)",
        _settings(settings),
        [_row(point) for point in found],
        findings(found),
    )


def points(settings: PhaseSettings) -> Iterable[PhaseCount]:
    """Both halves of the figure, protocol by protocol."""
    cases = dict.fromkeys([*((USERS, absent) for absent in OVER_ABSENT), *((users, ABSENT) for users in OVER_USERS)])
    for protocol in PROTOCOLS:
        for users, absent in cases:
            simulated = None
            if law(protocol, users, absent).mean <= MAX_SIMULATED:
                rng = seeded(settings.seed, "phases", protocol.name, users, repr(absent))
                simulated = mean(simulate(protocol, users, absent, settings.queries, rng).tolist())
            yield PhaseCount(protocol, users, absent, simulated)


def findings(found: Sequence[PhaseCount]) -> list[Finding]:
    """The claims of the text about the figure, and that simulation and closed form agree."""
    ours = [point for point in found if point.protocol == OURS]
    rivals = [point for point in found if point.protocol != OURS]
    small = [point for point in rivals if point.users * point.absent <= RARE]
    large = [
        point
        for point in rivals
        if (point.users == USERS and point.absent >= 1e-4) or (point.absent == ABSENT and point.users >= 1000)
    ]
    worst = max(found, key=lambda point: point.errors)
    most = max(ours, key=lambda point: point.excess)
    slowest = {
        protocol.name: min(point.rate for point in rivals if point.protocol == protocol)
        for protocol in (SHI, RASTOGI_NATH)
    }
    return [
        Finding(
            "ours-stays-at-its-minimum",
            "Our protocol takes its least number of phases, whatever p and N.",
            "the same number for all p and N (a figure)",
            f"at most {most.excess * OURS.phases:.4f} phases, at p = {most.absent:g} and N = {most.users}",
            f"every mean, simulated and in closed form, is at most {NEAR:g} times the minimum",
            _verdict(
                point.excess <= NEAR and point.simulated is not None and point.simulated.value <= NEAR * OURS.phases
                for point in ours
            ),
        ),
        Finding(
            "rivals-grow-exponentially",
            "The phases of both rivals grow exponentially with N and with p.",
            "exponential (a figure)",
            "; ".join(f"{name}: at least e^({rate:.2f} N p) times the minimum" for name, rate in slowest.items()),
            f"every mean is at least e^({GROWTH:g} N p) times the minimum",
            _verdict(rate >= GROWTH for rate in slowest.values()),
        ),
        Finding(
            "rivals-are-impractical",
            "For p of 0.0001 and more, and for N of 1,000 and more, both rivals are impractical.",
            "impractical",
            f"at least 10^{min(point.log10_mean for point in large):.1f} phases",
            f"every mean is above {IMPRACTICAL:g}",
            _verdict(point.log10_mean > math.log10(IMPRACTICAL) for point in large),
        ),
        Finding(
            "all-are-near-their-minimum-if-absences-are-rare",
            "If p and N are small, the rivals are near their minimum, too.",
            "close to their optimal number",
            f"at most {max(point.excess for point in small):.3f} times the minimum where N p is at most {RARE:g}",
            f"every mean where N p is at most {RARE:g} is below {CLOSE:g} times the minimum",
            _verdict(point.excess < CLOSE for point in small),
        ),
        Finding(
            "simulation-and-closed-form-agree",
            "Simulation and closed form agree.",
            "",
            f"{sum(point.simulated is not None for point in found)} simulated means, at most "
            f"{worst.errors:.1f} standard errors away",
            f"no mean is {MAX_ERRORS:g} standard errors away",
            _verdict(point.errors < MAX_ERRORS for point in found),
        ),
    ]


def _verdict(held: Iterable[bool]) -> Verdict:
    return Verdict.HOLDS if all(held) else Verdict.FAILS


def _row(point: PhaseCount) -> Row:
    return {
        "protocol": point.protocol.name,
        "users": point.users,
        "absent": repr(point.absent),  # as text, because the files round numbers to six decimals
        "minimum": point.protocol.phases,
        "simulated": point.simulated,
        "log10_closed_form": point.log10_mean,
    }


def _settings(settings: PhaseSettings) -> dict[str, object]:
    sample = f"{settings.queries} queries for each number"
    return {
        "seed": settings.seed,
        "quick": settings.quick,
        "seeded": True,
        "queries": settings.queries,
        "tolerated": TOLERATED,
        "intervals": "queries",
        "sample": sample,
        "summary": f"{sample}; ours tolerates {TOLERATED:.0%} of absent users",
        "confidence": CONFIDENCE,
    }
