"""The coordinator of a simulation: servers, workers and simulated time, and queries that the phones answer."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reticent.privacy import Contributions, Query, QueryBurnt, Release
from reticent.rates import RateTable
from reticent_analyst import Handle
from reticent_analyst.rates import estimate as estimate_rates
from reticent_sim.engine.backends import Backend
from reticent_sim.engine.count_outcome import CountOutcome
from reticent_sim.engine.faults import Fault, FaultSchedule, Moment, ProcessFaults, ProcessOutcome
from reticent_sim.engine.messages import (
    Contributed,
    CostReport,
    Finish,
    Live,
    LiveReport,
    MaskLeakage,
    Published,
    RoundReport,
    Streams,
    TakeRounds,
)
from reticent_sim.engine.process import ServerProcess
from reticent_sim.engine.questions import count_question, rates_options
from reticent_sim.engine.run_servers import RunServers
from reticent_sim.engine.scenario import NO_CHECK, Scenario
from reticent_sim.engine.snapshot import Snapshot
from reticent_sim.engine.times import START, STEPS, instant_of, order_of
from reticent_sim.engine.trace import SERVERS, Event, Trace
from reticent_sim.engine.usage import TotalUsage
from reticent_sim.engine.worker_pool import WorkerPool

__all__ = ["SCENARIO_FILE", "Coordinator", "CountOutcome", "Snapshot"]

SCENARIO_FILE = "scenario.json"
"""The scenario and the number of workers, from the start of the run: it may end with an error."""

RESULT_TIMEOUT = 600.0
"""Real seconds in which the servers must decide a query after it has closed."""
POLL = 0.05
"""Real seconds between two looks at a query."""
ROUNDS = 6
"""The most rounds in which phones try to contribute to a query."""
BETWEEN = dt.timedelta(minutes=1)
"""The simulated time between two rounds."""
STEPS_AT_A_TIME = 6
"""The steps that workers live before the display changes."""
LAST_PHASE = 1000
"""The number of the first round after all faults."""


class Coordinator:
    """Runs the servers and the workers of a scenario, while it is entered.

    Args:
        scenario: The scenario.
        folder: An empty folder for the files of the run.
        faults: The faults.
        backend: Where the workers run.
        workers: Their number.
        aggregation_program: Runs the aggregation server.
        trace: Where events are recorded.
        show: Called with the state of the run whenever it changes.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        faults: FaultSchedule,
        backend: Backend,
        workers: int,
        aggregation_program: Sequence[str | Path],
        trace: Trace,
        show: Callable[[Snapshot], None],
    ) -> None:
        self.scenario = scenario
        self.outcomes: list[CountOutcome] = []
        """The queries so far."""
        self.failures: dict[str, int] = {}
        """Failed calls and declined queries of phones, with their numbers."""
        self.faulted: list[ProcessOutcome] = []
        """The faults of processes so far."""
        self.applied: set[Fault] = set()
        """The faults of phones that have taken effect."""
        self._faults = faults
        self._program = aggregation_program
        self._folder = folder
        self._workers = WorkerPool(backend, workers, scenario=scenario, folder=folder, faults=faults)
        self._world = scenario.world
        self._trace = trace
        self._show = show
        self._began = time.monotonic()
        self._day = 0
        self._now = START - dt.timedelta(seconds=5)
        self._open = contextlib.ExitStack()
        self._spent = 0.0
        self._step = 0
        self._present = scenario.phones
        self._streams: Streams = {}
        self._overheard: list[bytes] = []

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
        content = {"scenario": scenario.to_json(), "workers": self._workers.number}
        (self._folder / SCENARIO_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        self.show("start the servers")
        self._servers = stack.enter_context(
            RunServers(scenario, self._folder, clock=self._now, aggregation_program=self._program)
        )
        self._servers.start()
        stack.callback(self._workers.stop)
        self._workers.start()
        for check in dict.fromkeys(check for check in (scenario.check, *scenario.compare) if check != NO_CHECK):
            self.show(f"compute the policies: {check}")
            self._workers.compute_policies(check, scenario.routines)
        self._servers.wait()
        self.show("enrol the phones")
        started = self._workers.start_phones(self._now, self._servers.invitations(), self._servers.ad_service)
        self._record(started)
        self._keep(started)
        self._process_faults = ProcessFaults(
            self._faults,
            {process.name: process for process in self.processes},
            self._crash_worker,
            without_disks=[] if scenario.database is None else self._servers.aggregation_names,
        )
        self._analyst = stack.enter_context(self._servers.analyst())

    def show(self, phase: str, contributions: int = 0, rate: float = 0.0) -> None:
        """Show the state of the run."""
        self._show(
            Snapshot(
                day=self._day,
                step=self._step,
                days=self.scenario.days,
                phase=phase,
                phones=self.scenario.phones,
                present=self._present,
                contributions=contributions,
                rate=rate,
                epsilon_spent=self._spent,
                epsilon_limit=self.scenario.phone_settings.budget.epsilon,
                seconds=time.monotonic() - self._began,
            )
        )

    @property
    def processes(self) -> list[ServerProcess]:
        """All servers."""
        return self._servers.processes

    def live(self, day: int) -> list[LiveReport]:
        """Let the users live a day."""
        self._day = day
        for phone in self._workers.measured:
            self._stream(phone, day)
        self._move(instant_of(day, 0) - dt.timedelta(seconds=5))
        reports: list[LiveReport] = []
        by_step = day in self._faults.days_of_processes
        length = 1 if by_step else STEPS_AT_A_TIME
        for first in range(0, STEPS, length):
            end = first + length
            self._step = first
            self.show("masks and ads")
            if by_step:
                self._move(instant_of(day, first) - dt.timedelta(seconds=5))
                self.faulted += self._process_faults.begin(Moment(day, first))
            own: list[LiveReport] = self._workers.call(Live(day, first, end))
            self._now = instant_of(day, end - 1) + dt.timedelta(seconds=10)
            self._record(own)
            self._keep(own)
            reports += own
        self._move(instant_of(day, STEPS - 1) + dt.timedelta(minutes=1))
        return reports

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Run a query: see `reticent.privacy.Counts`. The phones have their own counters."""
        if counters is not None:
            raise ValueError("real phones have their own counters: counters must be None")
        began = time.monotonic()
        self._end_faults()
        handle = self._analyst.start(query)
        while handle.status().phase == "announced":
            self._check_time(began, query, "countersigned")
            time.sleep(POLL)
        contributed: dict[int, Contributed] = {}
        acknowledged: set[int] = set()
        closes = self._now + dt.timedelta(seconds=query.closes_after)
        order = order_of(self._now)
        for number in range(ROUNDS):
            reports = self._rounds(handle.query, number, order)
            self._present = sum(report.present for report in reports) if number == 0 else self._present
            new = [each for report in reports for each in report.contributed if each.phone not in contributed]
            self._trace.add(Event(order, each.phone, each.text) for each in new)
            contributed |= {each.phone: each for each in new}
            for report in reports:
                acknowledged.update(report.acknowledged)
            self.show(query.id, len(acknowledged), len(acknowledged) / (time.monotonic() - began))
            if not any(report.pending for report in reports):
                break
            self._move(self._now + BETWEEN)
        self._end_faults()
        self._move(closes + dt.timedelta(seconds=1))
        try:
            release = handle.result(timeout=RESULT_TIMEOUT)
        except QueryBurnt as error:
            self._settle(handle, error, [*contributed.values()], acknowledged, began=began)
            raise
        self._settle(handle, release, [*contributed.values()], acknowledged, began=began)
        return release

    def count_counters(self) -> Release:
        """Count the phones at the end of the day."""
        return self.count(self._analyst.query(count_question(self.scenario, self._day)))

    def estimate_rates(self) -> RateTable:
        """Estimate click-through rates from the logs of the phones."""
        scenario = self.scenario
        self._spent += scenario.rates_epsilon
        return estimate_rates(
            self,
            self._world.hierarchy,
            self._world.bids,
            name=f"rates-{self._day}",
            epsilon=scenario.rates_epsilon,
            delta=scenario.rates_delta,
            entries=scenario.entries,
            to_query=self._analyst.query,
            **rates_options(scenario),
        )

    def load_rates(self, learned: RateTable | None) -> None:
        """Let the ad service use these rates from now on."""
        self._servers.load_rates(learned)

    def take_decisions(self) -> None:
        """End all faults, and let all phones fetch the decisions that they wait for.

        The day ends before: a phone whose clock is behind publishes its last step.
        """
        self.show("decisions")
        self._move(instant_of(self._day + 1, 0) - dt.timedelta(seconds=5))
        self.faulted += self._process_faults.finish(Moment(self._day, STEPS - 1, LAST_PHASE))
        for number in range(ROUNDS):
            if not any(report.pending for report in self._rounds(None, LAST_PHASE + number, order_of(self._now))):
                return
            self._move(self._now + BETWEEN)

    def measure(self) -> list[MaskLeakage]:
        """The beliefs of an adversary who sees the streams of some phones."""
        self.show("what an adversary learns")
        scenario = self.scenario
        checks = tuple(dict.fromkeys([scenario.check, *scenario.compare, NO_CHECK]))
        return self._workers.measure(self._streams, check=scenario.check, checks=checks, delta=scenario.delta)

    @property
    def usage(self) -> TotalUsage:
        """The resources that all workers have used so far."""
        return self._workers.usage

    def finish(self) -> list[CostReport]:
        """Stop the phones; what they have cost."""
        self.show("stop")
        return self._workers.call(Finish())

    def _rounds(self, query: Query | None, number: int, order: int) -> list[RoundReport]:
        """Let the phones that are due make a round, while the faults of this round happen."""
        moment = Moment(self._day, STEPS - 1, 1 + number)
        request = TakeRounds(self._now, order, moment, query, tuple(self._overheard))
        with ThreadPoolExecutor(1) as thread:
            crashes = thread.submit(self._process_faults.begin, moment) if self._is_faulty else None
            crashing = {each.worker for each in self._faults.at(moment) if each.worker is not None}
            reports = self._workers.take_rounds(request, crashing)
            if crashes is not None:
                self.faulted += crashes.result()
        self._record(reports)
        self._keep(reports)
        sent: dict[int, tuple[bytes, ...]] = {}
        for report in reports:
            sent.update(report.sent)
            for sentence, calls in report.failures.items():
                self.failures[sentence] = self.failures.get(sentence, 0) + calls
        self._overheard = [content for _, own in sorted(sent.items()) for content in own] or self._overheard
        return reports

    def _end_faults(self) -> None:
        """Start the servers that are down, and make room on their disks: analysts and closing need both."""
        if self._is_faulty:
            self.faulted += self._process_faults.finish(Moment(self._day, STEPS - 1, 1 + ROUNDS))

    @property
    def _is_faulty(self) -> bool:
        return self._day in self._faults.days_of_processes

    def _crash_worker(self, number: int, moment: Moment) -> None:
        if not moment.phase:  # a worker that crashes in a round does so by itself
            self._workers.crash(number, self._now, moment)

    def _settle(
        self,
        handle: Handle,
        result: Release | QueryBurnt,
        contributed: list[Contributed],
        acknowledged: set[int],
        *,
        began: float,
    ) -> None:
        """Record a decided query."""
        seconds = time.monotonic() - began
        outcome = CountOutcome.of(handle, result, contributed, acknowledged, day=self._day, seconds=seconds)
        self.outcomes.append(outcome)
        self._spent += outcome.query.epsilon if outcome.query.sequence is None else 0.0
        self._trace.add([Event(order_of(self._now), SERVERS, outcome.text)])

    def _move(self, instant: dt.datetime) -> None:
        """Move the simulated time of the servers forward."""
        self._now = instant
        self._servers.move_clocks(instant)

    def _record(self, reports: Any) -> None:
        self._trace.add(event for report in reports for event in report.events)

    def _keep(self, reports: Sequence[LiveReport] | Sequence[RoundReport]) -> None:
        """Keep what phones have published. A phone whose clock is ahead may publish a step of the day after the run."""
        for report in reports:
            self.applied |= report.applied
            for phone, published in report.published.items():
                for each in published:
                    if each.day < self.scenario.days:
                        self._stream(phone, each.day)[each.step] = each

    def _stream(self, phone: int, day: int) -> list[Published | None]:
        return self._streams.setdefault(phone, {}).setdefault(day, [None] * STEPS)

    def _check_time(self, began: float, query: Query, what: str) -> None:
        if time.monotonic() - began > RESULT_TIMEOUT:
            raise TimeoutError(f"{query.id!r} was not {what} within {RESULT_TIMEOUT:g} s")
