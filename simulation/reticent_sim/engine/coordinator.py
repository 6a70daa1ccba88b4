"""The coordinator of a simulation: servers, workers and simulated time, and queries that the phones answer."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from reticent.privacy import CohortSum, Contributions, Counter, Query, QueryBurnt, Release, estimate
from reticent.rates import RateTable
from reticent.tls.certificates import Certificate
from reticent_agg.ads.folder import AdFolder, AdSources
from reticent_analyst import Analyst, Question
from reticent_analyst.rates import estimate as estimate_rates
from reticent_sim.engine.ad_server import AdServerProcess
from reticent_sim.engine.backends import Backend
from reticent_sim.engine.messages import (
    ComputePolicies,
    Contributed,
    CostReport,
    Finish,
    Live,
    LiveReport,
    Measure,
    Measured,
    RoundReport,
    Setup,
    Start,
    TakeRounds,
)
from reticent_sim.engine.process import ServerProcess
from reticent_sim.engine.scenario import NO_CHECK, Scenario
from reticent_sim.engine.servers import ANALYST, ServerPair
from reticent_sim.engine.times import START, STEPS, instant_of, order_of
from reticent_sim.engine.trace import SERVERS, Event, Trace
from reticent_sim.engine.worker import PhoneWorker
from reticent_sim.world.world import COUNTER_MOST

__all__ = ["Coordinator", "CountOutcome", "Snapshot"]

RESULT_TIMEOUT = 600.0
"""Real seconds in which the servers must decide a query after it has closed."""
POLL = 0.05
"""Real seconds between two looks at a query."""
ROUNDS = 6
"""The most rounds in which phones try to contribute to a query."""
BETWEEN = dt.timedelta(minutes=1)
"""The simulated time between two rounds."""
OPEN_FOR = dt.timedelta(minutes=8)
"""The simulated time for which a query is open."""
JOIN_RATE = 100_000


@dataclass(frozen=True)
class Snapshot:
    """The state of a run, for a display.

    Args:
        phase: What happens at present.
        day: The day.
        days: The number of days.
        phones: The number of phones.
        contributions: The contributions to the open query so far.
        rate: Contributions per real second.
        epsilon_spent: The largest epsilon that a phone has spent or reserved.
        epsilon_limit: The budget.
        seconds: Real seconds since the beginning.
    """

    phase: str
    day: int
    days: int
    phones: int
    contributions: int = 0
    rate: float = 0.0
    epsilon_spent: float = 0.0
    epsilon_limit: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class CountOutcome:
    """A query that was decided.

    Args:
        query: The query.
        day: The day.
        release: What was released; None if the query was burnt.
        burnt: Why it was burnt.
        contributed: The contributions of honest phones.
        acknowledged: Honest phones whose contributions were acknowledged.
        exact: Whether the release is, to the unit, the sum of what the phones contributed; None if that is not known.
        truth: (counters,): the sums of the honest phones' values, in units of the counters.
        seconds: Real seconds from the first round to the decision.
    """

    query: Query
    day: int
    release: Release | None
    burnt: str | None
    contributed: int
    acknowledged: int
    exact: bool | None
    truth: tuple[float, ...]
    seconds: float


class Coordinator:
    """Runs the servers and the workers of a scenario, while it is entered.

    Args:
        scenario: The scenario.
        folder: An empty folder for the files of the run.
        backend: Where the workers run.
        workers: Their number.
        trace: Where events are recorded.
        show: Called with the state of the run whenever it changes.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        backend: Backend,
        workers: int,
        trace: Trace,
        show: Callable[[Snapshot], None],
    ) -> None:
        self.scenario = scenario
        self.outcomes: list[CountOutcome] = []
        """The queries so far."""
        self.failures: dict[str, int] = {}
        """Failed calls and declined queries of phones, with their numbers."""
        self._folder = folder
        self._backend = backend
        self._phones = {number: tuple(range(number, scenario.phones, workers)) for number in range(workers)}
        self._world = scenario.world
        self._trace = trace
        self._show = show
        self._began = time.monotonic()
        self._day = 0
        self._now = START - dt.timedelta(seconds=5)
        self._open = contextlib.ExitStack()
        self._spent = 0.0

    def __enter__(self) -> Self:
        """Start everything, and enrol the phones."""
        with contextlib.ExitStack() as stack:
            self._begin(stack)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self._open.__exit__(kind, error, trace)

    def _begin(self, stack: contextlib.ExitStack) -> None:
        scenario = self.scenario
        self.show("start the servers")
        self.servers = stack.enter_context(
            ServerPair(
                self._folder,
                clock=self._now,
                key_bits=scenario.key_bits,
                keys_options=(
                    *("--join-rate", str(JOIN_RATE), "--min-honest", str(scenario.min_honest)),
                    *("--seed", str(scenario.seed)),
                ),
            )
        )
        self.servers.keys.start()
        self.servers.aggregation.spawn()
        stack.callback(self._backend.stop)
        setups = [Setup(number, scenario, self._folder, phones) for number, phones in self._phones.items()]
        self._backend.start(PhoneWorker, setups)
        self._compute_policies()
        self.servers.aggregation.wait()
        self.ad_server = None
        if scenario.ads:
            self._world.write(self._folder)
            self.ad_server = AdServerProcess(self._folder, self.servers.certs)
            stack.callback(_kill, self.ad_server)
            self.load_rates(None)
            self.ad_server.start()
        self.show("enrol the phones")
        invitations = self.servers.invitations(scenario.phones)
        address = None if self.ad_server is None else self.ad_server.endpoint.address
        requests = {
            number: Start(self._now, {phone: invitations[phone].to_text() for phone in phones}, address)
            for number, phones in self._phones.items()
        }
        self._record(self._backend.call(requests).values())
        self._analyst = stack.enter_context(
            Analyst(
                self.servers.counting.address,
                Certificate.load(self.servers.certs, ANALYST),
                self.servers.identity,
            )
        )

    def _compute_policies(self) -> None:
        """Have the workers compute the policies of all routines."""
        checks = [self.scenario.check, *self.scenario.compare]
        for check in dict.fromkeys(check for check in checks if check != NO_CHECK):
            self.show(f"compute the policies: {check}")
            workers = len(self._phones)
            routines = range(self.scenario.routines)
            self._backend.call(
                {number: ComputePolicies(check, tuple(routines[number::workers])) for number in self._phones}
            )

    def show(self, phase: str, contributions: int = 0, rate: float = 0.0) -> None:
        """Show the state of the run."""
        self._show(
            Snapshot(
                phase=phase,
                day=self._day,
                days=self.scenario.days,
                phones=self.scenario.phones,
                contributions=contributions,
                rate=rate,
                epsilon_spent=self._spent,
                epsilon_limit=self.scenario.terms.budget.epsilon,
                seconds=time.monotonic() - self._began,
            )
        )

    @property
    def processes(self) -> list[ServerProcess]:
        """All servers."""
        return [*self.servers.both, *([] if self.ad_server is None else [self.ad_server])]

    def live(self, day: int) -> list[LiveReport]:
        """Let the users live a day."""
        self._day = day
        self.show("masks and ads")
        self._move(instant_of(day, 0) - dt.timedelta(seconds=5))
        reports = self._backend.call(dict.fromkeys(self._phones, Live(day, 0, STEPS)))
        self._now = instant_of(day, STEPS - 1) + dt.timedelta(minutes=1)
        self._record(reports.values())
        self._move(self._now)
        return [*reports.values()]

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Run a query: see `reticent.privacy.Counts`. The phones have their own counters."""
        if counters is not None:
            raise ValueError("real phones have their own counters: counters must be None")
        began = time.monotonic()
        handle = self._analyst.start(query)
        while handle.status().phase == "announced":
            self._check_time(began, query, "countersigned")
            time.sleep(POLL)
        contributed: list[Contributed] = []
        acknowledged: set[int] = set()
        closes = self._now + dt.timedelta(seconds=query.closes_after)
        for _ in range(ROUNDS):
            if self._now >= closes:
                break
            reports = self._rounds(query.id, query.id)
            for report in reports:
                contributed += report.contributed
                acknowledged.update(report.acknowledged)
            self.show(query.id, len(acknowledged), len(acknowledged) / (time.monotonic() - began))
            if not any(report.pending for report in reports):
                break
            self._move(self._now + BETWEEN)
        self._move(closes + dt.timedelta(seconds=1))
        try:
            release = handle.result(timeout=RESULT_TIMEOUT)
        except QueryBurnt as error:
            self._settle(query, error, contributed, len(acknowledged), began=began)
            raise
        self._settle(query, release, contributed, len(acknowledged), began=began)
        return release

    def question(self, **changes: Any) -> Query:
        """The query of a count at the end of the day."""
        scenario = self.scenario
        names = self._world.counter_names[: scenario.counters]
        question = Question(
            id=f"counters-{self._day}",
            counters=[Counter(name, 0, COUNTER_MOST) for name in names],
            epsilon=scenario.epsilon,
            delta=scenario.count_delta,
            absent=min(0.9, scenario.absent + 0.02),
            cohorts=scenario.cohorts,
            closes_after=OPEN_FOR,
            **changes,
        )
        return self._analyst.query(question)

    def estimate_rates(self) -> RateTable:
        """Estimate click-through rates from the logs of the phones."""
        scenario = self.scenario
        return estimate_rates(
            self,
            self._world.hierarchy,
            self._world.bids,
            name=f"rates-{self._day}",
            epsilon=scenario.rates_epsilon,
            delta=scenario.rates_delta,
            entries=scenario.entries,
            absent=min(0.9, scenario.absent + 0.02),
            to_query=self._analyst.query,
            depth=1,
            closes_after=OPEN_FOR,
        )

    def load_rates(self, learned: RateTable | None) -> None:
        """Let the ad service use these rates."""
        path = self._folder / "rates.npz"
        self._world.served_rates(learned).save(path)
        sources = AdSources(self._folder / "catalogue.csv", path, self._folder / "hierarchy.json")
        assert self.ad_server is not None  # noqa: S101  # there are ads
        AdFolder(self.ad_server.files).load(sources, {})

    def take_decisions(self) -> None:
        """Let all phones fetch the decisions that they wait for."""
        self.show("decisions")
        for _ in range(ROUNDS):
            if not any(report.pending for report in self._rounds("decisions", None, absent=False)):
                return
            self._move(self._now + BETWEEN)

    def measure(self, phones: int) -> list[Measured]:
        """What an adversary learns from the streams of the first phones."""
        self.show("what an adversary learns")
        checks = tuple(dict.fromkeys([self.scenario.check, *self.scenario.compare, NO_CHECK]))
        requests = {
            number: Measure(
                tuple(phone for phone in own if phone < phones), self.scenario.check, checks, self.scenario.delta
            )
            for number, own in self._phones.items()
        }
        replies = self._backend.call(requests)
        return [_merged([own for reply in replies.values() for own in reply if own.check == check]) for check in checks]

    def finish(self) -> list[CostReport]:
        """Stop the phones; what they have cost."""
        self.show("stop")
        return [*self._backend.call(dict.fromkeys(self._phones, Finish())).values()]

    def _rounds(self, phase: str, query: str | None, *, absent: bool = True) -> list[RoundReport]:
        request = TakeRounds(self._now, order_of(self._now), self._day, phase, query, absent)
        reports = [*self._backend.call(dict.fromkeys(self._phones, request)).values()]
        self._record(reports)
        for report in reports:
            for sentence, number in report.failures.items():
                self.failures[sentence] = self.failures.get(sentence, 0) + number
        return reports

    def _settle(
        self,
        query: Query,
        result: Release | QueryBurnt,
        contributed: list[Contributed],
        acknowledged: int,
        *,
        began: float,
    ) -> None:
        """Record a decided query, and compare it with what the phones contributed."""
        release, burnt = (result, None) if isinstance(result, Release) else (None, str(result))
        contributed = sorted(contributed, key=lambda each: each.phone)
        scales = np.array([counter.scale for counter in query.counters])
        truth = np.zeros(query.size)
        for each in contributed:
            truth += each.values
        self.outcomes.append(
            CountOutcome(
                query=query,
                day=self._day,
                release=release,
                burnt=burnt,
                contributed=len(contributed),
                acknowledged=acknowledged,
                exact=None if release is None else _is_exact(query, release, contributed),
                truth=tuple((truth * query.unit / scales).tolist()),
                seconds=time.monotonic() - began,
            )
        )
        text = burnt if release is None else f"value {list(release.value)}, contributors {release.contributors}"
        self._trace.add([Event(order_of(self._now), SERVERS, f"released {query.id}: {text}")])

    def _move(self, instant: dt.datetime) -> None:
        """Move the simulated time of the servers forward."""
        self._now = instant
        self.servers.move_clocks(instant)

    def _record(self, reports: Any) -> None:
        self._trace.add(event for report in reports for event in report.events)

    def _check_time(self, began: float, query: Query, what: str) -> None:
        if time.monotonic() - began > RESULT_TIMEOUT:
            raise TimeoutError(f"{query.id!r} was not {what} within {RESULT_TIMEOUT:g} s")


def _is_exact(query: Query, release: Release, contributed: list[Contributed]) -> bool | None:
    """Whether a release is what follows from the contributions of the cohorts that are in it.

    It is not known where phones contributed that tell nobody what they sent.
    """
    sums = np.zeros((query.cohorts, query.size), dtype=np.int64)
    sizes = np.zeros(query.cohorts, dtype=np.int64)
    for each in contributed:
        sums[each.cohort] += each.values + each.noise
        sizes[each.cohort] += 1
    cohorts = [
        CohortSum(int(size), None if number in release.cohorts_left_out else tuple(own.tolist()))
        for number, (size, own) in enumerate(zip(sizes, sums, strict=True))
    ]
    expected = estimate(query, cohorts, seeded=True)
    if expected.contributors != release.contributors:
        return None
    return (expected.value, expected.cohorts_outlying) == (release.value, release.cohorts_outlying)


def _merged(parts: list[Measured]) -> Measured:
    """The measures of all workers, in the order of phones."""
    rises = {phone: own for part in parts for phone, own in part.rises.items()}
    return Measured(
        check=parts[0].check,
        rises=dict(sorted(rises.items())),
        released=sum(part.released for part in parts),
        steps=sum(part.steps for part in parts),
        breaches=sum(part.breaches for part in parts),
        strayed=sum(part.strayed for part in parts),
    )


def _kill(process: AdServerProcess) -> None:
    if process.is_running:
        process.kill()


def default_workers() -> int:
    """One worker for each processor."""
    return os.cpu_count() or 1
