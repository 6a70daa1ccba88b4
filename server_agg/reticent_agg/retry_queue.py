"""Items that have failed wait before they are tried again, each for itself, longer and longer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from reticent.retry import Backoff

__all__ = ["RetryQueue"]

Item = TypeVar("Item", bound=Hashable)


class _Pause(NamedTuple):
    until: float
    failures: int


class RetryQueue(Generic[Item]):
    """The times at which to retry items. An item that fails keeps no other waiting.

    >>> queue = RetryQueue[str]()
    >>> queue.failed("a", 5.0, Backoff(first=0.1, limit=30.0), retry_after=2.0)
    2.0
    >>> queue.due(["a", "b"], 5.0), queue.due(["a", "b"], 7.0)
    (['b'], ['b', 'a'])
    """

    def __init__(self) -> None:
        self._pauses: dict[Item, _Pause] = {}

    def __contains__(self, item: Item) -> bool:
        """Whether an item has failed before."""
        return item in self._pauses

    def due(self, items: Iterable[Item], now: float) -> list[Item]:
        """The items to try now, first those that have failed least; all other items are forgotten."""
        found = list(items)
        self._pauses = {item: self._pauses[item] for item in found if item in self._pauses}
        due = (item for item in found if self._pause(item).until <= now)
        return sorted(due, key=lambda item: self._pause(item).failures)

    def failed(self, item: Item, now: float, backoff: Backoff, retry_after: float | None = None) -> float:
        """An attempt has failed; returns the seconds until the next one, as `Backoff.delay` computes them."""
        failures = self._pause(item).failures + 1
        seconds = backoff.delay(failures, retry_after)
        self._pauses[item] = _Pause(now + seconds, failures)
        return seconds

    def forget(self, item: Item) -> None:
        """The item has succeeded, or is wanted at once."""
        self._pauses.pop(item, None)

    def next_due(self, now: float, after: float = float("-inf")) -> float | None:
        """The seconds until an item is due whose delay ends after this time; None if there is none."""
        ends = [each.until for each in self._pauses.values() if each.until > after]
        return max(0.0, min(ends) - now) if ends else None

    def _pause(self, item: Item) -> _Pause:
        return self._pauses.get(item, _Pause(float("-inf"), 0))
