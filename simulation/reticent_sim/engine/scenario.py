"""A scenario: everything that a simulation depends on. The same scenario gives the same trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from reticent.privacy import COST_RANGES, Cost, QueryLimits
from reticent.storage.documents import parse_toml
from reticent_client import Participation
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.faults import STEPS, FaultSchedule, absences, read_intervals, sample
from reticent_sim.engine.malice import assign
from reticent_sim.world.world import World

__all__ = ["NO_CHECK", "PhoneSettings", "Scenario"]

MOST_PHONES = 1_000_000
MOST_DAYS = 366
NO_CHECK = "none"
"""The check of phones without a mask."""

KeyBits = Literal[1024, 2048, 3072]


@dataclass(frozen=True)
class PhoneSettings:
    """The settings that all phones of a run share.

    Args:
        seed: The seed of the run.
        participation: What each user allows.
        budget: What each user spends.
    """

    seed: int
    participation: Participation
    budget: Cost


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A simulation of phones, their users and the servers.

    Args:
        phones: The number of phones.
        days: The number of days.
        seed: The seed of the world and of all randomness.
        check: The check of all masks; "none" for phones that release everything.
        compare: Checks that are applied to the same days of some phones, for comparison.
        delta: The most by which a mask lets the belief in a sensitive context rise.
        ad_delta: The most by which a request for an ad lets the service's belief in a sensitive search rise.
        routines: The number of different habits. People with the same routine share a policy.
        ads: Whether apps show ads. Their click-through rates are estimated at the end of each day.
        rates_epsilon: Epsilon of each estimate of rates.
        rates_delta: Delta of each estimate of rates.
        entries: The most views of a phone that count in an estimate.
        rates_cohorts: The cohorts of each estimate of rates.
        counts: The number of counts, at the ends of the last days.
        counters: The number of counters of each count.
        epsilon: Epsilon of each count.
        count_delta: Delta of each count.
        cohorts: The cohorts of each count; as few as tolerate the malicious phones unless given.
        absent: The probability that a phone is absent in a phase.
        malicious: The share of phones that are malicious, of all kinds.
        attacks: The number of malicious phones by their kind, instead of a share.
        fault_rate: The mean number of random faults per day.
        faults: A file with a schedule of faults, in addition.
        intervals: A CSV file with the times at which each phone is on: phone,on,off.
        key_bits: The length of the Paillier keys.
    """

    phones: int = 100
    days: int = 2
    seed: int = 1
    check: str = "adaptive"
    compare: tuple[str, ...] = ()
    delta: float = 0.1
    ad_delta: float = 0.25
    routines: int = 12
    ads: bool = True
    rates_epsilon: float = 4.0
    rates_delta: float = 1e-5
    entries: int = 4
    rates_cohorts: int = 1
    counts: int = 1
    counters: int = 64
    epsilon: float = 1.0
    count_delta: float = 1e-6
    cohorts: int | None = None
    absent: float = 0.1
    malicious: float = 0.0
    attacks: dict[str, int] = field(default_factory=dict)
    fault_rate: float = 0.0
    faults: Path | None = None
    intervals: Path | None = None
    key_bits: KeyBits = 1024

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{name} must be a whole number from {low} to {high:,}: got {value!r}")
        self._check_shares()
        self._check_numbers()

    def _check_shares(self) -> None:
        for name in (self.check, *self.compare):
            if name != NO_CHECK and name not in CHECKS:
                raise ValueError(f"a check is one of {', '.join((*CHECKS, NO_CHECK))}: got {name!r}")
        for name in ("delta", "ad_delta"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in (0, 1]: got {getattr(self, name)!r}")
        for name in ("absent", "malicious"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), as a share of the phones: got {getattr(self, name)!r}")
        for name, limits in _COSTS.items():
            least, most = COST_RANGES[limits]
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must lie in [{least:g}, {most:g}]: got {getattr(self, name)!r}")
        if not (self.fault_rate >= 0 and math.isfinite(self.fault_rate)):
            raise ValueError(f"fault_rate must be at least 0: got {self.fault_rate!r}")

    def _check_numbers(self) -> None:
        if self.key_bits not in get_args(KeyBits):
            raise ValueError(f"key_bits must be one of {', '.join(map(str, get_args(KeyBits)))}: got {self.key_bits!r}")
        if self.cohorts is not None and not 1 <= self.cohorts <= self.phones:
            raise ValueError(f"cohorts must lie between 1 and the number of phones: got {self.cohorts!r}")
        if self.malicious and self.attacks:
            raise ValueError("state either the share of malicious phones or their numbers by kind, not both")
        if 2 * len(self.malice) > self.phones:
            raise ValueError(f"at most half of the {self.phones} phones may be malicious: got {len(self.malice)}")
        if self.counts > self.days:
            raise ValueError(f"there is at most one count a day: got {self.counts} counts in {self.days} days")

    @classmethod
    def load(cls, path: Path) -> Scenario:
        """Read a scenario from a TOML file, with the names of the arguments.

        Raises:
            ValueError: The file holds no scenario.
        """
        try:
            content = parse_toml(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no scenario: {error}") from error
        try:
            return cls.of(content, path.parent)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def of(cls, content: Mapping[str, Any], folder: Path = Path()) -> Scenario:
        """A scenario from plain data. Paths are relative to the folder."""
        names = {each.name for each in fields(cls)}
        if unknown := sorted(content.keys() - names):
            raise ValueError(f"a scenario has the keys {', '.join(sorted(names))}: got {', '.join(unknown)}")
        values = dict(content)
        for name in ("faults", "intervals"):
            if values.get(name) is not None:
                values[name] = folder / str(values[name])
        if "compare" in values:
            values["compare"] = tuple(values["compare"])
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The scenario as plain data."""
        paths = {name: None if (path := getattr(self, name)) is None else str(path) for name in ("faults", "intervals")}
        return asdict(self) | paths | {"compare": list(self.compare), "attacks": dict(sorted(self.attacks.items()))}

    def changed(self, **changes: Any) -> Scenario:
        """The scenario with other values."""
        return replace(self, **changes)

    @property
    def world(self) -> World:
        """The people."""
        return World(self.seed, self.phones, routines=self.routines)

    @property
    def phone_settings(self) -> PhoneSettings:
        """The settings that all phones share. The budget suffices for all counts and estimates."""
        estimates = self.days * self.ads
        budget = Cost(
            self.counts * self.epsilon + estimates * self.rates_epsilon,
            self.counts * self.count_delta + estimates * self.rates_delta,
        )
        return PhoneSettings(self.seed, Participation(min_honest=self.min_honest), budget)

    @property
    def malice(self) -> dict[int, str]:
        """The malicious phones, with their kinds."""
        return assign(self.seed, self.phones, self.attacks or self.malicious)

    def schedule(self) -> FaultSchedule:
        """The faults: of the file, random ones, and the absences of the intervals.

        Raises:
            ValueError: A file holds something else, or a fault is of no phone or day of the scenario.
        """
        schedule = FaultSchedule()
        if self.faults is not None:
            schedule = FaultSchedule.from_text(self.faults.read_text(encoding="utf-8"), str(self.faults))
        if self.fault_rate:
            counts = [(day, STEPS - 1) for day in (range(self.days) if self.ads else self.count_days)]
            number = round(self.fault_rate * self.days)
            schedule = schedule.joined(
                sample(self.seed, phones=self.phones, days=self.days, faults=number, counts=counts).faults
            )
        if self.intervals is not None:
            intervals = read_intervals(self.intervals.read_text(encoding="utf-8"), str(self.intervals))
            schedule = schedule.joined(absences(intervals, phones=self.phones, days=self.days))
        return schedule

    @property
    def min_honest(self) -> int:
        """The fewest honest contributions that are decrypted: fewer than by default if there are few phones."""
        return max(2, min(QueryLimits.min_honest, self.phones // (2 * max(self.cohorts or 1, self.rates_cohorts))))

    @property
    def count_days(self) -> range:
        """The days at whose ends there is a count."""
        return range(self.days - self.counts, self.days)


_RANGES = {
    "phones": (10, MOST_PHONES),
    "days": (1, MOST_DAYS),
    "routines": (1, 10_000),
    "entries": (1, 100),
    "rates_cohorts": (1, 1000),
    "counts": (0, MOST_DAYS),
    "counters": (1, 64),
    "seed": (0, 2**63 - 1),
}
_COSTS = {"epsilon": "epsilon", "count_delta": "delta", "rates_epsilon": "epsilon", "rates_delta": "delta"}
