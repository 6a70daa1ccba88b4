"""Who may listen: the apps that the user has given a token."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass

from reticent_client.errors import ClientError, FileError
from reticent_client.store import Store

MAX_NAME = 64


class UnknownApp(ClientError):
    """There is no app of this name."""


@dataclass(frozen=True)
class App:
    """An app that the user has given a token."""

    name: str
    trusted: bool
    """Whether it is told every context, released or not."""
    digest: str
    """Of its token, which nobody keeps."""


class Apps:
    """The apps of a phone, in a place of its store: a change is seen by the running phone at its next step.

    A token is shown once, when it is given out. Whoever reads the store finds digests.

    >>> from reticent_client.serving.database import SqliteStore
    >>> apps = Apps(SqliteStore().place("apps"))
    >>> token = apps.add("weather")
    >>> apps.find(token).name, apps.find("guessed")
    ('weather', None)
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, name: str, *, trusted: bool = False) -> str:
        """Give an app a token, which is returned; its former one, if it had any, is void."""
        if not (0 < len(name) <= MAX_NAME and name.isprintable()):
            raise ValueError(f"an app's name is 1 to {MAX_NAME} printable characters: got {name!r}")
        token = secrets.token_urlsafe(32)
        others = [app for app in self.all() if app.name != name]
        self._write([*others, App(name, trusted, _digest(token))])
        return token

    def remove(self, name: str) -> None:
        """Take an app's token back.

        Raises:
            UnknownApp: There is no such app.
        """
        apps = self.all()
        left = [app for app in apps if app.name != name]
        if left == apps:
            known = ", ".join(repr(app.name) for app in apps) or "none"
            raise UnknownApp(f"there is no app {name!r}: known are {known}")
        self._write(left)

    def all(self) -> list[App]:
        """All apps, the oldest token first."""
        text = self._store.read()
        if text is None:
            return []
        try:
            return [App(**each) for each in json.loads(text)]
        except (TypeError, ValueError) as error:
            raise FileError("the list of apps is damaged") from error

    def find(self, token: str) -> App | None:
        """The app that a token was given to."""
        digest = _digest(token)
        return next((app for app in self.all() if hmac.compare_digest(app.digest, digest)), None)

    def _write(self, apps: list[App]) -> None:
        self._store.write(json.dumps([asdict(app) for app in apps]))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
