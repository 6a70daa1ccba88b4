"""A scenario: everything that a simulation depends on. The same scenario gives the same trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from reticent.privacy import COST_RANGES, Cost
from reticent.randomness import seeded
from reticent.storage.databases import is_address
from reticent.storage.documents import parse_toml
from reticent_client import Participation
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.faults import STEPS, FaultSchedule, absences, read_intervals, sample
from reticent_sim.engine.malice import assign
from reticent_sim.engine.tolerance import Tolerance, min_honest, tolerant_cohorts
from reticent_sim.world.world import World

__all__ = ["NO_CHECK", "PhoneSettings", "Scenario"]

MOST_PHONES = 1_000_000
MOST_DAYS = 366
MOST_FAULTS = 1000
"""The most random faults a day."""
MOST_SERVERS = 16
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
        check: The check of all masks; "none" for phones that release everything, and show no ads.
        compare: Checks that are applied to the same days of some phones, for comparison.
        delta: The most by which a mask lets the belief in a sensitive context rise.
        ad_delta: The most by which a request for an ad lets the service's belief in a sensitive search rise.
        routines: The number of different habits. People with the same routine share a policy.
        ads: Whether apps show ads. Their click-through rates are estimated at the end of each day.
        rates_epsilon: Epsilon of each estimate of rates.
        rates_delta: Delta of each estimate of rates.
        entries: The most views of a phone that count in an estimate.
        rates_cohorts: The cohorts of each estimate of rates; as few as tolerate the wild phones unless given.
        counts: The number of counts, at the ends of the last days.
        counters: The number of counters of each count.
        epsilon: Epsilon of each count.
        count_delta: Delta of each count.
        cohorts: The cohorts of each count; as few as tolerate the wild phones unless given.
        absent: The probability that a phone is absent in a phase.
        malicious: The share of phones that are malicious, of all kinds.
        attacks: The number of malicious phones by their kind, instead of a share.
        fault_rate: The mean number of random faults per day.
        faults: A file with a schedule of faults, in addition.
        intervals: A CSV file with the times at which each phone is on: phone,on,off.
        key_bits: The length of the Paillier keys.
        database: The address of an empty PostgreSQL database for the servers, such as postgresql://user@host/name.
            It keeps their data after the run. Without it, they use files.
        aggregation_servers: The number of aggregation servers, over which the phones are spread. More than one need a
            database.
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
    rates_cohorts: int | None = None
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
    database: str | None = None
    aggregation_servers: int = 1

    def __post_init__(self) -> None:
        for name in ("faults", "intervals"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str | Path):
                raise ValueError(f"{name} must be the path of a file: got {value!r}")
            object.__setattr__(self, name, None if value is None else Path(value))
        for name in _REALS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name} must be a number: got {value!r}")
        if not isinstance(self.ads, bool):
            raise ValueError(f"ads must be true or false: got {self.ads!r}")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is None and name == "rates_cohorts":
                continue
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
        if not 0 <= self.fault_rate <= MOST_FAULTS:
            raise ValueError(f"fault_rate must lie in [0, {MOST_FAULTS:,}]: got {self.fault_rate!r}")

    def _check_numbers(self) -> None:
        if self.key_bits not in get_args(KeyBits):
            raise ValueError(f"key_bits must be one of {', '.join(map(str, get_args(KeyBits)))}: got {self.key_bits!r}")
        if self.cohorts is not None and (type(self.cohorts) is not int or not 1 <= self.cohorts <= self.phones):
            raise ValueError(f"cohorts must lie between 1 and the number of phones: got {self.cohorts!r}")
        if self.malicious and self.attacks:
            raise ValueError("state either the share of malicious phones or their numbers by kind, not both")
        if 2 * len(self.malice) > self.phones:
            raise ValueError(f"at most half of the {self.phones} phones may be malicious: got {len(self.malice)}")
        if self.ads and self.check == NO_CHECK:
            raise ValueError("phones without a mask know no contexts and show no ads: state a check, or no ads")
        self._check_database()
        if self.counts > self.days:
            raise ValueError(f"there is at most one count a day: got counts = {self.counts}, days = {self.days}")

    def _check_database(self) -> None:
        if self.database is None:
            if self.aggregation_servers > 1:
                raise ValueError(f"{self.aggregation_servers} aggregation servers need a PostgreSQL database")
        elif not is_address(self.database):
            raise ValueError("database is no address of PostgreSQL, such as postgresql://user@host/name")

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """Read a scenario from a TOML file, with the names of the arguments.

        Raises:
            ValueError: The file holds no scenario.
        """
        path = Path(path)
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

    def is_absent(self, phone: int, query: str | None) -> bool:
        """Whether a phone is absent by chance while a query is open. Without a query, none is."""
        if query is None or not self.absent:
            return False
        return bool(seeded(self.seed, "absent", phone, query).random() < self.absent)

    @cached_property
    def tolerance(self) -> Tolerance:
        """The cohorts of a query for which the scenario states no number."""
        return tolerant_cohorts(self.phones, self.absent, self.malice)

    @property
    def min_honest(self) -> int:
        """The fewest honest contributions that are decrypted."""
        most = max(each or self.tolerance.cohorts for each in (self.cohorts, self.rates_cohorts))
        return min_honest(self.phones, most)

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
    "aggregation_servers": (1, MOST_SERVERS),
    "seed": (0, 2**63 - 1),
}
_REALS = tuple(each.name for each in fields(Scenario) if each.type == "float")
_COSTS = {"epsilon": "epsilon", "count_delta": "delta", "rates_epsilon": "epsilon", "rates_delta": "delta"}
