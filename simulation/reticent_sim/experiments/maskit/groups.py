"""The trials of a group of people, and the statistics of their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reticent_sim.experiments import statistics
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.systems import ADAPTIVE, LEAKY, OPTIMAL, SWEPT, SplitLeakage, Trial, TrialResult

Protection = tuple[tuple[str, ...], float]
"""The sensitive contexts of a subject, and delta."""

OPTIMAL_EVERY = 8
"""In sweeps, one person in this many gets the optimal check, which takes longer than all others together."""

MEASURES = ("utility", "followed", "expected")
"""The share of released steps in the second half; the same on days that follow the chain; and the expected share."""


def measured(result: TrialResult, measure: str) -> float | None:
    """A measure of a result; None if there are no such days."""
    match measure:
        case "expected":
            return result.expected
        case "followed":
            return result.followed.utility if result.followed.days else None
        case _:
            return result.whole.utility


class Group:
    """Some people, and the trials of each."""

    def __init__(
        self,
        runner: Runner,
        protections: Mapping[Subject, Protection],
        *,
        every: int = 1,
        systems: Sequence[str] = SWEPT,
        activities: bool = False,
        audited: bool = False,
    ) -> None:
        self.people = tuple(protections)
        self.systems = systems
        self._few = self.people[::every]
        self._trials = {
            (subject, system): Trial(subject.name, system, *_for(system, protection), audited)
            for subject, protection in protections.items()
            for system in systems
            if system != OPTIMAL or subject in self._few
        }
        self._found: dict[Trial, TrialResult] = {}
        self._runner, self._activities = runner, activities

    @property
    def trials(self) -> Iterable[Trial]:
        """All trials of the group."""
        return self._trials.values()

    def run(self) -> Group:
        """Run the trials."""
        self._found = self._runner.run(self.people, self.trials, activities=self._activities)
        return self

    def result(self, subject: Subject, system: str) -> TrialResult:
        """The result of a system for a person."""
        return self._found[self._trials[subject, system]]

    def results(self, system: str) -> list[TrialResult]:
        """The results of a system, for every person who has one."""
        return [self.result(subject, system) for subject in self.people if (subject, system) in self._trials]

    def leakage(self, system: str) -> list[SplitLeakage]:
        """The gain of an adversary on each person from the releases of a system."""
        found = [result.leakage for result in self.results(system)]
        return [leakage for leakage in found if leakage is not None]

    def values(self, system: str, measure: str, people: Sequence[Subject] | None = None) -> list[float]:
        """The measure of each person who has it."""
        found = [
            measured(self.result(subject, system), measure) for subject in (self.people if people is None else people)
        ]
        return [value for value in found if value is not None]

    def estimate(self, system: str, measure: str = "utility") -> Estimate:
        """The mean of a measure. `optimal` ran for few people: theirs is that of `adaptive` plus the difference."""
        if system != OPTIMAL or len(self._few) == len(self.people):
            return statistics.mean(self.values(system, measure))
        few = [subject for subject in self._few if measured(self.result(subject, OPTIMAL), measure) is not None]
        pairs = zip(self.values(OPTIMAL, measure, few), self.values(ADAPTIVE, measure, few), strict=True)
        return statistics.extended(self.values(ADAPTIVE, measure), [one - other for one, other in pairs])

    def known(self, system: str, measure: str) -> Estimate | None:
        """The same, or None if nobody has the measure because no days follow the chains."""
        computed = [subject for subject in self.people if (subject, system) in self._trials]
        return self.estimate(system, measure) if self.values(system, measure, computed) else None

    def differences(self, one: str, other: str, measure: str = "utility") -> list[float]:
        """The difference between the releases of two systems, for each person."""
        return [a - b for a, b in zip(self.values(one, measure), self.values(other, measure), strict=True)]


def _for(system: str, protection: Protection) -> Protection:
    """MaskSensitive takes no delta: one delta, for counting breaches, and one trial serve all."""
    sensitive, delta = protection
    return sensitive, DELTA if system == LEAKY else delta


def at_random(runner: Runner, people: Iterable[Subject], count: int, delta: float = DELTA) -> dict[Subject, Protection]:
    """`count` contexts at random of each person who has more contexts than that."""
    seed = runner.settings.seed
    found = {
        subject: (tuple(sorted(subject.sensitive(seed, count))), delta)
        for subject in people
        if len(subject.contexts) > count
    }
    if not found:
        raise ValueError(f"nobody has more than {count} contexts in the first half of their days")
    return found


def at_home(people: Iterable[Subject], delta: float = DELTA) -> dict[Subject, Protection]:
    """The home of each person."""
    return {subject: ((subject.home,), delta) for subject in people}
