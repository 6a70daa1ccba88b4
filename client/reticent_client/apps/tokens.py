"""The apps that the user has given a token."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from reticent.clock import SystemClock
from reticent.storage.documents import DocumentFormat
from reticent.times import Now
from reticent_client.apps.messages import RAW
from reticent_client.errors import FileError, UnknownApp
from reticent_client.store import PhoneStore

_log = logging.getLogger(__name__)

FORMAT = DocumentFormat("reticent-apps", 1, "a list of apps")
MAX_NAME = 64

APPS = "apps"  # the slot of the list


@dataclass(frozen=True)
class App:
    """An app that the user has given a token."""

    name: str
    trusted: bool
    """Whether it receives every context, released or not."""
    digest: str
    """The digest of its token; the token itself is not stored."""
    since: str | None = None
    """The time of issue, in UTC; None for an app of a phone in development, which may receive earlier steps."""


class Apps:
    """The apps of a phone, in its store: a change is seen by the running phone at its next step.

    A token is shown once, when it is issued. The store holds digests only. When the last trusted app loses its trust or
    its token, the contexts in the store are erased.

    Args:
        store: The phone's store.
        now: What time it is.

    >>> store = PhoneStore()
    >>> apps = Apps(store)
    >>> token = apps.add("weather")
    >>> apps.find(token).name, apps.find("guessed")
    ('weather', None)
    >>> store.close()
    """

    def __init__(self, store: PhoneStore, now: Now | None = None) -> None:
        self._store = store
        self._slot = store.slot(APPS)
        self._now = SystemClock().now if now is None else now

    def add(self, name: str, *, trusted: bool = False) -> str:
        """Issue a token to an app and return it; its earlier token becomes invalid."""
        if not (0 < len(name) <= MAX_NAME and name.isprintable()):
            raise ValueError(f"an app's name is 1 to {MAX_NAME} printable characters: got {name!r}")
        token = secrets.token_urlsafe(32)
        since = None if self._store.in_development else self._now().isoformat()
        app = App(name, trusted, _digest(token), since)
        self._change(lambda text: _text([*_without(_apps(text), name), app]))
        return token

    def remove(self, name: str) -> None:
        """Revoke an app's token.

        Raises:
            UnknownApp: There is no such app.
        """

        def removed(text: str | None) -> str:
            apps = _apps(text)
            left = _without(apps, name)
            if left == apps:
                known = ", ".join(repr(app.name) for app in apps) or "none"
                raise UnknownApp(f"there is no app {name!r}: known are {known}")
            return _text(left)

        self._change(removed)

    def all(self) -> list[App]:
        """All apps, the oldest token first."""
        return _apps(self._slot.read())

    def find(self, token: str) -> App | None:
        """The app with this token."""
        digest = _digest(token)
        return next((app for app in self.all() if hmac.compare_digest(app.digest, digest)), None)

    def forget_since(self) -> None:
        """Let all apps receive earlier steps too: in development, the phone's clock is another one."""
        self._slot.change(lambda text: _text([replace(app, since=None) for app in _apps(text)]))

    def _change(self, function: Callable[[str | None], str]) -> None:
        """Change the list, and erase the stream of trusted apps if there is none any more."""
        with self._store.transaction():
            self._slot.change(function)
            forgotten = not any(app.trusted for app in self.all()) and self._store.forget_stream(RAW)
        if forgotten and not self._store.database.erase_deleted():
            _log.warning("contexts that were not released are erased when another process closes %s", self._store.path)


def _apps(text: str | None) -> list[App]:
    if text is None:
        return []
    try:
        return [App(**each) for each in FORMAT.parse(text)["apps"]]
    except (TypeError, ValueError, KeyError) as error:
        raise FileError("the list of apps is damaged") from error


def _without(apps: list[App], name: str) -> list[App]:
    return [app for app in apps if app.name != name]


def _text(apps: list[App]) -> str:
    return FORMAT.text({"apps": [asdict(app) for app in apps]})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
