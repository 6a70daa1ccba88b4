"""The policies of a run: one for each check, routine and kind of day, in files that all workers read."""

from __future__ import annotations

from pathlib import Path

from reticent_client import MarkovChain, Policy, Schedule
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.times import STEPS
from reticent_sim.world.world import World

__all__ = ["KINDS", "LEARNED_DAYS", "Policies", "kind_of"]

LEARNED_DAYS = 84
"""The days from which the chain of a routine is learned."""
KINDS = ("weekday", "weekend")


def kind_of(day: int) -> str:
    """The kind of a day; day 0 is a Monday."""
    return KINDS[day % 7 >= 5]


class Policies:
    """Policies in a folder.

    Args:
        folder: The folder.
        world: The people.
        delta: The bound of all private checks.
    """

    def __init__(self, folder: Path, world: World, delta: float) -> None:
        self._folder = folder
        self._world = world
        self._delta = delta
        self._loaded: dict[tuple[str, int], Schedule] = {}
        self._chains: dict[tuple[int, str], MarkovChain] = {}

    def compute(self, check: str, routine: int) -> None:
        """Compute the policies of a routine, and store them."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            chain = self.chain(routine, kind)
            sensitive = self._world.routine(routine).sensitive
            CHECKS[check].policy(chain, sensitive, self._delta).save(self._path(check, routine, kind))

    def chain(self, routine: int, kind: str) -> MarkovChain:
        """The habits of a routine on days of a kind."""
        if (routine, kind) not in self._chains:
            people = self._world.routine(routine)
            days = people.days(LEARNED_DAYS)
            labels = {UNKNOWN if label is None else label for day in days for label in day} | people.sensitive
            own = [day for number, day in enumerate(days) if kind_of(number) == kind]
            self._chains[routine, kind] = MarkovChain.fit(own, contexts=sorted(labels), horizon=STEPS)
        return self._chains[routine, kind]

    def schedule(self, check: str, routine: int) -> Schedule:
        """The policies of a routine, which have been computed."""
        if (check, routine) not in self._loaded:
            self._loaded[check, routine] = Schedule(
                {kind: Policy.load(self._path(check, routine, kind)) for kind in KINDS}
            )
        return self._loaded[check, routine]

    def _path(self, check: str, routine: int, kind: str) -> Path:
        return self._folder / f"{check}-{routine}-{kind}.npz"
