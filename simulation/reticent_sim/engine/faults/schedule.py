"""The faults of a run: read, checked, and looked up by phone and by step."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

from reticent_sim.engine.faults.fault import CALL_KINDS, Call, Fault, Kind, Moment, Server

__all__ = ["FaultSchedule", "PhoneFaults"]

_OF_PROCESSES = ("crash", "full")


@dataclass(frozen=True)
class PhoneFaults:
    """The faults of one phone."""

    faults: tuple[Fault, ...] = ()
    """Its own ones."""
    outages: tuple[Fault, ...] = ()
    """Crashes of servers that do not restart at once."""
    applied: set[Fault] = field(default_factory=set, compare=False, repr=False)
    """Those of its own that have taken effect since `take_applied`."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.faults or self.outages)

    @property
    def joins(self) -> Moment | None:
        """The moment at which it joins; None if it is there from the start."""
        return next((each.moment for each in self.faults if each.kind == "join"), None)

    @property
    def leaves(self) -> Moment | None:
        """The moment at which it leaves; None if it stays."""
        return next((each.moment for each in self.faults if each.kind == "leave"), None)

    def is_absent(self, moment: Moment) -> bool:
        """Whether it is off, late, not there yet or there no longer."""
        joins, leaves = self.joins, self.leaves
        if (joins is not None and moment < joins) or (leaves is not None and moment[:2] > leaves[:2]):
            return True
        return any(
            each.kind == "absent" or (each.kind == "slow" and moment.phase <= each.rounds)
            for each in self._present(moment)
        )

    def is_off(self, moment: Moment) -> bool:
        """Whether it is off in the step: it is absent for whole steps, not there yet or there no longer."""
        joins, leaves = self.joins, self.leaves
        if (joins is not None and moment < joins) or (leaves is not None and moment[:2] >= leaves[:2]):
            return True
        return any(each.kind == "absent" and each.phase is None for each in self._present(moment))

    def reaches(self, server: Server, moment: Moment) -> bool:
        """Whether the network lets it reach a server for a call, and the server runs. A partition takes effect."""
        if any(_is_down(each, server, moment) for each in self.outages):
            return False
        partitions = [each for each in self._present(moment) if each.kind == "partition" and each.server == server]
        self.applied.update(partitions)
        return not partitions

    def of_call(self, call: Call, number: int, moment: Moment) -> Kind | None:
        """The fault of a call, if any, which takes effect. The calls of this name in this step have numbers from 0."""
        for each in self._present(moment):
            if each.kind in CALL_KINDS and each.call == call and number < each.times:
                self.applied.add(each)
                return each.kind
        return None

    def skew(self, moment: Moment) -> dt.timedelta:
        """The time by which its clock is ahead."""
        seconds = sum(each.seconds for each in self._present(moment) if each.kind == "skew")
        return dt.timedelta(seconds=seconds)

    def is_full(self, moment: Moment) -> bool:
        """Whether its disk is full."""
        return any(each.kind == "full" for each in self._present(moment))

    def apply(self, moment: Moment, *kinds: Kind) -> None:
        """Note that the faults of these kinds that hold at a moment take effect."""
        self.applied.update(each for each in self._present(moment) if each.kind in kinds)

    def apply_move(self, kind: Literal["join", "leave"]) -> None:
        """Note that the phone has joined late, or left."""
        self.applied.update(each for each in self.faults if each.kind == kind)

    def take_applied(self) -> set[Fault]:
        """The faults that have taken effect since the last call."""
        taken = set(self.applied)
        self.applied.clear()
        return taken

    def _present(self, moment: Moment) -> list[Fault]:
        return [each for each in self.faults if each.holds(moment)]


@dataclass(frozen=True)
class FaultSchedule:
    """The faults of a run, in the order in which they begin.

    As text, each line is one fault in JSON. Empty lines, and those that begin with #, are ignored.

    >>> schedule = FaultSchedule.from_text('{"day": 0, "step": 9, "kind": "crash", "target": "keys"}')
    >>> schedule.of_phone(3).reaches("keys", Moment(0, 9))
    False
    >>> schedule.check(phones=10, days=1)
    """

    faults: tuple[Fault, ...] = ()
    places: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The line from which each fault was read, for errors; its number unless given."""

    def __post_init__(self) -> None:
        places = self.places or tuple(f"fault {number}" for number in range(1, len(self.faults) + 1))
        pairs = sorted(zip(self.faults, places, strict=True), key=lambda pair: pair[0].moment)
        object.__setattr__(self, "faults", tuple(fault for fault, _ in pairs))
        object.__setattr__(self, "places", tuple(place for _, place in pairs))

    def __len__(self) -> int:
        return len(self.faults)

    @classmethod
    def from_text(cls, text: str, name: str = "faults") -> Self:
        """Read the lines of a schedule.

        Args:
            text: The lines.
            name: Of the file, for errors.

        Raises:
            ValueError: A line is no fault; the sentence names the line.
        """
        faults, places = [], []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            places.append(f"{name}:{number}")
            try:
                faults.append(Fault.from_json(line))
            except ValueError as error:
                raise ValueError(f"{name}:{number}: {error}") from error
        return cls(tuple(faults), tuple(places))

    def to_text(self) -> str:
        """The lines of the schedule."""
        return "".join(f"{each.to_json()}\n" for each in self.faults)

    def joined(self, faults: Iterable[Fault]) -> FaultSchedule:
        """This schedule with further faults."""
        return FaultSchedule((*self.faults, *faults))

    def check(self, *, phones: int, days: int, workers: int = 0, aggregation_servers: int = 1) -> None:
        """Refuse a fault of a phone, a day, a worker or an aggregation server that the run does not have.

        Args:
            phones: The number of phones.
            days: The number of days.
            workers: The number of workers that may crash.
            aggregation_servers: The number of aggregation servers.
        """
        moves: dict[tuple[str, int], str] = {}
        for each, place in zip(self.faults, self.places, strict=True):
            if each.day >= days:
                raise ValueError(f"{place}: the run has days 0 to {days - 1}: got day {each.day}")
            if each.phones and each.phones[-1] >= phones:
                raise ValueError(f"{place}: the run has phones 0 to {phones - 1}: got {each.target!r}")
            if each.worker is not None and each.worker >= workers:
                raise ValueError(f"{place}: the run has workers 0 to {workers - 1}: got {each.target!r}")
            if (each.aggregation_server or 0) >= aggregation_servers:
                raise ValueError(f"{place}: the run has {aggregation_servers} aggregation servers: got {each.target!r}")
            if each.kind in {"join", "leave"}:
                for phone in each.phones:
                    earlier = moves.setdefault((each.kind, phone), place)
                    if earlier != place:
                        raise ValueError(f"{place}: phone {phone} can {each.kind} once, and does in {earlier}")
                    if each.kind == "join" and ("leave", phone) in moves:
                        raise ValueError(f"{place}: phone {phone} joins after it leaves")

    def of_phone(self, number: int, aggregation_servers: int = 1) -> PhoneFaults:
        """The faults that concern one phone, which calls one of the aggregation servers."""
        other = {*range(aggregation_servers)} - {number % aggregation_servers}
        outages = tuple(each for each in self._outages if each.aggregation_server not in other)
        own, shared = self._by_phone.get(number, ()), self._shared
        faults = [each for each in shared if number in each.phones]
        return PhoneFaults(tuple(sorted([*own, *faults], key=lambda each: each.moment)), outages)

    def at(self, moment: Moment) -> tuple[Fault, ...]:
        """The faults of processes that begin at a moment, in order."""
        return self._of_processes.get(moment, ())

    def runs(self, server: Server, moment: Moment, number: int = 0) -> bool:
        """Whether a server runs, but for a crash after which it restarts at once; aggregation servers have numbers."""
        outages = [each for each in self._outages if each.aggregation_server in {None, number}]
        return not any(_is_down(each, server, moment) for each in outages)

    @property
    def days_of_processes(self) -> set[int]:
        """The days on which a fault of a process begins or lasts."""
        return {
            day
            for each in self.faults
            if each.kind in _OF_PROCESSES and not each.phones
            for day in range(each.day, each.end.day + 1)
        }

    @cached_property
    def _by_phone(self) -> dict[int, list[Fault]]:
        found: dict[int, list[Fault]] = defaultdict(list)
        for each in self.faults:
            if len(each.phones) == 1:
                found[each.phones[0]].append(each)
        return dict(found)

    @cached_property
    def _shared(self) -> tuple[Fault, ...]:
        return tuple(each for each in self.faults if len(each.phones) > 1)

    @cached_property
    def _outages(self) -> tuple[Fault, ...]:
        return tuple(each for each in self.faults if each.kind == "crash" and each.worker is None and each.steps)

    @cached_property
    def _of_processes(self) -> dict[Moment, tuple[Fault, ...]]:
        found: dict[Moment, tuple[Fault, ...]] = defaultdict(tuple)
        for each in self.faults:
            if each.kind in _OF_PROCESSES and not each.phones:
                found[each.moment] += (each,)
        return dict(found)


def _is_down(crash: Fault, server: Server, moment: Moment) -> bool:
    """Whether a server is down after a crash; it starts again before a count, unless it crashes in the count."""
    target = crash.target if crash.aggregation_server is None else "aggregation"
    return target == server and crash.holds(moment) and (crash.phase is not None or not moment.phase)
