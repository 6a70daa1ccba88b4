"""`reticent keys`: runs the key server, and does the work of its operator."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from reticent.address import check_address
from reticent.clock import Clock, SystemClock
from reticent.console import process
from reticent.console.configuration import configured
from reticent.console.logs import start_logging
from reticent.console.options import (
    AGGREGATION_SERVER,
    CERTIFICATES,
    DECISIONS,
    KEY_METRICS,
    KEY_SERVER,
    MAX_DAYS,
    AsJson,
    DatabaseUrl,
    in_json,
)
from reticent.paillier import KEY_BITS
from reticent.privacy import QueryLimits
from reticent.protocol.invitation import Invitation
from reticent.rpc import RateLimit
from reticent.rpc.metrics import MetricsListener, StoreMetrics
from reticent.rpc.simulated_clock import clock_from
from reticent.storage.files import OWNER_ONLY_FOLDER, create
from reticent.times import milliseconds
from reticent.tls.certificates import Certificate
from reticent_keys import administration
from reticent_keys.folder import Folder
from reticent_keys.keyring import ROTATION
from reticent_keys.membership import MEMBERSHIP, invitation_hash
from reticent_keys.metrics import REGISTRY, journal_metrics
from reticent_keys.server import DECISION_TIME, KeyServer
from reticent_keys.service import JOINS, Service

FOLDER = Path("keys")
LIMITS = QueryLimits()
_DAY = dt.timedelta(days=1)
KEEP = dt.timedelta(days=30)
CLAIM_CHECK = 1.0
"""Seconds between two checks that no other process has taken over."""
WRITERS = 16
"""Threads that write invitations: they wait for the disk together."""

_log = logging.getLogger(__name__)

app = App(
    name="keys",
    config=configured("keys"),
    default_parameter=Parameter(negative=()),
)

At = Annotated[Path, Parameter(name="--folder")]
Certificates = Annotated[Path, Parameter(name="--certs")]
Passphrase = Annotated[Path | None, Parameter(name="--passphrase-file")]


@app.command
def serve(
    *,
    folder: At = FOLDER,
    database: DatabaseUrl = None,
    phones: str = KEY_SERVER,
    decisions: str = DECISIONS,
    certs: Certificates = CERTIFICATES,
    passphrase_file: Passphrase = None,
    standby: bool = False,
    key_bits: int = KEY_BITS[0],
    simulation: bool = False,
    rotate_days: int = ROTATION // _DAY,
    keep_days: int = KEEP // _DAY,
    membership_days: int = MEMBERSHIP // _DAY,
    decision_days: int = DECISION_TIME // _DAY,
    limits: Annotated[QueryLimits, Parameter(name="*")] = LIMITS,
    join_rate: float = JOINS.per_second,
    simulated_clock: Annotated[str | None, Parameter(name="--simulated-clock")] = None,
    seed: int | None = None,
    metrics: str = KEY_METRICS,
    log_level: str = "info",
    log_json: bool = False,
) -> None:
    """Run a key server, until SIGINT or SIGTERM.

    The first start creates an identity, a journal and a key pair in the folder. A later start continues with them.
    The server prints its identity and each address on which it listens.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
        phones: The address at which the server listens for phones, as host:port.
        decisions: The address at which the server listens for the aggregation server.
        certs: The folder of certificates that `reticent certs init` makes.
        passphrase_file: A file that only its owner can read (mode 0600), with one line: the passphrase of the folder's
            secrets. Without it, the command prompts for the passphrase.
        standby: If another process serves from the folder, wait, and take over when it ends. Two machines need a
            PostgreSQL database and a shared folder.
        key_bits: The length of new key pairs: 3072 or 4096.
        simulation: Allow key pairs of 1024 and 2048 bits too, which are for simulation only.
        rotate_days: The days for which a key pair is used for new queries. The next one is made a day ahead. 0 to
            rotate by `reticent keys rotate` only.
        keep_days: The days after its decision for which the phones of a query are kept, and invitations after they
            expired. Decisions are kept for ever. 0 to delete nothing.
        membership_days: The days after which the membership of a phone expires, unless the phone renews it.
        decision_days: The days after the end of a query in which its sums can be decrypted. Then the query's key is
            erased.
        limits: Limits on each query, whatever phones accept.
        join_rate: Rate limit of joins per second from one network, with bursts of 40 times this number.
        simulated_clock: For tests, on this machine only: stop the clock at this instant, such as
            2027-03-01T12:00:00Z, until a test moves it.
        seed: For simulations, with --simulation only: deal phones to cohorts so that the seed replays it.
        metrics: The address of the metrics for Prometheus, which have no TLS. Port 0 takes a free one, and '' means
            none. Processes on one machine need different ports.
        log_level: The lowest level that is logged on standard error: debug, info, warning or error. SIGUSR1
            logs one level more, SIGUSR2 one less, while the server runs.
        log_json: Log as JSON.
    """
    if seed is not None and not simulation:
        raise ValueError("--seed needs --simulation: whoever knows the seed knows which phones share a cohort")
    process.forbid_core_dumps()
    start_logging(log_level, log_json)
    process.handle_signals()  # a standby may wait for months
    _check_days("a membership", membership_days)
    _check_days("the time for a decision", decision_days)
    clock, others = clock_from(simulated_clock, phones, decisions)
    certificate = Certificate.load(certs, "keys")
    for what, days in (("the use of a key", rotate_days), ("the time to keep phones", keep_days)):
        if days:
            _check_days(what, days)
    opened = Folder(folder, bits=key_bits, simulation=simulation, database=database)
    secret = process.passphrase(passphrase_file, new=not opened.exists)
    with (
        MetricsListener(metrics, REGISTRY) as listener,
        opened.served(
            secret,
            now=clock.now,
            limits=limits,
            lifetime=membership_days * _DAY,
            decision_time=decision_days * _DAY,
            seed=seed,
            standby=standby,
        ) as server,
    ):
        _warn_of_restore(server, clock)
        joins = RateLimit(join_rate, max(1.0, JOINS.burst / JOINS.per_second * join_rate))
        service = Service(
            server,
            phones=phones,
            decisions=decisions,
            certificate=certificate,
            others=others,
            joins=joins,
            rotate_every=rotate_days * _DAY if rotate_days else None,
            keep=keep_days * _DAY if keep_days else None,
        )
        of_journal = StoreMetrics(journal_metrics(server.journal, clock.now))
        process.run(lambda stop: _serve(service, server, listener, of_journal, stop))


@app.command
def rotate(
    *,
    folder: At = FOLDER,
    database: DatabaseUrl = None,
    passphrase_file: Passphrase = None,
    key_bits: int = KEY_BITS[0],
    simulation: bool = False,
    retire: bool = False,
) -> None:
    """Make a new key pair for new queries, while the server runs or not.

    Run this command as the user of the server, who has to read the new pair.

    The server keeps the former pair until all queries under it are decided, and then erases it.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
        passphrase_file: The passphrase file, as in `keys serve`.
        key_bits: The length of the new key pair: 3072 or 4096.
        simulation: Allow 1024 and 2048 bits too, which are for simulation only.
        retire: Stop decisions under former keys. Needed after a restore from a copy that
            `reticent keys backup` did not make: its journal may lack decisions.
    """
    process.forbid_core_dumps()
    opened = Folder(folder, bits=key_bits, simulation=simulation, database=database)
    opened.journal().close()  # fails early if there is no server
    made = opened.rotate(process.passphrase(passphrase_file), SystemClock().now, retire=retire)
    sys.stdout.write(f"the active key is {made}\n")


@app.command
def invite(
    *,
    count: Annotated[int, Parameter(name=["-n", "--count"])] = 1,
    output: Annotated[Path, Parameter(name=["-o", "--output"])] = Path("invitations"),
    key_server: str = KEY_SERVER,
    aggregation_server: str = AGGREGATION_SERVER,
    days: int = 30,
    folder: At = FOLDER,
    database: DatabaseUrl = None,
    certs: Certificates = CERTIFICATES,
    as_json: AsJson = False,
) -> None:
    """Write invitations, one file for each phone, while the server runs or not.

    A phone enrols with such a file, once. Deliver each file privately. `--json` prints one object per file and line.

    Args:
        count: The number of invitations.
        output: The folder for the files, which only their owner can read. Existing files are kept.
        key_server: The address of the key server for phones, as host:port.
        aggregation_server: The address of the aggregation server for phones.
        days: The days after which they expire, 36500 at most.
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
        certs: The folder of certificates, whose authority the phones will trust.
        as_json: Print JSON.
    """
    _check_days("an invitation", days)
    for address in (key_server, aggregation_server):
        check_address(address)
    now = SystemClock().now()
    authority = Certificate.load(certs, "keys").authority.decode()
    with closing(Folder(folder, database=database).journal()) as journal:
        identity = bytes.fromhex(journal.summary(milliseconds(now)).identity)
        output.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)
        expires = now + days * _DAY
        content = {"expires": expires, "key_server": key_server, "aggregation_server": aggregation_server}

        def written(token: bytes) -> Path:
            invitation = Invitation(token, identity, authority, key_server, aggregation_server)
            path = output / f"{invitation_hash(token).hex()[:16]}.json"
            create(path, invitation.to_text().encode())
            return path

        with ThreadPoolExecutor(WRITERS) as threads:
            files = list(threads.map(written, administration.invite(journal, count, expires=expires)))
    for file in files:  # once all are made: the output may be lost
        sys.stdout.write(f"{in_json({'file': str(file)} | content, indent=None) if as_json else file}\n")


@app.command
def revoke(phone: str, /, *, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """End the membership of a phone. Queries that were dealt earlier do not change.

    Args:
        phone: The id of the phone, as `reticent keys phones` lists it, or its first 16 digits, as the phone shows it.
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
    """
    with closing(Folder(folder, database=database).journal()) as journal:
        phone_id = administration.find_phone(journal, phone.rstrip("…"))
        is_new = administration.revoke(journal, phone_id)
    sys.stdout.write(f"phone {phone_id.hex()} {'is' if is_new else 'was'} revoked{'' if is_new else ' before'}\n")


@app.command
def migrate(*, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Upgrade the journal of an older version, while no server runs.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
    """
    Folder(folder, database=database).migrate()
    sys.stdout.write("the journal has the version of this program\n")


@app.command
def backup(target: Path, /, *, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Copy what the server needs to continue to a new folder, while it runs or not.

    To restore, serve from the copy, with the same passphrase. The copy lacks later decisions, so it has no key pairs.
    Queries that were countersigned before the backup, and not decided, stay undecided. New queries get a new key.

    Args:
        target: The folder of the copy, which must not exist.
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
    """
    Folder(folder, database=database).backup(target, SystemClock().now())
    sys.stdout.write(f"copied to {target}\n")


@app.command
def phones(*, folder: At = FOLDER, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List all phones that were ever enrolled.

    `--json` prints one object per line.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
        as_json: Print JSON.
    """
    with closing(Folder(folder, database=database).journal()) as journal:
        for phone in journal.phones(milliseconds(SystemClock().now())):
            text = f"{phone.phone}  {phone.state:7}  until {phone.expires:%Y-%m-%d %H:%M} UTC"
            sys.stdout.write(f"{in_json(asdict(phone), indent=None) if as_json else text}\n")


@app.command
def status(*, folder: At = FOLDER, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show the numbers of phones, queries and decisions, and the keys.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the journal in the folder, such as postgresql://user@host/name.
        as_json: Print JSON.
    """
    with closing(Folder(folder, database=database).journal()) as journal:
        found = journal.summary(milliseconds(SystemClock().now()))
    if as_json:
        sys.stdout.write(in_json(asdict(found)) + "\n")
        return
    lines = [
        f"identity     {found.identity}",
        f"phones       {found.members} members, of {found.phones} ever enrolled",
        f"invitations  {found.invitations} open",
        f"queries      {found.queries} countersigned, {found.decided} cohorts decided",
    ]
    lines += [
        f"key          {key.id[:16]}…  {key.state.lower()}, {key.bits} bits, "
        f"since {key.activated or key.made:%Y-%m-%d %H:%M} UTC, {key.queries} queries, "
        f"{key.undecided} cohorts undecided{f', {key.overdue} overdue' if key.overdue else ''}"
        for key in found.keys
    ]
    if found.copied is not None:
        lines.append(f"restored     from a backup of {found.copied:%Y-%m-%d %H:%M} UTC")
    sys.stdout.write("\n".join(lines) + "\n")


def _check_days(what: str, days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise ValueError(f"{what} lasts from 1 to {MAX_DAYS} days: got {days}")


async def _watch(server: KeyServer) -> None:
    """Raise `InUse` when another process may serve."""
    while True:
        await asyncio.sleep(CLAIM_CHECK)
        await asyncio.to_thread(server.check_claim)


async def _serve(
    service: Service, server: KeyServer, listener: MetricsListener, of_journal: StoreMetrics, stop: asyncio.Event
) -> None:
    async with service:
        process.print_line(f"identity {server.identity.hex()}")
        process.print_line(f"listening for phones at {service.phones.address}")
        process.print_line(f"listening for the aggregation server at {service.decisions.address}")
        if listener.address:
            process.print_line(f"listening for Prometheus at {listener.address}")
        with listener.serving(of_journal, service.admissions):
            ends = [asyncio.create_task(each) for each in (_watch(server), stop.wait())]
            done, others = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in others:
                each.cancel()
            for each in done:
                each.result()


def _warn_of_restore(server: KeyServer, clock: Clock) -> None:
    copied = server.journal.summary(milliseconds(clock.now())).copied
    if copied is not None:
        _log.warning("restored from a backup of %s: earlier queries stay undecided", copied.isoformat())
