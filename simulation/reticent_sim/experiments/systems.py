"""The compared systems, and a trial of one: one person, one choice of sensitive contexts, one delta."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, audit
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.problem import STEPS_COUNT
from reticent_sim.experiments.subjects import Day, Subject
from reticent_sim.rivals import listed_probabilistic as listed

LEAKY, SIMULATABLE, PROBABILISTIC, HYBRID = "mask_sensitive", "simulatable", "probabilistic", "hybrid"
ORDERS, ADAPTIVE, OPTIMAL = "many_orders", "adaptive", "optimal"

PUBLISHED = (LEAKY, SIMULATABLE, PROBABILISTIC, HYBRID)
"""The systems of the dissertation. Its hybrid takes the better of the two checks before it, by expected utility,
and has no policy of its own."""
OURS = tuple(name for name in CHECKS if name not in PUBLISHED)
"""The checks that the dissertation does not have."""
SYSTEMS = (*PUBLISHED, ORDERS, *OURS)
SWEPT = (*PUBLISHED, *OURS)
"""The systems of the figures over delta or over the number of sensitive contexts."""

COMPUTED: Mapping[str, Callable[[MarkovChain, set[str], float], Policy]] = {
    **{name: partial(check.policy, weights=STEPS_COUNT) for name, check in CHECKS.items() if name != HYBRID},
    PROBABILISTIC: listed.listed_probabilistic,
    ORDERS: partial(CHECKS[PROBABILISTIC].policy, grid=listed.GRID, weights=STEPS_COUNT),
}
"""The function that computes each system except the hybrid. `many_orders` is the library's probabilistic check on the
same grid."""


@dataclass(frozen=True)
class Trial:
    """A system, a person, the sensitive contexts and delta."""

    user: str
    system: str
    sensitive: tuple[str, ...]
    delta: float
    audited: bool = False
    """Whether to compute what an adversary learns. This takes longer than everything else."""


@dataclass(frozen=True)
class StepCounts:
    """The steps of some days of the second half: either days that follow the chain, or days that leave it."""

    days: int = 0
    released: int = 0
    released_sensitive: int = 0
    suppressed_sensitive: int = 0
    suppressed: int = 0
    """Steps with contexts that are not sensitive."""
    gaps: int = 0
    """Steps without a reading, which count as steps with a context that is not sensitive."""
    released_gaps: int = 0
    """The gaps that are released as "unknown"."""

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(
            self.days + other.days,
            self.released + other.released,
            self.released_sensitive + other.released_sensitive,
            self.suppressed_sensitive + other.suppressed_sensitive,
            self.suppressed + other.suppressed,
            self.gaps + other.gaps,
            self.released_gaps + other.released_gaps,
        )

    @property
    def steps(self) -> int:
        """The number of all steps."""
        return self.sensitive + self.released - self.released_sensitive + self.suppressed

    @property
    def sensitive(self) -> int:
        """The number of steps with a sensitive context."""
        return self.released_sensitive + self.suppressed_sensitive

    @property
    def utility(self) -> float:
        """The share of released steps, the measure of the dissertation; released gaps count."""
        return self.released / max(self.steps, 1)


@dataclass(frozen=True)
class Leakage:
    """The gain of an adversary on some days: either days that follow the chain, or days that leave it."""

    breaches: int = 0
    """The number of sensitive states in which the belief rose by more than delta."""
    largest_gain: float = 0.0
    """The largest rise of the belief in a sensitive state, true or not."""

    def __add__(self, other: Leakage) -> Leakage:
        return Leakage(self.breaches + other.breaches, max(self.largest_gain, other.largest_gain))


@dataclass(frozen=True)
class SplitLeakage:
    """The gain of an adversary on the days that follow the chain, and on those that leave it."""

    followed: Leakage
    strayed: Leakage

    @property
    def whole(self) -> Leakage:
        """The leakage of all these days."""
        return self.followed + self.strayed


@dataclass(frozen=True)
class Times:
    """The time that a system took, in seconds."""

    initialise: float
    decide: float
    """The time for one step."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial."""

    system: str
    """The system whose policy was used; for the hybrid, the check that it chose."""
    expected: float
    """The share of the steps that is released if days are samples of the chain."""
    followed: StepCounts
    strayed: StepCounts
    complete: bool
    times: Times = field(compare=False)
    leakage: SplitLeakage | None = None
    """None if the trial is not audited."""

    @property
    def whole(self) -> StepCounts:
        """All days of the second half."""
        return self.followed + self.strayed


@dataclass(frozen=True)
class TrialJob:
    """Trials of one person, for a worker process."""

    subject: Subject
    trials: list[Trial]
    seed: int


def run_trials(job: TrialJob) -> list[TrialResult]:
    """Run the trials of one person. Run by a worker process."""
    return [run_trial(job.subject, trial, job.seed) for trial in job.trials]


def run_trial(subject: Subject, trial: Trial, seed: int) -> TrialResult:
    """Compute a policy and run it over the second half of the days; if the trial is audited, measure the leakage."""
    chain = subject.chain
    begin = time.perf_counter()
    policy = COMPUTED[trial.system](chain, set(trial.sensitive), trial.delta)
    ready = time.perf_counter() - begin
    path = trial.user, trial.system, repr(trial.delta), *trial.sensitive
    runs = [
        PolicyRun(policy, days, trial, (seed, "coins", half, *path))
        for half, days in zip(("followed", "strayed"), subject.halves, strict=True)
    ]
    (one, first), (other, second) = (run.count() for run in runs)
    times = Times(ready, (first + second) / (len(subject.judged) * chain.horizon))
    leakage = SplitLeakage(*(run.leakage() for run in runs)) if trial.audited else None
    return TrialResult(trial.system, policy.utility / chain.horizon, one, other, policy.complete, times, leakage)


def hybrid_result(simulatable: TrialResult, probabilistic: TrialResult) -> TrialResult:
    """The result of the published hybrid: that of the check with the higher expected utility."""
    best = probabilistic if probabilistic.expected > simulatable.expected else simulatable
    both = Times(simulatable.times.initialise + probabilistic.times.initialise, best.times.decide)
    return replace(best, times=both)


@dataclass(frozen=True)
class PolicyRun:
    """A policy over some days. The same coins give the same outputs each time."""

    policy: Policy
    days: Sequence[Day]
    trial: Trial
    coins: tuple[int | str, ...]

    def count(self) -> tuple[StepCounts, float]:
        """The outcomes of the steps, and the seconds that the decisions took."""
        mask = MaskIt(self.policy, seeded(*self.coins))
        begin = time.perf_counter()
        outputs = [mask.filter_day(day) for day in self.days]
        taken = time.perf_counter() - begin
        steps = {(released, sensitive): 0 for released in (True, False) for sensitive in (True, False)}
        for day, released in zip(self.days, outputs, strict=True):
            for context, output in zip(day, released, strict=True):
                steps[output is not None, context in self.trial.sensitive] += 1
        gaps = [
            output is not None
            for day, released in zip(self.days, outputs, strict=True)
            for context, output in zip(day, released, strict=True)
            if context is None
        ]
        counts = StepCounts(
            days=len(self.days),
            released=steps[True, True] + steps[True, False],
            released_sensitive=steps[True, True],
            suppressed_sensitive=steps[False, True],
            suppressed=steps[False, False],
            gaps=len(gaps),
            released_gaps=sum(gaps),
        )
        return counts, taken

    def leakage(self) -> Leakage:
        """The gain of an adversary on these days."""
        found = audit(self.policy, self.days, delta=self.trial.delta, rng=seeded(*self.coins), window=())
        return Leakage(len(found.breaches), found.total.largest.rise if found.total.largest else 0.0)
