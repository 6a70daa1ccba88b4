"""The user's settings for ads, as data: from a TOML file."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from reticent.storage.documents import parse_toml

__all__ = ["LEAD", "AdSettings"]

LEAD = 0.1
"""Seconds before a reply leaves in which the phone chooses and stores what it is."""

MAX_REPLY_AFTER = 5.0
MAX_ADS = 100
MAX_CACHE = 366 * 86400.0
MAX_KEEP = 36_600  # a hundred years
_QUIET = re.compile(r"((?:[01]\d|2[0-3]):[0-5]\d)-((?:[01]\d|2[0-3]):[0-5]\d)")

Event = str | tuple[str, ...]
"""A node of the hierarchy in its text form, or the values of an exact context."""


@dataclass(frozen=True, kw_only=True)
class AdSettings:
    """The settings of a user for ads.

    Args:
        hierarchy: The file of the hierarchy of contexts, the same as the service's.
        service: The address of the ad service.
        authority: The certificate of the authority that certifies the service, in PEM. Without one, the connection has
            no TLS, so that the service is on this machine: `reticent ads serve` always needs one.
        apps: The apps that may show ads.
        sensitive: The sensitive contexts, and nodes whose contexts are sensitive.
        delta: The service's belief in a sensitive context rises at most by this with one request.
        prior: A file with the probability of each context before any request: CSV with the values of the attributes and
            `probability`. All contexts are equally likely unless given.
        level: The level to which each context is generalised, instead of a delta. What this discloses about sensitive
            contexts is reported.
        ads: The number of ads of a request.
        places: The value of the location, by the label of the mask.
        interest: The user's interests, joined by "+".
        default_query: The query, where an app sends none.
        max_per_day: Most ads of a local day.
        quiet: Local times of day without ads, such as 22:00-07:00.
        disliked_categories: Categories, with all below them, of which no ad is shown.
        disliked_ads: The ids of ads that are not shown.
        exact_under_mask: Choose by the actual context, whether the mask releases it or not. Then apps and the service
            may learn what the mask hides.
        reply_after: Seconds after which every reply leaves.
        cache_for: Seconds for which a reply of the service is used again.
        keep_days: Days after which entries of the log are deleted.
    """

    hierarchy: Path
    service: str
    authority: Path | None = None
    apps: tuple[str, ...] = ()
    sensitive: tuple[Event, ...] = ()
    delta: float | None = None
    prior: Path | None = None
    level: int | None = None
    ads: int = 10
    places: Mapping[str, str] = field(default_factory=dict)
    interest: str = ""
    default_query: str = ""
    max_per_day: int = 50
    quiet: tuple[tuple[dt.time, dt.time], ...] = ()
    disliked_categories: tuple[str, ...] = ()
    disliked_ads: tuple[str, ...] = ()
    exact_under_mask: bool = False
    reply_after: float = 1.0
    cache_for: float = 3600.0
    keep_days: int = 90

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if (self.level is None) == (self.delta is None):
            raise ValueError("the settings have either a level or a delta")
        if not self.sensitive and (self.delta is not None or self.prior is not None):
            raise ValueError("with a delta or a prior, the settings name at least one sensitive context")

    @classmethod
    def from_toml(cls, text: str, folder: Path = Path()) -> AdSettings:
        """The settings that a TOML file says, with the names of the arguments.

        Args:
            text: The content of the file.
            folder: The folder of the file: paths are relative to it.

        Raises:
            ValueError: The text is no settings.
        """
        try:
            content = parse_toml(text)
        except ValueError as error:
            raise ValueError(f"these are no settings for ads: {error}") from error
        names = {each.name for each in fields(cls)}
        if unknown := sorted(content.keys() - names):
            raise ValueError(f"settings for ads have the keys {', '.join(sorted(names))}: got {', '.join(unknown)}")
        if missing := sorted({"hierarchy", "service"} - content.keys()):
            raise ValueError(f"settings for ads name the {' and the '.join(missing)}")
        for name in _PATHS & content.keys():
            content[name] = folder / _text(name, content[name])
        return cls(**content)


def read_settings(path: Path) -> AdSettings:
    """Read settings from a TOML file.

    Raises:
        ValueError: The file holds no settings.
    """
    try:
        return AdSettings.from_toml(path.read_text(encoding="utf-8"), path.parent)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


_PATHS = {"hierarchy", "authority", "prior"}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is a text: got {value!r}")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} are a list of texts: got {value!r}")
    return tuple(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is true or false: got {value!r}")
    return value


def _whole(least: int, most: float = math.inf, *, optional: bool = False) -> Callable[[str, Any], int | None]:
    def check(name: str, value: Any) -> int | None:
        if optional and value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
            raise ValueError(f"{name} must be a whole number {bounds}: got {value!r}")
        return value

    return check


def _number(least: float, most: float = math.inf) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        number = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
        if not (number and least <= value <= most):
            bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
            raise ValueError(f"{name} must be a number {bounds}: got {value!r}")
        return float(value)

    return check


def _delta(name: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1):
        raise ValueError(f"{name} must be more than 0 and at most 1: got {value!r}")
    return value


def _sensitive(name: str, value: Any) -> tuple[Event, ...]:
    def event(each: Any) -> Event:
        match each:
            case str():
                return each
            case list() | tuple() if all(isinstance(part, str) for part in each):
                return tuple(each)
        raise ValueError(f"{name} are nodes as texts, and contexts as lists of texts: got {each!r}")

    if not isinstance(value, tuple | list):
        raise ValueError(f"{name} are a list: got {value!r}")
    return tuple(map(event, value))


def _places(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError(f"{name} are a table of labels with their locations: got {value!r}")
    return dict(value)


def _quiet(name: str, value: Any) -> tuple[tuple[dt.time, dt.time], ...]:
    def times(each: Any) -> tuple[dt.time, dt.time]:
        match each:
            case (dt.time(), dt.time()):
                return each[0], each[1]
            case str() if found := _QUIET.fullmatch(each):
                begins, ends = dt.time.fromisoformat(found[1]), dt.time.fromisoformat(found[2])
                if begins != ends:
                    return begins, ends
        raise ValueError(f"{name} are times of day such as 22:00-07:00: got {each!r}")

    if not isinstance(value, tuple | list):
        raise ValueError(f"{name} are a list: got {value!r}")
    return tuple(map(times, value))


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "service": _text,
    "apps": _texts,
    "sensitive": _sensitive,
    "delta": _delta,
    "level": _whole(0, optional=True),
    "ads": _whole(1, MAX_ADS),
    "places": _places,
    "interest": _text,
    "default_query": _text,
    "max_per_day": _whole(0),
    "quiet": _quiet,
    "disliked_categories": _texts,
    "disliked_ads": _texts,
    "exact_under_mask": _flag,
    "reply_after": _number(2 * LEAD, MAX_REPLY_AFTER),
    "cache_for": _number(0.0, MAX_CACHE),
    "keep_days": _whole(1, MAX_KEEP),
}
