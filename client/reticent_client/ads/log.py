"""The private log of ads in the phone's store: what was shown where, what was clicked, and why."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reticent.storage.documents import parse_json
from reticent.times import instant, milliseconds
from reticent_client.errors import FileError
from reticent_client.store import PhoneStore

__all__ = ["EXPLAINED", "LogEntry", "LoggedView", "PrivateLog"]

EXPLAINED = 100
"""The last requests of apps that are kept with their explanations; of earlier ones, only the ads that were shown."""

LAST_CLICK = "ads/last-click"  # the slot of the instant of the last report of a click


@dataclass(frozen=True)
class LoggedView:
    """An ad that was shown.

    Args:
        context: The values of the exact context; None where the location was not known.
        ad: The ad's id.
        clicked: Whether the user clicked on it.
    """

    context: tuple[str, ...] | None
    ad: str
    clicked: bool


@dataclass(frozen=True)
class LogEntry:
    """A request of an app for an ad, and its outcome.

    Args:
        at: The instant of the request.
        day: The local date.
        app: The app.
        position: The position of the mask's step; None without a mask.
        context: The values of the exact context; None where the location was not known.
        node: The generalised context, as text.
        ad: The id of the ad that was shown; None if none was.
        showing: The token by which the app reports a click.
        explanation: Why, as plain data; None for older entries.
        clicked: Whether the user clicked on it.
    """

    at: dt.datetime
    day: dt.date
    app: str
    position: int | None
    context: tuple[str, ...] | None
    node: str
    ad: str | None
    showing: str | None
    explanation: Mapping[str, Any] | None
    clicked: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry as plain data; the token is not in it."""
        return {
            "at": self.at.isoformat(),
            "app": self.app,
            "position": self.position,
            "context": None if self.context is None else list(self.context),
            "node": self.node,
            "ad": self.ad,
            "clicked": self.clicked,
        }


class PrivateLog:
    """The entries of a phone, in its store.

    Args:
        store: The phone's store.
    """

    def __init__(self, store: PhoneStore) -> None:
        self._store = store
        self._phone = store.phone

    def views_on(self, day: dt.date) -> dict[str, int]:
        """The number of times that each ad was shown on a local day."""
        with self._store.database.reading() as run:
            rows = run(
                "SELECT ad, count(*) FROM ads WHERE phone = ? AND day = ? AND ad IS NOT NULL GROUP BY ad",
                (self._phone, day.isoformat()),
            ).fetchall()
        return {str(ad): int(count) for ad, count in rows}

    def add(self, entry: LogEntry, keep: dt.timedelta) -> None:
        """Keep an entry, and delete what is older than some days."""
        with self._store.transaction() as run:
            self.forget(entry.at - keep, entry.day - keep)
            (last,) = run("SELECT max(number) FROM ads WHERE phone = ?", (self._phone,)).fetchone()
            number = 1 if last is None else last + 1
            run(
                "INSERT INTO ads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
                (
                    *(self._phone, number, milliseconds(entry.at), entry.day.isoformat(), entry.app, entry.position),
                    *(_values_to_text(entry.context), entry.node, entry.ad, entry.showing),
                    json.dumps(entry.explanation),
                ),
            )
            before = (self._phone, number - EXPLAINED)
            run("DELETE FROM ads WHERE phone = ? AND number = ? AND ad IS NULL", before)
            run("UPDATE ads SET explanation = NULL WHERE phone = ? AND number = ?", before)

    def forget(self, at: dt.datetime, day: dt.date) -> None:
        """Delete the entries before a local day, and the views that were chosen for queries before an instant."""
        with self._store.transaction() as run:
            run("DELETE FROM ads WHERE phone = ? AND day < ?", (self._phone, day.isoformat()))
            run("DELETE FROM chosen_views WHERE phone = ? AND at < ?", (self._phone, milliseconds(at)))

    def click(self, app: str, showing: str, now: dt.datetime) -> None:
        """Note a click on an ad that this app has shown; unknown and repeated ones change nothing.

        Something is written in every case, so that the time to the reply does not depend on what the log has.
        """
        with self._store.transaction() as run:
            self._store.slot(LAST_CLICK).write(now.isoformat())
            run("UPDATE ads SET clicked = 1 WHERE phone = ? AND showing = ? AND app = ?", (self._phone, showing, app))

    def views(self) -> list[LoggedView]:
        """All ads that were shown, the oldest first."""
        with self._store.database.reading() as run:
            rows = run(
                "SELECT context, ad, clicked FROM ads WHERE phone = ? AND ad IS NOT NULL ORDER BY number",
                (self._phone,),
            ).fetchall()
        return [LoggedView(_values_of_text(context), ad, bool(clicked)) for context, ad, clicked in rows]

    def last(self, count: int) -> list[LogEntry]:
        """The last entries, the newest first."""
        with self._store.database.reading() as run:
            rows = run(
                "SELECT at, day, app, position, context, node, ad, showing, explanation, clicked FROM ads "
                "WHERE phone = ? ORDER BY number DESC LIMIT ?",
                (self._phone, count),
            ).fetchall()
        return [_entry(row) for row in rows]

    def chosen(
        self,
        account: str,
        most: int,
        now: dt.datetime,
        rng: np.random.Generator,
        counts: Callable[[LoggedView], bool] = lambda _: True,
    ) -> list[LoggedView]:
        """At most so many random views for a sequence of queries: chosen once, by the first of its queries.

        The choice is uniform and on disk when this returns. What is shown or clicked later never enters.

        Args:
            account: The account of the sequence in the ledger.
            most: The most views of one user.
            now: The present.
            rng: A secure generator.
            counts: Whether a view may be chosen.
        """
        with self._store.transaction() as run:
            key = (self._phone, account)
            row = run("SELECT views FROM chosen_views WHERE phone = ? AND account = ?", key).fetchone()
            if row is not None:
                return _views_of_text(row[0])
            views = [*filter(counts, self.views())]
            picked = rng.permutation(len(views))[:most]
            chosen = [views[number] for number in sorted(picked)]
            run("INSERT INTO chosen_views VALUES (?, ?, ?, ?)", (*key, milliseconds(now), _views_to_text(chosen)))
        return chosen


def _values_to_text(values: Sequence[str] | None) -> str | None:
    return None if values is None else json.dumps(values)


def _values_of_text(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(_parsed(text))


def _views_to_text(views: Sequence[LoggedView]) -> str:
    return json.dumps([[view.context, view.ad, view.clicked] for view in views])


def _views_of_text(text: str) -> list[LoggedView]:
    return [LoggedView(None if values is None else tuple(values), ad, clicked) for values, ad, clicked in _parsed(text)]


def _entry(row: tuple[Any, ...]) -> LogEntry:
    at, day, app, position, context, node, ad, showing, explanation, clicked = row
    return LogEntry(
        instant(at),
        dt.date.fromisoformat(day),
        app,
        position,
        _values_of_text(context),
        node,
        ad,
        showing,
        None if explanation is None else _parsed(explanation),
        bool(clicked),
    )


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise FileError(f"the store is damaged: its log of ads cannot be read ({error})") from error
