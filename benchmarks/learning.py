"""Releases and breaches of policies that were learned from few days, against plain counts of the same days.

The last days of each user are the test days, and habits are learned from the days right before them, many or few. A
policy is computed from the learned chain and run over the test days. Two adversaries watch: one is certain of the
learned chain, the other of a chain counted from all days of the user, the test days included.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from reticent.randomness import seeded
from reticent_client import MarkovChain, audit, hybrid
from reticent_client.habits.learning import learn
from reticent_client.habits.pooling import nearby, pooled, widened
from reticent_client.habits.sampling import DatedDay, Sampling
from reticent_client.habits.traces import Traces
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.problem import STEPS_COUNT
from reticent_sim.world.people import HOSPITAL
from reticent_sim.world.world import World

DELTA = 0.1
SEED = 7
MONDAY = dt.date(2027, 3, 1)
MIDNIGHT = dt.datetime.combine(MONDAY, dt.time())
AT_ONCE = dt.timedelta()  # the lead: tables have their readings where steps begin
HOUR, HALF_HOUR = dt.timedelta(hours=1), dt.timedelta(minutes=30)
USERS = 15
TOP = 5  # places with a label of their own; the third most visited is sensitive
MIN_TRAINING = 30  # real users need as many days before the test days

FEW = (3, 5, 7, 10, 14, 21, 28, 42, 84)
SOME = (7, 14, 28)
HEADS = ("", "days", "expected", "released", "off model", "breaches", "of all days")

Learner = Callable[["TrainingData"], MarkovChain]


@dataclass(frozen=True)
class User:
    """A user with enough days for a test."""

    name: str
    traces: Traces
    sensitive: str
    test_days: int

    def days(self, sampling: Sampling) -> tuple[DatedDay, ...]:
        """The days of the user."""
        return sampling.days(self.traces).days


@dataclass(frozen=True)
class TrainingData:
    """The data of a learner: the last days before the test days, and the days of other people."""

    days: Sequence[DatedDay]
    contexts: tuple[str, ...]
    others: Sequence[DatedDay]

    @property
    def counted(self) -> MarkovChain:
        """The plain counts."""
        return fit(self.days, self.contexts)

    def completed(self, towards: Callable[[MarkovChain], MarkovChain], days: float) -> MarkovChain:
        """The counts, with some days of a chain that is made of them."""
        chain = self.counted
        return pooled([chain, towards(chain)], [len(self.days), days])


@dataclass(frozen=True)
class Outcome:
    """The result of a policy on the test days."""

    steps: int = 0
    expected: float = 0.0
    released: int = 0
    off_model: int = 0
    visits: int = 0
    breaches: int = 0
    breaches_of_all_days: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def cells(self) -> list[str]:
        """The outcome as text: shares of the steps, and breaches of the visits."""
        shares = (self.expected, self.released, self.off_model)
        breaches = (self.breaches, self.breaches_of_all_days)
        return [f"{each / max(self.steps, 1):.1%}" for each in shares] + [f"{each}/{self.visits}" for each in breaches]


Table = dict[tuple[str, str], Outcome]


def run(traces: Path | None) -> Iterator[str]:
    """The tables, of simulated people or of real ones."""
    users = simulated() if traces is None else real(traces)
    where = "simulated people" if traces is None else f"users of {traces.name}"
    title = f"{len(users)} {where}, the hybrid check, delta {DELTA}"
    yield text(f"Plain counts of few days: {title}", compare(users, {"counted": counted}, FEW))
    yield text(f"What helps: {title}", compare(users, HELP, SOME))
    steps = (1, 2, 3) if traces is None else (0.5, 1, 2, 3)
    longer: Table = {}
    for hours in steps:
        found = compare(users, {f"steps of {hours} h": default}, SOME, Sampling(hours * HOUR, lead=AT_ONCE))
        longer |= found
    yield text(f"Coarser steps: {title}", longer)
    if traces is None:  # the real ones have no days of the week
        yield text(f"Weekdays and weekends: {title}", weekends(users))
    else:
        yield text(f"Days with gaps left out, all days tested: {title}", gaps(users))


def counted(data: TrainingData) -> MarkovChain:
    """Plain counts."""
    return data.counted


def default(data: TrainingData) -> MarkovChain:
    """The default of `learn`."""
    return learn(data.days, train=1, min_days=1).chain


HELP: dict[str, Learner] = {
    "counted": counted,
    "0.1 to every count": lambda data: fit(data.days, data.contexts, smoothing=0.1),
    "2 days of frequencies": lambda data: data.completed(MarkovChain.frequencies, 2),
    "1 day, an hour around": lambda data: data.completed(lambda chain: nearby(chain, 1), 1),
    "2 days, an hour around": lambda data: data.completed(lambda chain: nearby(chain, 1), 2),
    "7 days, an hour around": lambda data: data.completed(lambda chain: nearby(chain, 1), 7),
    "2 days, two hours around": lambda data: data.completed(lambda chain: nearby(chain, 2), 2),
    "2 days of the others": lambda data: data.completed(lambda _: fit(data.others, data.contexts), 2),
    "the others alone": lambda data: fit(data.others, data.contexts),
}


def compare(
    users: Sequence[User], learners: Mapping[str, Learner], lengths: Iterable[int], sampling: Sampling | None = None
) -> Table:
    """The outcome of each learner, for each number of days."""
    days = {user.name: user.days(sampling or Sampling(HOUR, lead=AT_ONCE)) for user in users}
    contexts = labels_of(day for each in days.values() for day in each)
    table: Table = defaultdict(Outcome)
    for user in users:
        training, test_days = days[user.name][: -user.test_days], days[user.name][-user.test_days :]
        others = [day for other in users if other is not user for day in days[other.name][: -other.test_days]]
        for length in lengths:
            data = TrainingData(training[-length:], contexts, others)
            for name, learner in learners.items():
                chain = learner(data)
                table[str(length), name] += outcome(user, chain, test_days, days[user.name])
    return table


def weekends(users: Sequence[User]) -> Table:
    """The outcome of one chain for all days, and of one each for weekdays and weekends, some with days of both."""
    table: Table = defaultdict(Outcome)
    for user in users:
        days = user.days(Sampling(HOUR, lead=AT_ONCE))
        training, test_days = days[: -user.test_days], days[-user.test_days :]
        for length in SOME + FEW[-1:]:
            known = training[-length:]
            together = learn(known, train=1, min_days=1).chain
            for weekend in (False, True):
                mine, user_days, ever = (
                    [day for day in part if day.is_weekend == weekend] for part in (known, test_days, days)
                )
                own = learn(mine, train=1, min_days=1).chain
                counts = fit(mine, together.contexts)
                shared = {each: pooled([counts, together], [len(mine), each]) for each in (1, 2, 5)}
                ways = {"together": together, "apart": own} | {f"apart, and {n} shared": c for n, c in shared.items()}
                for name, chain in ways.items():
                    table[str(length), name] += outcome(user, chain, user_days, ever)
    return table


def gaps(users: Sequence[User]) -> Table:
    """The outcome of learning from days with few gaps only; all days with a reading are test days."""
    table: Table = defaultdict(Outcome)
    for user in users:
        every = user.days(Sampling(HOUR, min_filled=0, lead=AT_ONCE))
        test_days = every[-user.test_days :]
        for least in (0.0, 0.25, 0.5, 0.75, 0.9):
            days = user.days(Sampling(HOUR, min_filled=least, lead=AT_ONCE))
            known = [day for day in days if day.date < test_days[0].date]
            if known:
                chain = default(TrainingData(known, (), ()))
                table["all", f"{least:.0%} filled"] += outcome(user, chain, test_days, every)
    return table


def outcome(user: User, chain: MarkovChain, test_days: Sequence[DatedDay], ever: Sequence[DatedDay]) -> Outcome:
    """The releases and breaches of the policy for a chain, on the test days."""
    contexts = tuple(dict.fromkeys([*chain.contexts, *labels_of(ever), user.sensitive]))
    wide = widened(chain, contexts)
    policy = hybrid(wide, sensitive={user.sensitive}, delta=DELTA, weights=STEPS_COUNT)
    days = [day.labels for day in test_days]
    own, of_all_days = (
        audit(policy, days, against=[each], window=(), rng=seeded(SEED, user.name))
        for each in (wide, fit(ever, wide.contexts))
    )
    return Outcome(
        own.total.steps,
        policy.utility * len(days),
        own.total.released + own.total.gaps_released,
        own.total.off_model + own.total.gaps_off_model,
        own.total.visits,
        len(own.breaches),
        len(of_all_days.breaches),
    )


def fit(days: Sequence[DatedDay], contexts: tuple[str, ...], smoothing: float = 0.0) -> MarkovChain:
    """Counts of days."""
    return MarkovChain.fit([day.labels for day in days], contexts=contexts, smoothing=smoothing)


def labels_of(days: Iterable[DatedDay]) -> tuple[str, ...]:
    """All contexts of some days."""
    return tuple(sorted({UNKNOWN if label is None else label for day in days for label in day.labels}))


def simulated() -> list[User]:
    """Simulated people with sixteen weeks, of which the last four are test days."""
    users, world = [], World(SEED, USERS, routines=USERS)
    for number in range(USERS):
        days = world.person(number).days(range(112))
        rows = [
            (str(number), MIDNIGHT + dt.timedelta(days=day, hours=hour), label)
            for day, labels in enumerate(days)
            for hour, label in enumerate(labels)
        ]
        users.append(User(str(number), Traces.of(rows), HOSPITAL, test_days=28))
    return users


def real(path: Path) -> list[User]:
    """Users of a table `user,day,slot,place` of half hours, places named by how often each user visits them."""
    slots: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            slots[row["user"]].append((int(row["day"]), int(row["slot"]), row["place"]))
    users = []
    for name, visits in slots.items():
        often = Counter(place for _, _, place in visits).most_common(TOP)
        labels = {place: f"place {rank}" for rank, (place, _) in enumerate(often, start=1)}
        rows = [
            (name, MIDNIGHT + day * dt.timedelta(days=1) + slot * HALF_HOUR, labels.get(place, "other"))
            for day, slot, place in visits
        ]
        user = User(name, Traces.of(rows), "place 3", test_days=20)
        if len(user.days(Sampling(HOUR, min_filled=0.75, lead=AT_ONCE))) >= user.test_days + MIN_TRAINING:
            users.append(user)
    return users[:USERS]


def text(title: str, table: Table) -> str:
    """A table in plain text, shortest training first."""
    by_length = sorted(table.items(), key=lambda item: int(item[0][0]) if item[0][0].isdigit() else 0)
    lines = [HEADS, *((name, length, *found.cells) for (length, name), found in by_length)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(HEADS))]
    rows = [
        line[0].ljust(widths[0]) + "".join("  " + cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    ]
    return "\n".join([title, "-" * len(title), *rows, ""])
