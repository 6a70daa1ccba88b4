"""What the experiments of section 3.7 ask about each person, and what is made of the answers of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reticent_sim.experiments import statistics
from reticent_sim.experiments.runner import DELTA, Laboratory
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.systems import ADAPTIVE, LEAKY, OPTIMAL, SWEPT, Answer, Leaks, Question

Asked = tuple[tuple[str, ...], float]
"""What is sensitive to somebody, and delta."""

OPTIMAL_EVERY = 8
"""In sweeps, the optimal check is computed for one person of so many: it takes longer than all others together."""

MEASURES = ("utility", "followed", "expected")
"""The share of steps released in the second half; on those of its days that follow the chain; and as expected."""


def measured(answer: Answer, measure: str) -> float | None:
    """One of the measures; None where there are no such days."""
    match measure:
        case "expected":
            return answer.expected
        case "followed":
            return answer.followed.utility if answer.followed.days else None
        case _:
            return answer.whole.utility


class Group:
    """Some people, and what each was asked about."""

    def __init__(
        self,
        laboratory: Laboratory,
        asked: Mapping[Subject, Asked],
        *,
        every: int = 1,
        systems: Sequence[str] = SWEPT,
        activities: bool = False,
        audited: bool = False,
    ) -> None:
        self.people = tuple(asked)
        self.systems = systems
        self._few = self.people[::every]
        self._questions = {
            (who, system): Question(who.name, system, *_for(system, what), audited)
            for who, what in asked.items()
            for system in systems
            if system != OPTIMAL or who in self._few
        }
        self._found: dict[Question, Answer] = {}
        self._laboratory, self._activities = laboratory, activities

    @property
    def questions(self) -> Iterable[Question]:
        """All that has to be asked."""
        return self._questions.values()

    def ask(self) -> Group:
        """Have the questions answered."""
        self._found = self._laboratory.ask(self.people, self.questions, activities=self._activities)
        return self

    def answer(self, who: Subject, system: str) -> Answer:
        """What a system did for somebody."""
        return self._found[self._questions[who, system]]

    def answers(self, system: str) -> list[Answer]:
        """What it did for everybody it was asked about."""
        return [self.answer(who, system) for who in self.people if (who, system) in self._questions]

    def leaks(self, system: str) -> list[Leaks]:
        """What an adversary learned of everybody through it."""
        found = [answer.leaks for answer in self.answers(system)]
        return [leaks for leaks in found if leaks is not None]

    def values(self, system: str, measure: str, people: Sequence[Subject] | None = None) -> list[float]:
        """A measure of each person that has it."""
        found = [measured(self.answer(who, system), measure) for who in (self.people if people is None else people)]
        return [value for value in found if value is not None]

    def estimate(self, system: str, measure: str = "utility") -> Estimate:
        """The mean of a measure; where a system was asked about a few, with what is known of all."""
        if system != OPTIMAL or len(self._few) == len(self.people):
            return statistics.mean(self.values(system, measure))
        few = [who for who in self._few if measured(self.answer(who, OPTIMAL), measure) is not None]
        pairs = zip(self.values(OPTIMAL, measure, few), self.values(ADAPTIVE, measure, few), strict=True)
        return statistics.extended(self.values(ADAPTIVE, measure), [one - other for one, other in pairs])

    def known(self, system: str, measure: str) -> Estimate | None:
        """The same; None where nobody has the measure, for lack of days that follow the chain."""
        asked = [who for who in self.people if (who, system) in self._questions]
        return self.estimate(system, measure) if self.values(system, measure, asked) else None

    def differences(self, one: str, other: str, measure: str = "utility") -> list[float]:
        """By how much the first system releases more than the second, for each person."""
        return [a - b for a, b in zip(self.values(one, measure), self.values(other, measure), strict=True)]


def _for(system: str, asked: Asked) -> Asked:
    """MaskSensitive knows no delta: one is given to count breaches by, and one answer serves all."""
    sensitive, delta = asked
    return sensitive, DELTA if system == LEAKY else delta


def at_random(
    laboratory: Laboratory, people: Iterable[Subject], count: int, delta: float = DELTA
) -> dict[Subject, Asked]:
    """So many contexts of each at random, for those who have more than that."""
    seed = laboratory.settings.seed
    found = {who: (tuple(sorted(who.sensitive(seed, count))), delta) for who in people if len(who.contexts) > count}
    if not found:
        raise ValueError(f"nobody has more than {count} contexts in the first half of their days")
    return found


def at_home(people: Iterable[Subject], delta: float = DELTA) -> dict[Subject, Asked]:
    """Everybody's home."""
    return {who: ((who.home,), delta) for who in people}


def percent(value: float | Estimate, digits: int = 1) -> str:
    """A share as it is read, with its interval if it has one."""
    if isinstance(value, float):
        return f"{100 * value:.{digits}f} %"
    text = f"{100 * value.value:.{digits}f} %"
    if value.low is None or value.high is None:
        return text
    return f"{text} ({100 * value.low:.{digits}f} to {100 * value.high:.{digits}f})"
