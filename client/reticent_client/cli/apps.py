"""`reticent phone apps`: which apps may connect to a phone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclopts import App, Parameter

from reticent.clock import SystemClock
from reticent.console.options import AsJson, in_json
from reticent_client.apps.tokens import Apps
from reticent_client.cli.stores import STORE, StoreFile, check_exists
from reticent_client.counting.reports import Reports
from reticent_client.store import PhoneStore

apps = App(name="apps", help="Manage the apps that may connect to a phone.", default_parameter=Parameter(negative=()))


@apps.command
def add(name: str, /, *, store: StoreFile = STORE, trusted: bool = False) -> None:
    """Give an app a new token, and print it. An earlier token of the app becomes invalid.

    Args:
        name: The app's name.
        store: The phone's store.
        trusted: Send the app every context, released or not. Nothing is promised about what it learns.
    """
    with _phone_of(store, new=True) as phone:
        sys.stdout.write(f"{Apps(phone).add(name, trusted=trusted)}\n")


@apps.command
def remove(name: str, /, *, store: StoreFile = STORE) -> None:
    """Revoke an app's token, and forget the counters that the app reported. The app's streams end at the next step.

    Args:
        name: The app's name.
        store: The phone's store.
    """
    with _phone_of(store) as phone:
        Apps(phone).remove(name)
        Reports(phone, SystemClock().now).forget(name)


@apps.command(name="list")
def list_apps(*, store: StoreFile = STORE, as_json: AsJson = False) -> None:
    """List the apps that have a token.

    Args:
        store: The phone's store.
        as_json: Print JSON.
    """
    with _phone_of(store) as phone:
        found = [{"name": each.name, "trusted": each.trusted} for each in Apps(phone).all()]
    if as_json:
        sys.stdout.write(in_json(found) + "\n")
    else:
        for each in found:
            sys.stdout.write(f"{each['name']}{' (trusted: receives every context)' if each['trusted'] else ''}\n")


@contextlib.contextmanager
def _phone_of(path: Path, *, new: bool = False) -> Iterator[PhoneStore]:
    if not new:
        check_exists(path)
    with contextlib.closing(PhoneStore(path)) as store:
        yield store
