"""`reticent mask serve` and `reticent mask apps`: the phone as a process, and who may listen to it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import grpc
from cyclopts import App, Parameter

from reticent.clock import PacedClock, SystemClock, first_of
from reticent.console.options import AsJson, in_json
from reticent.console.process import open_many_files
from reticent.times import duration
from reticent_client.apps.broker import Broker
from reticent_client.apps.messages import Step
from reticent_client.apps.phone import APPS, HELD_DAYS, LEAD, Phone
from reticent_client.apps.tokens import Apps
from reticent_client.errors import FileError
from reticent_client.mask.days_file import read_days
from reticent_client.mask.policy import Policy
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.timetable import time_zone
from reticent_client.store import PhoneStore

ADDRESS = "unix:phone.sock"
STORE = Path("phone.db")

_STDIN = 0
_CHUNK = 65536
_UNREAD = 1000  # lines that wait for whoever reads standard output
_PATIENCE = 1.0  # seconds for them at the end
_LEAD_OF_REPLAYS = 20  # a step of a replay is decided this part of its length before it begins

apps = App(name="apps", help="Say which apps may listen to a phone.", default_parameter=Parameter(negative=()))

StoreFile = Annotated[Path, Parameter(name="--store")]


@dataclass(frozen=True)
class Replay:
    """Days that have been, told again on a faster clock."""

    contexts: dict[tuple[dt.date, int], str | None]
    horizon: int

    @property
    def first(self) -> dt.datetime:
        """A moment before the first day begins."""
        return _midnight(min(self.contexts)[0]) - dt.timedelta(days=1) / self.horizon / 2

    @property
    def days(self) -> int:
        """From the first day to the last."""
        return (max(self.contexts)[0] - min(self.contexts)[0]).days + 1

    async def run(self, phone: Phone) -> None:
        """Give the phone each reading shortly before the step that it counts for, until the last one has begun."""
        moment = phone.timetable.step / _LEAD_OF_REPLAYS
        last, _ = max(self.contexts)
        while (upcoming := phone.next_step).date <= last:
            await phone.clock.wait_until(upcoming.instant - 2 * moment)
            phone.sense(self.contexts.get((upcoming.date, upcoming.step)))
            await phone.clock.wait_until(upcoming.instant)
        await phone.clock.wait_until(upcoming.instant - phone.timetable.step + moment)


def serve(
    policy: Path,
    /,
    *,
    weekend: Path | None = None,
    store: StoreFile = STORE,
    address: str = ADDRESS,
    zone: str | None = None,
    hold: str | None = None,
    app: list[str] | None = None,
    first_day: bool = False,
    replay: Path | None = None,
    speed: float = 3600.0,
    certificate: Path | None = None,
    key: Path | None = None,
    quiet: bool = False,
) -> None:
    """Be a phone: decide every step by a policy, and tell the apps what is released.

    Contexts are read from standard input, a line whenever one is read; an empty line says that nothing could be. The
    last one before a step begins is that step's. Ends with SIGINT or SIGTERM; begun again with the same store, it goes
    on where it was.

    Args:
        policy: The policy; for the working days where --weekend is given.
        weekend: The policy for Saturdays and Sundays.
        store: The file that keeps what must survive a kill: one for each phone.
        address: Where apps reach the phone: unix:/path, or host:port.
        zone: The time zone of the user's wall clock, such as Europe/Paris; the machine's unless given.
        hold: How long a reading counts, as 30min or 2h; one step unless given.
        app: An app that may listen. Its token is printed when it gets one. May be repeated.
        first_day: The store is new, and nothing was released today. Without it an empty store, which may be a lost one,
            releases nothing until tomorrow.
        replay: CSV with the header day,step,context, days named like 2027-02-01, in place of standard input. The clock
            runs from the first to the last of them, and nothing is stored; the apps of the store may listen. For trying
            things out.
        speed: How many seconds of a replay pass in one.
        certificate: A certificate chain in PEM: apps speak TLS. Needed where other machines can reach the address.
        key: The certificate's private key in PEM.
        quiet: Do not print what is released.
    """
    loaded = _schedule(policy, weekend)
    past = None if replay is None else _replay(replay, loaded.policies[0].horizon)
    if past is not None and (first_day or hold is not None or zone is not None):
        raise ValueError("--first-day, --hold and --zone mean nothing to a replay")
    open_many_files()
    teller = Teller()
    with contextlib.closing(PhoneStore(None if past is not None else store)) as kept:
        if past is not None and store.exists():
            _copy_apps(store, kept)
        phone = Phone(
            loaded,
            store=kept,
            zone=dt.UTC if past is not None else time_zone(zone),
            clock=SystemClock() if past is None else PacedClock(past.first, speed),
            hold=None if hold is None else duration(hold, "--hold"),
            lead=LEAD if past is None else dt.timedelta(days=1) / past.horizon / _LEAD_OF_REPLAYS,
            held_days=HELD_DAYS if past is None else past.days + 1,
            first_day=first_day or past is not None,
            listener=None if quiet else teller.step,
        )
        broker = Broker(phone, address, credentials=_credentials(certificate, key))
        asyncio.run(_serve(phone, broker, app or [], past, teller))
        teller.finish()
        for report in phone.reports():
            sys.stderr.write(f"{report}\n")


@apps.command
def add(name: str, /, *, store: StoreFile = STORE, trusted: bool = False) -> None:
    """Give an app a token, and print it; a former one is void.

    Args:
        name: What the app is called.
        store: The phone's store.
        trusted: Tell it every context, released or not. Nothing is promised about what such an app learns.
    """
    with _phone_of(store, new=True) as phone_apps:
        sys.stdout.write(f"{phone_apps.add(name, trusted=trusted)}\n")


@apps.command
def remove(name: str, /, *, store: StoreFile = STORE) -> None:
    """Take an app's token back; its streams end at the next step.

    Args:
        name: The app.
        store: The phone's store.
    """
    with _phone_of(store) as phone_apps:
        phone_apps.remove(name)


@apps.command(name="list")
def list_apps(*, store: StoreFile = STORE, as_json: AsJson = False) -> None:
    """List the apps that have a token.

    Args:
        store: The phone's store.
        as_json: Write JSON for machines.
    """
    with _phone_of(store) as phone_apps:
        found = [{"name": each.name, "trusted": each.trusted} for each in phone_apps.all()]
    if as_json:
        sys.stdout.write(in_json(found) + "\n")
    else:
        for each in found:
            sys.stdout.write(f"{each['name']}{' (trusted: is told every context)' if each['trusted'] else ''}\n")


async def _serve(phone: Phone, broker: Broker, apps: list[str], past: Replay | None, teller: Teller) -> None:
    """Run until somebody says stop, or the replay is over, or the phone fails."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    async with phone, broker:
        teller.begin()
        _greet(phone, broker, apps, teller)
        if past is None and sys.stdin is not None:  # or its number may be that of another file
            threading.Thread(target=_sense_lines, args=(phone,), daemon=True).start()
        replaying = [] if past is None else [past.run(phone)]
        pacing = [phone.clock.run()] if isinstance(phone.clock, PacedClock) else []
        await first_of(stop.wait(), phone.wait(), *replaying, *pacing)


def _greet(phone: Phone, broker: Broker, apps: list[str], teller: Teller) -> None:
    """Say where the phone is, who may listen, and when it begins to speak."""
    known = {each.name for each in phone.apps.all()}
    for name in apps:
        teller.say(f"app {name}: {'has its token already' if name in known else phone.apps.add(name)}")
    local = phone.next_step.instant.astimezone(phone.timetable.zone)
    teller.say(
        f"serving at {broker.address}, {phone.timetable.horizon} steps a day; the next begins at {local:%Y-%m-%d %H:%M}"
    )
    if phone.dark:
        teller.say(
            "nothing is released until tomorrow, for it is not known what was released today "
            "(if the store is new and nothing was, --first-day says so)"
        )


class Teller:
    """Writes to standard output without ever waiting for whoever reads it: what finds no room is left out."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue(_UNREAD)

    def begin(self) -> None:
        """Begin to write."""
        with contextlib.suppress(OSError, ValueError):  # there is no standard output
            threading.Thread(target=self._write, args=(sys.stdout.fileno(),), daemon=True).start()

    def say(self, line: str) -> None:
        """Have a line written."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(f"{line}\n")

    def step(self, step: Step) -> None:
        """Have it written what is released at a step."""
        self.say(f"{step.date} {step.time}  {'-' if step.context is None else step.context}")

    def finish(self) -> None:
        """Wait a moment for what is not written yet."""
        end = time.monotonic() + _PATIENCE  # seconds
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.01)

    def _write(self, out: int) -> None:
        """Write past Python's buffer: its lock, held by a thread that waits, would keep the process from ending."""
        heard = True
        while True:
            line = self._lines.get().encode()
            while heard and line:
                try:
                    line = line[os.write(out, line) :]
                except OSError:  # nobody reads any more; the phone goes on
                    heard = False
            self._lines.task_done()


def _sense_lines(phone: Phone) -> None:
    """Take each line of standard input as a reading.

    Read without Python's buffer: its lock, held by a thread that waits, would keep the process from ending.
    """
    rest = b""
    while chunk := os.read(_STDIN, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _sense_line(phone, line)
        rest = rest[-_CHUNK:]
    if rest:
        _sense_line(phone, rest)


def _sense_line(phone: Phone, line: bytes) -> None:
    try:
        phone.sense(line.decode("utf-8").strip() or None)
    except ValueError as error:
        sys.stderr.write(f"reticent: standard input: {error}\n")
        sys.stderr.flush()


def _schedule(policy: Path, weekend: Path | None) -> Schedule:
    weekday = _policy(policy)
    return Schedule({"weekday": weekday, "weekend": weekday if weekend is None else _policy(weekend)})


def _policy(path: Path) -> Policy:
    try:
        return Policy.load(path)
    except FileError as error:
        raise ValueError(str(error)) from error


def _replay(path: Path, horizon: int) -> Replay:
    with path.open(encoding="utf-8-sig", newline="") as file:
        days = read_days(file, str(path), horizon)
    contexts: dict[tuple[dt.date, int], str | None] = {}
    for day in days:
        try:
            date = dt.date.fromisoformat(day.name)
        except ValueError:
            raise ValueError(f"{path}: a replay needs days named like 2027-02-01: got {day.name!r}") from None
        contexts |= {(date, step): label for step, label in enumerate(day.labels)}
    if not contexts:
        raise ValueError(f"{path}: there is no day to replay")
    return Replay(contexts, horizon)


def _credentials(certificate: Path | None, key: Path | None) -> grpc.ServerCredentials | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError("--certificate and --key go together")
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


def _copy_apps(path: Path, kept: PhoneStore) -> None:
    """Let the apps of a phone's store listen to a replay as well."""
    with contextlib.closing(PhoneStore(path)) as store:
        Apps(kept.slot(APPS)).take_over(Apps(store.slot(APPS)))


@contextlib.contextmanager
def _phone_of(path: Path, *, new: bool = False) -> Iterator[Apps]:
    if not new and not path.exists():
        raise ValueError(f"there is no phone's store at {path}")
    with contextlib.closing(PhoneStore(path)) as store:
        yield Apps(store.slot(APPS))


def _midnight(date: dt.date) -> dt.datetime:
    return dt.datetime.combine(date, dt.time(), dt.UTC)
