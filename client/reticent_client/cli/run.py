"""`reticent phone run`: the phone as a process, with its mask, its apps and its part in counts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from reticent.clock import PacedClock, SystemClock, first_of
from reticent.console.process import open_many_files
from reticent.times import duration
from reticent_client.apps.broker import Broker
from reticent_client.apps.mask_runner import APPS, HELD_DAYS, MaskRunner
from reticent_client.apps.tokens import Apps
from reticent_client.cli.line_printer import LinePrinter
from reticent_client.cli.stores import STORE, StoreFile
from reticent_client.counting.consent import Situation
from reticent_client.counting.inputs import Counted, read_participation
from reticent_client.counting.status_view import RoundPrinter
from reticent_client.errors import FileError
from reticent_client.mask.days_file import read_days
from reticent_client.mask.policy import Policy
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.timetable import LEAD, time_zone
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore

ADDRESS = "unix:phone.sock"

_STDIN = 0
_CHUNK = 65536
_LEAD_OF_REPLAYS = 20  # a step of a replay is decided this part of its length before it begins


@dataclass(frozen=True)
class Replay:
    """Past days, on a faster clock."""

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

    async def run(self, mask: MaskRunner) -> None:
        """Give the mask each reading shortly before the step that it counts for, until the last one has begun."""
        moment = mask.timetable.step / _LEAD_OF_REPLAYS
        last, _ = max(self.contexts)
        while (upcoming := mask.next_step).date <= last:
            await mask.clock.wait_until(upcoming.instant - 2 * moment)
            mask.sense(self.contexts.get((upcoming.date, upcoming.step)))
            await mask.clock.wait_until(upcoming.instant)
        await mask.clock.wait_until(upcoming.instant - mask.timetable.step + moment)


def run(
    policy: Path | None = None,
    /,
    *,
    weekend: Path | None = None,
    store: StoreFile = STORE,
    address: str = ADDRESS,
    zone: str | None = None,
    hold: str | None = None,
    app: list[str] | None = None,
    first_day: bool = False,
    participation: Path | None = None,
    counters: Path | None = None,
    charging: bool = False,
    unmetered: bool = False,
    simulation: bool = False,
    replay: Path | None = None,
    speed: float = 3600.0,
    certificate: Path | None = None,
    key: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run a phone: mask contexts by a policy, serve apps, and take part in counts once it has joined.

    Contexts are read from standard input, one line for each reading, an empty line for a reading that failed. A step
    has the context of the last reading before it begins. SIGINT or SIGTERM ends the phone. If it is started again with
    the same store, it continues.

    Args:
        policy: The mask's policy, from `reticent mask policy`; with --weekend, the policy of weekdays. Without one, no
            context is released.
        weekend: The mask's policy for Saturdays and Sundays.
        store: The phone's store: the file with everything that must survive a restart. Each phone needs its own.
        address: The address at which the phone listens for apps: unix:/path, or host:port.
        zone: The user's time zone, such as Europe/Paris. The default is the machine's.
        hold: How long a reading stays valid, such as 30min or 2h. The default is one step.
        app: An app that may connect. If it is new, its token is printed. May be repeated.
        first_day: State that the store is new, and that nothing was released today. Otherwise a phone with an empty
            store releases nothing until tomorrow, because the store may have been lost.
        participation: A TOML file with the user's limits for counts. The store keeps it until another one is given.
        counters: A file of counters: CSV with the header name,value, or one JSON object. It is read anew for each
            query.
        charging: The phone is charging.
        unmetered: The phone's network is not metered.
        simulation: Accept keys of 1024 and 2048 bits too, which are for simulation only.
        replay: For trials: read days from this file instead of standard input, CSV with the header day,step,context and
            days such as 2027-02-01. The clock runs from the first day to the last. Nothing is stored, but the apps of
            the store may connect.
        speed: Seconds of the replay that pass in one second of real time.
        certificate: A certificate chain in PEM, for TLS. Required if other machines can reach the address.
        key: The certificate's private key in PEM.
        quiet: Do not print what is released.
    """
    if policy is None and (weekend is not None or replay is not None):
        raise ValueError("--weekend and --replay need a policy")
    loaded = None if policy is None else _schedule(policy, weekend)
    past = None if replay is None or loaded is None else _replay(replay, loaded.policies[0].horizon)
    if past is not None and (first_day or hold is not None or zone is not None):
        raise ValueError("--first-day, --hold and --zone do not apply to a replay")
    allowed = None if participation is None else read_participation(participation)
    open_many_files()
    printer = LinePrinter()
    with contextlib.closing(PhoneStore(None if past is not None else store)) as kept:
        if past is not None and store.exists():
            _copy_apps(store, kept)
        phone = Phone(
            loaded,
            store=kept,
            participation=allowed,
            counters=None if counters is None else Counted(counters, ()).among,
            situation=lambda: Situation(charging=charging, unmetered=unmetered),
            simulation=simulation,
            zone=dt.UTC if past is not None else time_zone(zone),
            clock=SystemClock() if past is None else PacedClock(past.first, speed),
            hold=None if hold is None else duration(hold, "--hold"),
            lead=LEAD if past is None else dt.timedelta(days=1) / past.horizon / _LEAD_OF_REPLAYS,
            held_days=HELD_DAYS if past is None else past.days + 1,
            first_day=first_day or past is not None,
            on_step=None if quiet else printer.step,
            on_round=None if quiet else RoundPrinter(printer.print_line).round,
        )
        broker = Broker(phone, address, credentials=_credentials(certificate, key))
        asyncio.run(_serve(phone, broker, app or [], past, printer))
        printer.finish()
        for report in [] if phone.mask is None else phone.mask.reports():
            sys.stderr.write(f"{report}\n")


async def _serve(phone: Phone, broker: Broker, apps: list[str], past: Replay | None, printer: LinePrinter) -> None:
    """Run until a signal, the end of the replay, or a failure of the phone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    async with phone, broker:
        printer.begin()
        _greet(phone, broker, apps, printer)
        if past is None and phone.mask is not None and sys.stdin is not None:  # its number may be another file's
            threading.Thread(target=_sense_lines, args=(phone,), daemon=True).start()
        replaying = [] if past is None or phone.mask is None else [past.run(phone.mask)]
        pacing = [phone.clock.run()] if isinstance(phone.clock, PacedClock) else []
        await first_of(stop.wait(), phone.wait(), *replaying, *pacing)


def _greet(phone: Phone, broker: Broker, apps: list[str], printer: LinePrinter) -> None:
    """Print the address, the apps, and when the next step begins."""
    known = {each.name for each in phone.apps.all()}
    for name in apps:
        printer.print_line(f"app {name}: {'has its token already' if name in known else phone.apps.add(name)}")
    mask = phone.mask
    if mask is None:
        printer.print_line(f"serving at {broker.address}, without a policy")
        return
    local = mask.next_step.instant.astimezone(mask.timetable.zone)
    printer.print_line(
        f"serving at {broker.address}, {mask.timetable.horizon} steps a day; the next begins at {local:%Y-%m-%d %H:%M}"
    )
    if mask.dark:
        printer.print_line(
            "nothing is released until tomorrow: the store does not say what was released today "
            "(start a new phone with --first-day)"
        )


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


def _midnight(date: dt.date) -> dt.datetime:
    return dt.datetime.combine(date, dt.time(), dt.UTC)
