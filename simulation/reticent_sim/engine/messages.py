"""The requests of a coordinator to its workers, and the replies. All of them are picklable."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from reticent.privacy import Query
from reticent_sim.engine.faults import Fault, FaultSchedule, Moment
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.trace import Event
from reticent_sim.world.outcomes import Request

__all__ = [
    "ComputePolicies",
    "Contributed",
    "CostReport",
    "Crash",
    "Finish",
    "Live",
    "LiveReport",
    "MaskLeakage",
    "Measure",
    "Published",
    "RoundReport",
    "Setup",
    "Start",
    "Streams",
    "TakeRounds",
]

Integers: TypeAlias = npt.NDArray[np.int64]


class Published(NamedTuple):
    """A step that the mask of a phone has published.

    Args:
        day: The day by the phone's clock.
        step: The step of the day.
        context: The released context; None for a suppression.
        read: The context that the mask read.
    """

    day: int
    step: int
    context: str | None
    read: str | None


Streams: TypeAlias = dict[int, dict[int, list[Published | None]]]
"""The steps of each day, by phone and by day; None where the phone has published nothing."""


@dataclass(frozen=True)
class Setup:
    """The setup of a worker.

    Args:
        number: The number of the worker.
        scenario: The scenario.
        folder: Where the files of the run are.
        phones: The numbers of its phones, in order.
        faults: The faults of the run.
        measured: The phones of the run that report what they publish.
    """

    number: int
    scenario: Scenario
    folder: Path
    phones: tuple[int, ...]
    faults: FaultSchedule
    measured: frozenset[int]


@dataclass(frozen=True)
class ComputePolicies:
    """Compute the policies of a check for some routines, and store them."""

    check: str
    routines: tuple[int, ...]


@dataclass(frozen=True)
class Start:
    """Start the phones, and enrol those that are not.

    Args:
        now: The simulated instant.
        moment: The day and the step.
        invitations: The invitation of each phone, as text.
        ad_service: The address of the ad service, if apps show ads.
    """

    now: dt.datetime
    moment: Moment
    invitations: dict[int, str]
    ad_service: str | None


@dataclass(frozen=True)
class Live:
    """Let the users live some steps of a day: masks decide, and apps show ads.

    Args:
        day: The day.
        first: The first step.
        end: The step after the last one.
    """

    day: int
    first: int
    end: int


@dataclass(frozen=True)
class LiveReport:
    """The results of `Live`.

    Args:
        events: For the trace.
        released: The number of released steps.
        suppressed: The number of steps with a reading at which the phone released nothing.
        missing: The number of steps without a reading.
        requests: Of apps for ads.
        shown: The number of shown ads.
        clicks: The number of clicks on them.
        published: The steps that phones have published since the last report, of the phones that are measured.
        applied: The faults of phones that have taken effect since the last report.
    """

    events: list[Event]
    released: int = 0
    suppressed: int = 0
    missing: int = 0
    requests: list[Request] = field(default_factory=list)
    shown: int = 0
    clicks: int = 0
    published: dict[int, list[Published]] = field(default_factory=dict)
    applied: frozenset[Fault] = frozenset()


@dataclass(frozen=True)
class TakeRounds:
    """Let the phones that are present make a round of counting.

    Args:
        now: The simulated instant.
        order: The order of the events.
        moment: The day whose counters are contributed, the step, and the number of the round.
        query: The query that is open; None if phones only take decisions.
        overheard: Contributions of malicious phones, for others to replay.
        crash: Whether the worker dies when half of its phones have made their round.
    """

    now: dt.datetime
    order: int
    moment: Moment
    query: Query | None
    overheard: tuple[bytes, ...] = ()
    crash: bool = False


@dataclass(frozen=True)
class Contributed:
    """A contribution that a phone has made, as only a simulation knows it.

    Args:
        phone: The phone.
        query: The id of the query.
        cohort: Its cohort.
        counted: Its counters in steps of the grid, before they are scaled down to the bound of the query.
        values: What it contributes, in steps of the grid.
        noise: Its share of the noise.
        malice: Its kind of malice, if any: such a phone may have sent something else.
    """

    phone: int
    query: str
    cohort: int
    counted: Integers
    values: Integers
    noise: Integers
    malice: str | None = None

    @property
    def text(self) -> str:
        """For the trace: the query, the cohort and a digest of both vectors."""
        digest = hashlib.blake2b(digest_size=8)
        for each in (self.values, self.noise):
            digest.update(each.astype("<i8").tobytes())
        return f"contributed to {self.query}, cohort {self.cohort}: {digest.hexdigest()}"


@dataclass(frozen=True)
class RoundReport:
    """The results of `TakeRounds`.

    Args:
        events: For the trace.
        contributed: Contributions to the open query that the worker has not reported yet.
        acknowledged: The phones whose contribution to it is acknowledged.
        pending: The number of phones that have to try again.
        sent: Contributions of malicious phones, by phone.
        present: The number of phones that were due and present.
        failures: Sentences about failed calls and declined queries, with their numbers.
        published: The steps that phones have published since the last report, of the phones that are measured.
        applied: The faults of phones that have taken effect since the last report.
    """

    events: list[Event]
    contributed: list[Contributed]
    acknowledged: list[int]
    pending: int
    failures: dict[str, int]
    sent: dict[int, tuple[bytes, ...]]
    present: int
    published: dict[int, list[Published]]
    applied: frozenset[Fault]


@dataclass(frozen=True)
class Measure:
    """Compute what an adversary learns from the streams of some phones, under several checks.

    Args:
        streams: The steps of each day, by phone.
        check: The check of the phones.
        checks: The checks; "none" for phones that release everything.
        delta: The bound that counts as a breach if it is exceeded.
    """

    streams: Streams
    check: str
    checks: tuple[str, ...]
    delta: float


@dataclass(frozen=True)
class MaskLeakage:
    """The rises of an adversary's beliefs on the days of phones under a check.

    Args:
        check: The check.
        rises: By phone, the largest rise of the belief in a sensitive context on each day that follows its chain.
        released: The number of released steps of these days.
        steps: The number of steps with a reading.
        breaches: The sensitive states of these days whose belief rises by more than delta.
        forbidden: The contexts released on these days that the policy must suppress, after the earlier releases.
        strayed: The days that the chain rules out. Nothing is promised about them.
    """

    check: str
    rises: dict[int, list[float]]
    released: int
    steps: int
    breaches: int
    forbidden: int
    strayed: int

    @property
    def largest(self) -> float:
        """The largest rise at any hour, wherever the user is."""
        return max((rise for own in self.rises.values() for rise in own), default=0.0)

    @classmethod
    def merged(cls, parts: Sequence[MaskLeakage]) -> MaskLeakage:
        """The measures of several workers as one, in the order of phones."""
        rises = {phone: own for part in parts for phone, own in part.rises.items()}
        return cls(
            check=parts[0].check,
            rises=dict(sorted(rises.items())),
            released=sum(part.released for part in parts),
            steps=sum(part.steps for part in parts),
            breaches=sum(part.breaches for part in parts),
            forbidden=sum(part.forbidden for part in parts),
            strayed=sum(part.strayed for part in parts),
        )


@dataclass(frozen=True)
class Crash:
    """Die at once, as if killed."""


@dataclass(frozen=True)
class Finish:
    """Stop the phones, and report what they cost."""


@dataclass(frozen=True)
class CostReport:
    """The cost of the phones of a worker in all; their CPU time and calls are in the usage of each reply.

    Args:
        memory: The most bytes that the worker held.
        store_bytes: The size of the store of its phones.
        spent: Epsilon and delta of each phone.
    """

    memory: int
    store_bytes: int
    spent: list[tuple[float, float]]
