"""Whose turn it is to be attempted: what has failed waits, each for itself, longer and longer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from reticent.retry import Backoff

__all__ = ["Turns"]

Name = TypeVar("Name", bound=Hashable)


class _Pause(NamedTuple):
    """Until when something that has failed is left alone."""

    until: float
    failures: int


class Turns(Generic[Name]):
    """Attempts at many things, of which none that fails keeps another waiting.

    >>> turns = Turns[str]()
    >>> turns.failed("a", 5.0, Backoff(first=0.1, limit=30.0))
    0.1
    >>> turns.due(["a", "b"], 5.0), turns.due(["a", "b"], 6.0)
    (['b'], ['b', 'a'])
    """

    def __init__(self) -> None:
        self._pauses: dict[Name, _Pause] = {}

    def __contains__(self, name: Name) -> bool:
        """Whether it has failed before."""
        return name in self._pauses

    def due(self, names: Iterable[Name], now: float) -> list[Name]:
        """Those that may be attempted now, first what has failed least; what is not among the names is forgotten."""
        found = list(names)
        self._pauses = {name: self._pauses[name] for name in found if name in self._pauses}
        due = (name for name in found if self._pause(name).until <= now)
        return sorted(due, key=lambda name: self._pause(name).failures)

    def failed(self, name: Name, now: float, backoff: Backoff) -> float:
        """An attempt has failed; the seconds until the next one."""
        failures = self._pause(name).failures + 1
        seconds = backoff.delay(failures)
        self._pauses[name] = _Pause(now + seconds, failures)
        return seconds

    def forget(self, name: Name) -> None:
        """Whether it has failed no longer matters."""
        self._pauses.pop(name, None)

    def left(self, now: float) -> float | None:
        """The seconds until something that has failed is due; None where nothing has."""
        return max(0.0, min(each.until for each in self._pauses.values()) - now) if self._pauses else None

    def _pause(self, name: Name) -> _Pause:
        return self._pauses.get(name, _Pause(float("-inf"), 0))
