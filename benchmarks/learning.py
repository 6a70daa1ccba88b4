"""How much is lost when few days of a user are known, and what helps.

For each user the last days are judged, and habits are learned from the days right before them, many or few. A policy is
made from what was learned and run over the judged days, beside an adversary who is certain of the same chain, and
beside one who is certain of a chain counted from all the user's days, the judged ones included.

    python -m benchmarks.learning [--traces FILE]
"""

from __future__ import annotations

import argparse
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
from reticent_sim.world.people import HOSPITAL, person

DELTA = 0.1
SEED = 7
MONDAY = dt.date(2027, 3, 1)
MIDNIGHT = dt.datetime.combine(MONDAY, dt.time())
AT_ONCE = dt.timedelta()  # the lead: tables have their readings where steps begin
HOUR, HALF_HOUR = dt.timedelta(hours=1), dt.timedelta(minutes=30)
USERS = 15
TOP = 5  # places with a label of their own; the third most visited is sensitive
MIN_TRAINING = 30  # of real users, those are studied who have as many days before the judged ones

FEW = (3, 5, 7, 10, 14, 21, 28, 42, 84)
SOME = (7, 14, 28)
HEADS = ("", "days", "expected", "released", "off model", "breaches", "of all days")

Learner = Callable[["Known"], MarkovChain]


@dataclass(frozen=True)
class User:
    """Somebody whose days are known for long enough to judge by."""

    name: str
    traces: Traces
    sensitive: str
    test_days: int

    def days(self, sampling: Sampling) -> tuple[DatedDay, ...]:
        """Their days."""
        return sampling.days(self.traces).days


@dataclass(frozen=True)
class Known:
    """What a learner is given: the last days before the judged ones, and the days of other people."""

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
    """What came of a policy on the judged days."""

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
    """The tables, of made-up people or of real ones."""
    users = made_up() if traces is None else real(traces)
    where = "made-up people" if traces is None else f"users of {traces.name}"
    title = f"{len(users)} {where}, the hybrid check, delta {DELTA}"
    yield text(f"Plain counts of few days: {title}", compare(users, {"counted": counted}, FEW))
    yield text(f"What helps: {title}", compare(users, HELP, SOME))
    steps = (1, 2, 3) if traces is None else (0.5, 1, 2, 3)
    longer: Table = {}
    for hours in steps:
        found = compare(users, {f"steps of {hours} h": default}, SOME, Sampling(hours * HOUR, lead=AT_ONCE))
        longer |= found
    yield text(f"Coarser steps: {title}", longer)
    if traces is None:  # of the real ones nobody says which day of the week it was
        yield text(f"Weekdays and weekends: {title}", weekends(users))
    else:
        yield text(f"Days with gaps left out, all days judged: {title}", gaps(users))


def counted(known: Known) -> MarkovChain:
    """Plain counts."""
    return known.counted


def default(known: Known) -> MarkovChain:
    """What `learn` does unless told otherwise."""
    return learn(known.days, train=1, min_days=1).chain


HELP: dict[str, Learner] = {
    "counted": counted,
    "0.1 to every count": lambda known: fit(known.days, known.contexts, smoothing=0.1),
    "2 days of frequencies": lambda known: known.completed(MarkovChain.frequencies, 2),
    "1 day, an hour around": lambda known: known.completed(lambda chain: nearby(chain, 1), 1),
    "2 days, an hour around": lambda known: known.completed(lambda chain: nearby(chain, 1), 2),
    "7 days, an hour around": lambda known: known.completed(lambda chain: nearby(chain, 1), 7),
    "2 days, two hours around": lambda known: known.completed(lambda chain: nearby(chain, 2), 2),
    "2 days of the others": lambda known: known.completed(lambda _: fit(known.others, known.contexts), 2),
    "the others alone": lambda known: fit(known.others, known.contexts),
}


def compare(
    users: Sequence[User], learners: Mapping[str, Learner], lengths: Iterable[int], sampling: Sampling | None = None
) -> Table:
    """What comes of each way to learn, from each number of days."""
    days = {user.name: user.days(sampling or Sampling(HOUR, lead=AT_ONCE)) for user in users}
    contexts = labels_of(day for each in days.values() for day in each)
    table: Table = defaultdict(Outcome)
    for user in users:
        training, test_days = days[user.name][: -user.test_days], days[user.name][-user.test_days :]
        others = [day for other in users if other is not user for day in days[other.name][: -other.test_days]]
        for length in lengths:
            known = Known(training[-length:], contexts, others)
            for name, learner in learners.items():
                chain = learner(known)
                table[str(length), name] += outcome(user, chain, test_days, days[user.name])
    return table


def weekends(users: Sequence[User]) -> Table:
    """One chain for all days, or one each for weekdays and weekends, which may take in days of both."""
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
    """Learn from days that are filled well enough, and judge all that have any reading."""
    table: Table = defaultdict(Outcome)
    for user in users:
        every = user.days(Sampling(HOUR, min_filled=0, lead=AT_ONCE))
        test_days = every[-user.test_days :]
        for least in (0.0, 0.25, 0.5, 0.75, 0.9):
            days = user.days(Sampling(HOUR, min_filled=least, lead=AT_ONCE))
            known = [day for day in days if day.date < test_days[0].date]
            if known:
                chain = default(Known(known, (), ()))
                table["all", f"{least:.0%} filled"] += outcome(user, chain, test_days, every)
    return table


def outcome(user: User, chain: MarkovChain, test_days: Sequence[DatedDay], ever: Sequence[DatedDay]) -> Outcome:
    """What a policy made from a chain releases on the judged days, and what it tells."""
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


def made_up() -> list[User]:
    """People of the simulation: sixteen weeks, of which the last four judge."""
    users = []
    for number in range(USERS):
        days = person(SEED, number).days(range(112))
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


def main() -> None:
    """Print one table after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path, help="a gzipped table user,day,slot,place of half hours")
    for table in run(parser.parse_args().traces):
        print(table, flush=True)


if __name__ == "__main__":
    main()
