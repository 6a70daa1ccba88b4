"""The samples of an experiment about ads: worlds from a seed, or parts of the tests of one log of check-ins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from reticent.randomness import seeded
from reticent_sim.experiments.ads.serving import AdTrial
from reticent_sim.world.ads import ADS, PEOPLE, ad_world
from reticent_sim.world.checkins import read_checkins

QUICK_PEOPLE = 2_000
WORLDS, QUICK_WORLDS = 8, 6
TESTS, QUICK_TESTS = 1_000, 200


@dataclass(frozen=True)
class SampleSettings:
    """The data and the options of an experiment about ads."""

    seed: int = 1
    people: int | None = None
    """The users of each world, instead of the number that suits the experiment."""
    quick: bool = False
    data: Path | None = None
    """A folder of check-ins; simulated worlds if None."""
    workers: int | None = None
    """The number of processes, by default one for each processor."""

    @property
    def samples(self) -> int:
        """The number of samples."""
        return QUICK_WORLDS if self.quick else WORLDS

    @property
    def source(self) -> str:
        """The kind of data."""
        return "simulated worlds" if self.data is None else f"{self.data.name}, whose tests are split"


class Sample(NamedTuple):
    """One world, or a part of the tests of a log: any process makes the same from it.

    Args:
        settings: The data and the options.
        number: From 0 on.
    """

    settings: SampleSettings
    number: int

    def trial(self, people: int | None = None, ads: int = ADS) -> AdTrial:
        """The data, with random tests.

        Args:
            people: The users of a world, unless the settings have a number.
            ads: The ads of a world.
        """
        settings, most = self.settings, QUICK_TESTS if self.settings.quick else TESTS
        if settings.data is not None:
            data = read_checkins(settings.data)
            order = seeded(settings.seed, "tests").permutation(len(data.tests))
            size = min(most, len(order) // settings.samples)
            return AdTrial(data, order[self.number * size :][:size])
        users = settings.people or people or (QUICK_PEOPLE if settings.quick else PEOPLE)
        data = ad_world(f"{settings.seed}/{self.number}", users, ads)
        return AdTrial(data, seeded(settings.seed, "tests", self.number).permutation(len(data.tests))[:most])
