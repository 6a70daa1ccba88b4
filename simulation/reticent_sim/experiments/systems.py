"""The systems that are compared, and what each does for one person, one choice of sensitive contexts and one delta."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, audit
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.experiments import published
from reticent_sim.experiments.subjects import Day, Subject

LEAKY, SIMULATABLE, PROBABILISTIC, HYBRID = "mask_sensitive", "simulatable", "probabilistic", "hybrid"
ORDERS, ADAPTIVE, OPTIMAL = "many_orders", "adaptive", "optimal"

PUBLISHED = (LEAKY, SIMULATABLE, PROBABILISTIC, HYBRID)
"""The systems of the text. The published hybrid is the better of the two checks before it, by their expected utility;
it has no policy of its own."""
OURS = tuple(name for name in CHECKS if name not in PUBLISHED)
"""The checks that the text does not have."""
SYSTEMS = (*PUBLISHED, ORDERS, *OURS)
SWEPT = (*PUBLISHED, *OURS)
"""The systems that are compared while something varies."""

COMPUTED: Mapping[str, Callable[[MarkovChain, set[str], float], Policy]] = {
    **{name: check.policy for name, check in CHECKS.items() if name != HYBRID},
    PROBABILISTIC: published.probabilistic,
    ORDERS: partial(CHECKS[PROBABILISTIC].policy, grid=published.GRID),
}
"""How each is computed, apart from the hybrid. `many_orders` is the library's own probabilistic check, on the same
grid."""


@dataclass(frozen=True)
class Question:
    """What a system does for somebody."""

    user: str
    system: str
    sensitive: tuple[str, ...]
    delta: float
    audited: bool = False
    """Whether an adversary is asked what was learned, which takes longer than all the rest."""


@dataclass(frozen=True)
class Tally:
    """Steps of some days of the second half, all of which follow the chain or none of which does."""

    days: int = 0
    released: int = 0
    released_sensitive: int = 0
    suppressed_sensitive: int = 0
    suppressed: int = 0
    """Of those that are not sensitive."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.days + other.days,
            self.released + other.released,
            self.released_sensitive + other.released_sensitive,
            self.suppressed_sensitive + other.suppressed_sensitive,
            self.suppressed + other.suppressed,
        )

    @property
    def steps(self) -> int:
        """All steps."""
        return self.sensitive + self.released - self.released_sensitive + self.suppressed

    @property
    def sensitive(self) -> int:
        """The sensitive ones."""
        return self.released_sensitive + self.suppressed_sensitive

    @property
    def utility(self) -> float:
        """The share of the steps that was released, as the text measures it."""
        return self.released / max(self.steps, 1)


@dataclass(frozen=True)
class Leak:
    """What an adversary learned on some days, all of which follow the chain or none of which does."""

    breaches: int = 0
    """The sensitive states at which the belief in them rose by more than delta."""
    largest_gain: float = 0.0
    """The most that the belief in a sensitive state rose, whether rightly or not."""

    def __add__(self, other: Leak) -> Leak:
        return Leak(self.breaches + other.breaches, max(self.largest_gain, other.largest_gain))


@dataclass(frozen=True)
class Leaks:
    """What an adversary learned on the days of the second half."""

    followed: Leak
    strayed: Leak

    @property
    def whole(self) -> Leak:
        """On all of them."""
        return self.followed + self.strayed


@dataclass(frozen=True)
class Times:
    """How long a system took, in seconds."""

    initialise: float
    decide: float
    """For one step."""


@dataclass(frozen=True)
class Answer:
    """What a system did."""

    system: str
    """Whose policy it was: of the hybrid, the check that it chose."""
    expected: float
    """The share of the steps that is released if days are samples of the chain."""
    followed: Tally
    strayed: Tally
    complete: bool
    times: Times = field(compare=False)
    leaks: Leaks | None = None
    """None where the question was not to be audited."""

    @property
    def whole(self) -> Tally:
        """All days of the second half."""
        return self.followed + self.strayed


def answers(subject: Subject, questions: Sequence[Question], seed: int) -> list[Answer]:
    """What a worker is sent: some questions about one person."""
    return [answer(subject, question, seed) for question in questions]


def answer(subject: Subject, question: Question, seed: int) -> Answer:
    """Compute a policy, run it over the second half of the days and, where asked to, see what an adversary learned."""
    chain = subject.chain
    begin = time.perf_counter()
    policy = COMPUTED[question.system](chain, set(question.sensitive), question.delta)
    ready = time.perf_counter() - begin
    what = question.user, question.system, repr(question.delta), *question.sensitive
    runs = [
        Run(policy, days, question, (seed, "coins", half, *what))
        for half, days in zip(("followed", "strayed"), subject.halves, strict=True)
    ]
    (one, first), (other, second) = (run.tally() for run in runs)
    times = Times(ready, (first + second) / (len(subject.judged) * chain.horizon))
    leaks = Leaks(*(run.leak() for run in runs)) if question.audited else None
    return Answer(question.system, policy.utility / chain.horizon, one, other, policy.complete, times, leaks)


def chosen(simulatable: Answer, probabilistic: Answer) -> Answer:
    """What the published hybrid does: it takes the check with the higher expected utility."""
    best = probabilistic if probabilistic.expected > simulatable.expected else simulatable
    both = Times(simulatable.times.initialise + probabilistic.times.initialise, best.times.decide)
    return replace(best, times=both)


@dataclass(frozen=True)
class Run:
    """A policy over some days, with coins of its own: the same ones make the same outputs, however often."""

    policy: Policy
    days: Sequence[Day]
    question: Question
    coins: tuple[int | str, ...]

    def tally(self) -> tuple[Tally, float]:
        """What became of the days, and how long the decisions took."""
        mask = MaskIt(self.policy, seeded(*self.coins))
        begin = time.perf_counter()
        outputs = [mask.filter_day(day) for day in self.days]
        taken = time.perf_counter() - begin
        counts = {(kept, hidden): 0 for kept in (True, False) for hidden in (True, False)}
        for day, told in zip(self.days, outputs, strict=True):
            for context, output in zip(day, told, strict=True):
                counts[output is not None, context in self.question.sensitive] += 1
        tally = Tally(
            days=len(self.days),
            released=counts[True, True] + counts[True, False],
            released_sensitive=counts[True, True],
            suppressed_sensitive=counts[False, True],
            suppressed=counts[False, False],
        )
        return tally, taken

    def leak(self) -> Leak:
        """What an adversary learned."""
        found = audit(self.policy, self.days, delta=self.question.delta, rng=seeded(*self.coins), window=())
        return Leak(found.breaches, found.largest.rise if found.largest else 0.0)
