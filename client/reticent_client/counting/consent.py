"""The user's consent, as data: which queries a phone contributes to, and what apps may report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any

from reticent.privacy import Bin, Cost, Query, QueryLimits, min_liars
from reticent.storage.documents import DocumentFormat, parse_toml
from reticent_client.errors import Declined, Reason

__all__ = ["AppReports", "Participation", "Situation"]

FORMAT = DocumentFormat("reticent-participation", 1, "a participation policy")


@dataclass(frozen=True)
class Situation:
    """The present state of the phone, as its app knows it."""

    charging: bool = False
    unmetered: bool = False


@dataclass(frozen=True, kw_only=True)
class AppReports:
    """The counters that an app may report.

    Args:
        counters: The counters, with the smallest and the largest number of each.
        max_reports_per_hour: Most reports in any hour.
    """

    counters: Mapping[str, tuple[float, float]]
    max_reports_per_hour: int = 60

    def __post_init__(self) -> None:
        if not isinstance(self.counters, Mapping):
            raise ValueError(f"counters are a table of names with their bounds: got {self.counters!r}")
        object.__setattr__(self, "counters", {name: _bounds(name, each) for name, each in self.counters.items()})
        _refuse_bad_count("max_reports_per_hour", self.max_reports_per_hour)
        if not self.max_reports_per_hour:
            raise ValueError("max_reports_per_hour must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Participation:
    """The policy of a user for counts. A limit that is None does not apply; the budget always does.

    The defaults of min_honest and min_liars_share are those of all parties: see `reticent.privacy.min_liars`.

    Args:
        max_epsilon: Largest epsilon of a query.
        max_delta: Largest delta of a query.
        max_budget_share: Largest share of the whole budget, in epsilon and in delta, that one query may take.
        queries: Patterns such as "gym-*" of which the query's name must fit one.
        counters: Patterns of which each counter's name must fit one.
        min_honest: Fewest honest contributions among which this phone hides: min_contributions less liars of a query.
        min_liars_share: Smallest share of min_contributions that a query must tolerate as liars, who add no noise or
            reveal it.
        only_charging: Contribute only while the phone is charging.
        only_unmetered: Contribute only over unmetered networks.
        max_queries_per_day: Most queries to contribute to in any 24 hours.
        max_bytes_per_day: Most bytes to send in any 24 hours.
        apps: What each app may report, by the app's name; no two apps report the same counter.

    >>> policy = Participation(max_epsilon=1.0, queries=("gym-*", "steps-*"))
    >>> Participation.from_text(policy.to_text()) == policy
    True
    """

    max_epsilon: float | None = None
    max_delta: float | None = None
    max_budget_share: float | None = None
    queries: tuple[str, ...] = ("*",)
    counters: tuple[str, ...] = ("*",)
    min_honest: int = QueryLimits.min_honest
    min_liars_share: float = QueryLimits.min_liars_share
    only_charging: bool = False
    only_unmetered: bool = False
    max_queries_per_day: int | None = None
    max_bytes_per_day: int | None = None
    apps: Mapping[str, AppReports] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("max_epsilon", "max_delta", "max_budget_share"):
            _refuse_bad_limit(name, getattr(self, name))
        for name in ("max_queries_per_day", "max_bytes_per_day"):
            _refuse_bad_count(name, getattr(self, name), optional=True)
        _refuse_bad_count("min_honest", self.min_honest)
        _refuse_bad_part("min_liars_share", self.min_liars_share)
        for name in ("only_charging", "only_unmetered"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is true or false: got {getattr(self, name)!r}")
        for name in ("queries", "counters"):
            object.__setattr__(self, name, _checked_patterns(name, getattr(self, name)))
        object.__setattr__(self, "apps", _checked_apps(self.apps))

    def check(self, query: Query, limit: Cost) -> None:
        """Decline a query that the user does not allow at any time.

        Args:
            query: The query.
            limit: The whole budget.

        Raises:
            Declined: It is not allowed.
        """
        if self.max_epsilon is not None and query.epsilon > self.max_epsilon:
            raise _over(Reason.EPSILON, query, "epsilon", query.epsilon, self.max_epsilon)
        if self.max_delta is not None and query.delta > self.max_delta:
            raise _over(Reason.DELTA, query, "delta", query.delta, self.max_delta)
        if self.max_budget_share is not None:
            share = max(_share(query.epsilon, limit.epsilon), _share(query.delta, limit.delta))
            if share > self.max_budget_share:
                raise _over(Reason.SHARE_OF_BUDGET, query, "a share of the budget", share, self.max_budget_share)
        counters = tuple(counter.name for counter in query.counters)
        for what, names, patterns in (("query", (query.id,), self.queries), ("counter", counters, self.counters)):
            name = _refused_name(names, patterns, are_counters=what == "counter")
            if name is not None:
                allowed = ", ".join(map(repr, patterns)) or "nothing"
                raise Declined(
                    Reason.NOT_ALLOWED, f"the {what} name {name!r} is not allowed: allowed are {allowed}", query.id
                )
        honest = query.min_contributions - query.liars
        if honest < self.min_honest:
            raise Declined(
                Reason.FEW_HONEST,
                f"{query.id!r} may be decrypted with {honest} honest phones, and {self.min_honest} are required",
                query.id,
            )

        liars = min_liars(query.min_contributions, self.min_liars_share)
        if query.liars < liars:
            raise Declined(
                Reason.FEW_LIARS,
                f"{query.id!r} tolerates {query.liars} liars among {query.min_contributions}, and {liars} are required",
                query.id,
            )

    def check_situation(self, situation: Situation, query: str | None = None) -> None:
        """Decline while the phone is not in the state that the user requires.

        Args:
            situation: The present state.
            query: The id of the query.

        Raises:
            Declined: The phone does not contribute now.
        """
        if self.only_charging and not situation.charging:
            raise Declined(Reason.NOT_CHARGING, query=query)
        if self.declines_network(situation):
            raise Declined(Reason.METERED, query=query)

    def declines_network(self, situation: Situation) -> bool:
        """Whether the phone is on a network over which it does not contribute."""
        return self.only_unmetered and not situation.unmetered

    def check_daily_limits(self, query: Query, size: int, *, queries: int, sent: int) -> None:
        """Decline a contribution that exceeds a daily limit.

        Args:
            query: The query.
            size: The bytes of the contribution.
            queries: Contributions of the last 24 hours.
            sent: The bytes of those.

        Raises:
            Declined: It exceeds one, for now or on any day.
        """
        if self.max_bytes_per_day is not None and size > self.max_bytes_per_day:
            raise _over(Reason.TOO_LARGE, query, "bytes", size, self.max_bytes_per_day)
        if self.max_queries_per_day is not None and queries >= self.max_queries_per_day:
            raise Declined(
                Reason.QUERIES_PER_DAY,
                f"{queries} contributions were made in the last 24 hours, and {self.max_queries_per_day} are allowed",
                query.id,
            )
        if self.max_bytes_per_day is not None and sent + size > self.max_bytes_per_day:
            raise Declined(
                Reason.BYTES_PER_DAY,
                f"{sent} bytes were sent in the last 24 hours, {query.id!r} takes {size}, and "
                f"{self.max_bytes_per_day} are allowed",
                query.id,
            )

    def to_text(self) -> str:
        """The policy as a JSON document of one line, from which `from_text` makes an equal one."""
        return self._text

    @cached_property
    def _text(self) -> str:
        return FORMAT.text(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Participation:
        """The policy that `to_text` wrote.

        Raises:
            ValueError: The text is no policy.
        """
        return cls._of(FORMAT.parse(text))

    @classmethod
    def from_toml(cls, text: str) -> Participation:
        """The policy that a TOML file says, with the names of the arguments.

        Raises:
            ValueError: The text is no policy.
        """
        try:
            content = parse_toml(text)
        except ValueError as error:
            raise ValueError(f"this is no policy: {error}") from error
        return cls._of(content)

    @classmethod
    def _of(cls, content: Any) -> Participation:
        if not isinstance(content, Mapping):
            raise ValueError(f"a policy is a table of names and values: got {content!r}")
        names = {each.name for each in fields(cls)}
        if unknown := sorted(map(str, content.keys() - names)):
            raise ValueError(f"a policy has the keys {', '.join(sorted(names))}: got {', '.join(unknown)}")
        return cls(**content)


@lru_cache(maxsize=16)
def _refused_name(names: tuple[str, ...], patterns: tuple[str, ...], *, are_counters: bool) -> str | None:
    """The first name that fits no pattern; the last ones are kept, because all phones of a query have them."""
    for name in names:
        found = Bin.of(name) if are_counters else None
        allowed_name = name if found is None else found.number  # the analyst chooses the edges of a bin
        if name not in patterns and not any(fnmatchcase(allowed_name, pattern) for pattern in patterns):
            return name
    return None


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.inf


def _over(reason: Reason, query: Query, what: str, value: float, allowed: float) -> Declined:
    return Declined(reason, f"{query.id!r} takes {what} of {value:g}, and {allowed:g} is allowed", query.id)


def _refuse_bad_limit(name: str, value: Any) -> None:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if value is not None and not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, or None: got {value!r}")


def _refuse_bad_part(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1: got {value!r}")


def _refuse_bad_count(name: str, value: Any, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be a whole number of at least 0: got {value!r}")


def _bounds(name: str, value: Any) -> tuple[float, float]:
    match value:
        case (int() | float() as low, int() | float() as high) if -math.inf < low <= high < math.inf:
            return low, high
    raise ValueError(f"the bounds of {name!r} are two numbers, the smaller one first: got {value!r}")


def _checked_apps(value: Any) -> dict[str, AppReports]:
    if not isinstance(value, Mapping):
        raise ValueError(f"apps are a table of names, with what each may report: got {value!r}")
    apps = {}
    reported: dict[str, str] = {}
    for app, limits in value.items():
        try:
            apps[app] = limits if isinstance(limits, AppReports) else AppReports(**limits)
        except TypeError as error:
            raise ValueError(f"the app {app!r} has counters and max_reports_per_hour: got {limits!r}") from error
        for name in apps[app].counters:
            if reported.setdefault(name, app) != app:
                raise ValueError(f"the counter {name!r} is reported by one app: got {reported[name]!r} and {app!r}")
    return apps


def _checked_patterns(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} are patterns, a list of texts: got {value!r}")
    return tuple(value)
