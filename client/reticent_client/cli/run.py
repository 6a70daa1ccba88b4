"""`reticent phone run`: the phone as a process, with its mask, its apps and its part in counts."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc

from reticent.clock import SystemClock, first_of
from reticent.console.process import open_many_files
from reticent.console.text import print_note, printable, write_notes
from reticent.times import duration
from reticent_client.ads.settings import read_settings
from reticent_client.apps.broker import Broker
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.cli.development import FAST, Development, prepare
from reticent_client.cli.line_printer import LinePrinter
from reticent_client.cli.stores import STORE, StoreFile
from reticent_client.counting.consent import Situation
from reticent_client.counting.inputs import Counted, read_participation
from reticent_client.counting.session import Round
from reticent_client.counting.status_view import RoundPrinter
from reticent_client.habits.traces import PLACEHOLDERS
from reticent_client.mask.policy import Policy
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.timetable import time_zone
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore

ADDRESS = "unix:phone.sock"

_STDIN = 0
_CHUNK = 65536


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
    ads: Path | None = None,
    charging: bool = False,
    unmetered: bool = False,
    simulation: bool = False,
    traces: Path | None = None,
    fast: float = FAST,
    user: str | None = None,
    sensor_off: list[str] | None = None,
    was_off: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    quiet: bool = False,
) -> None:
    """Run a phone: mask contexts by a policy, serve apps, and take part in counts once it has joined.

    Contexts are read from standard input, one line for each reading, an empty line for a reading that failed. A step
    has the context of the last reading before it begins. SIGINT or SIGTERM ends the phone. If it is started again with
    the same store, it continues.

    To develop an app, let --traces take the place of the sensor and the clock. The store is then for development only.

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
        ads: A TOML file with the user's settings for ads. Without it, apps show none.
        charging: The phone is charging.
        unmetered: The phone's network is not metered.
        simulation: Accept keys of 1024 and 2048 bits too, which are for simulation only.
        traces: For development: the readings come from this file, as learn reads it, and not from standard input. The
            clock begins before the first reading, or where the last run with the store ended, and stops after the last.
        fast: With --traces, the seconds that pass in one second.
        user: With --traces, the user whose readings count, if there are several.
        sensor_off: With --traces, a local time in which the sensor reads nothing, as in
            2027-02-03T09:00/2027-02-03T15:00. May be repeated.
        was_off: With --traces, how long the phone was off before this start, such as 5h.
        certificate: A certificate chain in PEM, for TLS. Required if other machines can reach the address.
        key: The certificate's private key in PEM.
        quiet: Do not print what is released.
    """
    if policy is None and (weekend is not None or traces is not None):
        raise ValueError("--weekend and --traces need a policy")
    if traces is None and (user, sensor_off, was_off) != (None, None, None):
        raise ValueError("--user, --sensor-off and --was-off mean something only with --traces")
    loaded = None if policy is None else _schedule(policy, weekend)
    valid = None if hold is None else duration(hold, "--hold")
    allowed = None if participation is None else read_participation(participation)
    wanted = None if ads is None else read_settings(ads)
    open_many_files()
    counted = None if counters is None else Counted(counters, ())
    printer = LinePrinter()
    with contextlib.closing(PhoneStore(store)) as kept:
        development = None
        if traces is not None and loaded is not None:
            development = prepare(
                kept,
                traces,
                loaded.policies[0].horizon,
                user=user,
                zone=zone,
                hold=valid,
                fast=fast,
                was_off=dt.timedelta() if was_off is None else duration(was_off, "--was-off"),
                sensor_off=sensor_off or [],
            )
        elif kept.in_development:
            raise ValueError(f"{store} is the store of a phone in development: use --traces, or another --store")
        phone = Phone(
            loaded,
            store=kept,
            participation=allowed,
            counters=None if counted is None else counted.among,
            ads=wanted,
            situation=lambda: Situation(charging=charging, unmetered=unmetered),
            simulation=simulation,
            zone=time_zone(zone) if development is None else development.sensor.zone,
            clock=SystemClock() if development is None else development.clock,
            hold=valid if development is None else development.hold,
            first_day=first_day or (development is not None and development.is_new),
            on_step=None if quiet else printer.step,
            on_round=_round_printer((lambda _: None) if quiet else printer.print_line, counted),
        )
        broker = Broker(phone, address, credentials=_credentials(certificate, key))
        asyncio.run(_serve(phone, broker, app or [], development, printer))
        printer.finish()
        for report in [] if phone.mask is None else phone.mask.reports():
            write_notes(f"{report if sys.stderr.isatty() else replace(report, off_model_contexts=())}\n")


async def _serve(
    phone: Phone, broker: Broker, apps: list[str], development: Development | None, printer: LinePrinter
) -> None:
    """Run until a signal, or the end of the traces, or a failure of the phone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    async with phone, broker:
        printer.begin()
        _greet(phone, broker, apps, printer)
        if development is None and phone.mask is not None and sys.stdin is not None:  # its number may be another file's
            threading.Thread(target=_sense_lines, args=(phone,), daemon=True).start()
        simulated = [] if development is None or phone.mask is None else [_live(development, phone.mask)]
        await first_of(stop.wait(), phone.wait(), *simulated)


async def _live(development: Development, mask: MaskRunner) -> None:
    """Let the days of the traces pass."""
    await first_of(development.sensor.run(mask), development.clock.run())
    print_note("the traces have ended")


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
    if mask.suspended:
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
    print_note("standard input has ended: there are no more readings, so no more contexts are released")


def _sense_line(phone: Phone, line: bytes) -> None:
    try:
        text = line.decode("utf-8").strip()
        phone.sense(None if not text or text.lower() in PLACEHOLDERS else text)
    except ValueError as error:
        print_note(f"standard input: {error}")


def _round_printer(output: Callable[[str], None], counted: Counted | None) -> Callable[[Round], None]:
    """Print what came of each round, and where its numbers are not those of the user's file."""
    rounds = RoundPrinter(output)

    def print_round(done: Round) -> None:
        rounds.round(done)
        if counted is not None:
            for note in counted.notes({each.query for each in done.contributions}, with_unused=False):
                output(printable(note))

    return print_round


def _schedule(policy: Path, weekend: Path | None) -> Schedule:
    weekday = Policy.load(policy)
    return Schedule({"weekday": weekday, "weekend": weekday if weekend is None else Policy.load(weekend)})


def _credentials(certificate: Path | None, key: Path | None) -> grpc.ServerCredentials | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError("--certificate and --key go together")
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
