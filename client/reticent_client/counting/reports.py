"""Counters that apps report, within what the user allows; contributions take them from here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from reticent.privacy import Query
from reticent.times import Now, instant, milliseconds
from reticent_client.counting.consent import Participation
from reticent_client.errors import CounterNotAllowed, CounterOutOfBounds, TooManyReports
from reticent_client.store import PhoneStore

__all__ = ["Reports"]

HOUR = dt.timedelta(hours=1)


class Reports:
    """The counters that apps have reported to a phone: of each name the last number.

    Args:
        store: The phone's store.
        now: What time it is.

    >>> reports = Reports(PhoneStore(), lambda: dt.datetime(2027, 3, 1, tzinfo=dt.UTC))
    >>> policy = Participation.from_toml('''
    ... [apps.fitness]
    ... counters = { visits = [0, 3] }
    ... ''')
    >>> reports.add("fitness", {"visits": 2}, policy)
    >>> reports.counters(policy)
    {'visits': 2.0}
    """

    def __init__(self, store: PhoneStore, now: Now) -> None:
        self._store = store
        self._now = now

    def add(self, app: str, counters: Mapping[str, float], policy: Participation) -> None:
        """Keep the numbers of one report, or none of them. What queries there are makes no difference.

        Args:
            app: The app.
            counters: Its numbers, by their names.
            policy: What the user allows.

        Raises:
            CounterNotAllowed: The app may not report a counter of a name.
            CounterOutOfBounds: A number is outside the bounds of its counter, or is none.
            TooManyReports: The app has made as many reports in the last hour as are allowed.
        """
        limits = policy.apps.get(app)
        for name, value in counters.items():
            if limits is None or name not in limits.counters:
                raise CounterNotAllowed(f"{app!r} may not report the counter {name!r}")
            low, high = limits.counters[name]
            if not low <= value <= high:  # nor if it is no number
                raise CounterOutOfBounds(f"{name!r} must lie between {low:g} and {high:g}: got {value:g}")
        if limits is None:
            raise CounterNotAllowed(f"{app!r} may not report counters")
        phone, now = self._store.phone, self._now()
        with self._store.transaction() as run:
            run("DELETE FROM reports WHERE phone = ? AND at NOT BETWEEN ? AND ?", (phone, *_last_hour(now)))
            rows = run("SELECT at FROM reports WHERE phone = ? AND app = ? ORDER BY at", (phone, app)).fetchall()
            if len(rows) >= limits.max_reports_per_hour:
                wait = instant(rows[-limits.max_reports_per_hour][0]) + HOUR - now
                raise TooManyReports(f"{app!r} may make {limits.max_reports_per_hour} reports an hour", wait)
            run("INSERT INTO reports VALUES (?, ?, ?)", (phone, app, milliseconds(now)))
            for name, value in counters.items():
                run("INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)", (phone, app, name, float(value)))

    def counters(self, policy: Participation) -> dict[str, float]:
        """The last number of each counter that the user still allows."""
        with self._store.database.reading() as run:
            rows = run("SELECT app, name, value FROM counters WHERE phone = ? ORDER BY name", (self._store.phone,))
            return {
                name: value for app, name, value in rows if app in policy.apps and name in policy.apps[app].counters
            }

    def forget(self, app: str) -> None:
        """Forget all numbers of an app. Its rate limit goes on."""
        with self._store.transaction() as run:
            run("DELETE FROM counters WHERE phone = ? AND app = ?", (self._store.phone, app))

    def for_query(self, _query: Query, policy: Participation) -> dict[str, float] | None:
        """The numbers for a query; None where the user lets no app report any."""
        return self.counters(policy) if policy.apps else None


def _last_hour(now: dt.datetime) -> tuple[int, int]:
    return milliseconds(now - HOUR) + 1, milliseconds(now)
