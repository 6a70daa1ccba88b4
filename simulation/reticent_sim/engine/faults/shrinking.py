"""The few faults that matter: a failing schedule reduced by delta debugging, and then fault by fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reticent_sim.engine.faults.fault import Fault, phones_target
from reticent_sim.engine.faults.schedule import FaultSchedule

__all__ = ["ShrinkProgress", "shrink"]

MAX_RUNS = 200


@dataclass(frozen=True)
class ShrinkProgress:
    """The progress of a reduction.

    Args:
        runs: The runs so far.
        max_runs: The most runs.
        faults: The faults of the smallest schedule that fails.
    """

    runs: int
    max_runs: int
    faults: int


def shrink(
    schedule: FaultSchedule,
    fails: Callable[[FaultSchedule], bool],
    *,
    max_runs: int = MAX_RUNS,
    on_progress: Callable[[ShrinkProgress], None] | None = None,
) -> FaultSchedule:
    """A small part of a schedule, with simpler faults, for which a run still fails.

    Without any of its faults a run does not fail any more, if there were enough runs to find that out.

    Args:
        schedule: One for which a run fails.
        fails: Whether a run with a schedule fails. Each schedule is tried once.
        max_runs: The most runs. After them, the smallest schedule so far is returned.
        on_progress: Called after each run.

    Raises:
        ValueError: The run does not fail with the whole schedule.
    """
    reduction = _Reduction(schedule.faults, fails, max_runs, on_progress)
    if not reduction.fails(schedule.faults):
        raise ValueError("the run does not fail with this schedule: there is nothing to reduce")
    reduction.drop()
    if reduction.simplify():
        reduction.drop()
    return FaultSchedule(reduction.smallest)


class _Reduction:
    def __init__(
        self,
        faults: Sequence[Fault],
        fails: Callable[[FaultSchedule], bool],
        max_runs: int,
        on_progress: Callable[[ShrinkProgress], None] | None,
    ) -> None:
        self.smallest = tuple(faults)
        """The smallest schedule so far that fails."""
        self._fails = fails
        self._max_runs = max_runs
        self._on_progress = on_progress
        self._known: dict[str, bool] = {}

    def fails(self, faults: Sequence[Fault]) -> bool:
        """Whether a run fails with these faults; False when there are no runs left."""
        schedule = FaultSchedule(tuple(faults))
        name = schedule.to_text()
        if name not in self._known:
            if len(self._known) >= self._max_runs:
                return False
            self._known[name] = self._fails(schedule)
            if self._known[name]:
                self.smallest = schedule.faults
            if self._on_progress is not None:
                self._on_progress(ShrinkProgress(len(self._known), self._max_runs, len(self.smallest)))
        return self._known[name]

    def drop(self) -> None:
        """Leave out faults (Zeller's ddmin): halves first, then smaller and smaller parts."""
        parts = 2
        if self.smallest and self.fails(()):
            return
        while len(self.smallest) > 1:
            size = -(-len(self.smallest) // parts)
            kept = self._smaller(size)
            if kept is not None:
                parts = max(2, min(parts - 1, len(kept)))
            elif size == 1:
                return
            else:
                parts = min(2 * parts, len(self.smallest))

    def _smaller(self, size: int) -> Sequence[Fault] | None:
        """A part of this size that fails alone, or what is left without it; None if no such schedule fails."""
        faults = self.smallest
        starts = range(0, len(faults), size)
        for rest in (False, True):
            for start in starts:
                part = faults[start : start + size]
                kept = faults[:start] + faults[start + size :] if rest else part
                if kept and len(kept) < len(faults) and self.fails(kept):
                    return kept
        return None

    def simplify(self) -> bool:
        """Make each fault shorter and smaller as long as a run fails; returns whether any became simpler."""
        before = self.smallest
        place = 0
        while place < len(self.smallest):
            faults = self.smallest
            if not any(
                self.fails((*faults[:place], simpler, *faults[place + 1 :])) for simpler in _simpler(faults[place])
            ):
                place += 1
        return self.smallest != before


def _simpler(fault: Fault) -> Iterator[Fault]:
    """The same fault for fewer phones, for less long, less often: the simplest first."""
    if len(fault.phones) > 1:
        first, last = fault.phones[0], fault.phones[-1]
        middle = (first + last) // 2
        for target in dict.fromkeys([(first, first), (last, last), (first, middle), (middle + 1, last)]):
            yield fault.changed(target=phones_target(*target))
    least = 0 if fault.kind == "crash" else 1
    for name, smallest in (("steps", least), ("times", 1), ("rounds", 1)):
        value = getattr(fault, name)
        for smaller in dict.fromkeys([smallest, value // 2, value - 1]):
            if smallest <= smaller < value:
                yield fault.changed(**{name: smaller})
    if abs(fault.seconds) > 1:
        yield fault.changed(seconds=int(fault.seconds / 2))
