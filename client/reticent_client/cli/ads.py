"""`reticent phone ads`: which ads a phone has shown, why, and what the ad service can learn. Everything is local."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from reticent.clock import SystemClock
from reticent.console.options import AsJson, in_json
from reticent.console.text import printable
from reticent.storage.documents import parse_json
from reticent_client.ads import view
from reticent_client.ads.log import EXPLAINED, LogEntry, PrivateLog
from reticent_client.ads.runner import SUMMARY, AdRunner
from reticent_client.ads.settings import read_settings
from reticent_client.apps.messages import MASKED, Step, position
from reticent_client.cli.stores import STORE, StoreFile, check_exists
from reticent_client.mask.timetable import Timetable, time_zone
from reticent_client.store import PhoneStore

ads = App(
    name="ads",
    help="Show which ads a phone has shown, and why.",
    default_parameter=Parameter(negative=()),
)

LAST = 5
Count = Annotated[int, Parameter(validator=Number(gte=1))]


@ads.command
def explain(*, store: StoreFile = STORE, last: Count = LAST, as_json: AsJson = False) -> None:
    """Explain the last requests of apps for ads: what was sent, each rule that removed an ad, and what was shown.

    Args:
        store: The phone's store.
        last: The number of requests. The phone keeps explanations of the last 100.
        as_json: Print JSON.
    """
    with _open(store) as phone:
        entries = [each for each in PrivateLog(phone).last(min(last, EXPLAINED)) if each.explanation is not None]
        summary = _summary(phone)
    if as_json:
        explained = [{**each.to_json(), "explanation": each.explanation} for each in entries]
        sys.stdout.write(in_json({"summary": summary, "requests": explained}) + "\n")
    else:
        _print(view.explained(entries, summary))


@ads.command
def log(*, store: StoreFile = STORE, last: Count = 20, as_json: AsJson = False) -> None:
    """List the last ads, and the requests without one.

    Args:
        store: The phone's store.
        last: The number of entries.
        as_json: Print JSON.
    """
    with _open(store) as phone:
        entries = PrivateLog(phone).last(last)
    if as_json:
        sys.stdout.write(in_json([each.to_json() for each in entries]) + "\n")
    else:
        _print(view.logged(each) for each in entries)


@ads.command
def status(*, store: StoreFile = STORE, as_json: AsJson = False) -> None:
    """Show the settings, the disclosure that the user's cut allows, and the size of the log.

    Args:
        store: The phone's store.
        as_json: Print JSON.
    """
    with _open(store) as phone:
        summary, views = _summary(phone), PrivateLog(phone).views()
    shown = {"shown": len(views), "clicked": sum(each.clicked for each in views)}
    if as_json:
        sys.stdout.write(in_json({"summary": summary, **shown}) + "\n")
    else:
        _print(view.status(summary, **shown))


@ads.command(name="try")
def try_ad(
    settings: Path,
    query: str = "",
    /,
    *,
    store: StoreFile = STORE,
    label: str | None = None,
    zone: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Show which ad an app would be sent now, and why. Nothing is logged, and no limit is used up.

    The request to the ad service is made.

    Args:
        settings: The TOML file with the user's settings for ads.
        query: What the user searches for.
        store: The phone's store.
        label: A released context, instead of the one of the present step.
        zone: The user's time zone, such as Europe/Paris. The default is the machine's.
        as_json: Print JSON.
    """
    wanted, where = read_settings(settings), time_zone(zone)
    with _open(store) as phone:

        def located(instant: dt.datetime) -> tuple[int | None, str | None]:
            return (None, label) if label is not None else _released(phone, where, instant)

        runner = AdRunner(wanted, phone, SystemClock(), zone=where, located=located)
        entry = asyncio.run(_preview(runner, query))
    if as_json:
        found = {**entry.to_json(), "explanation": entry.explanation, "summary": runner.summary()}
        sys.stdout.write(in_json(found) + "\n")
    else:
        _print(view.explained([entry], runner.summary()))


async def _preview(runner: AdRunner, query: str) -> LogEntry:
    async with runner:
        return await runner.preview(query)


def _released(phone: PhoneStore, zone: dt.tzinfo, instant: dt.datetime) -> tuple[int | None, str | None]:
    """The present step of a phone, by its store, and the context that was released then."""
    for place, messages in reversed(phone.messages()):
        step = Step.decode(messages[MASKED])
        begun = Timetable(step.steps, zone).last(instant)
        if place == position(begun.date, begun.step):
            return place, step.context
    return None, None


def _summary(phone: PhoneStore) -> dict[str, Any] | None:
    text = phone.slot(SUMMARY).read()
    return None if text is None else parse_json(text)


def _print(lines: Iterator[str]) -> None:
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[PhoneStore]:
    check_exists(path)
    with contextlib.closing(PhoneStore(path)) as store:
        yield store
