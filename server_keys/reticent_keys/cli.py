"""`reticent keys`: the key server as a process, and what its operator does."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from reticent.address import check_address
from reticent.clock import Clock, SystemClock
from reticent.console import process
from reticent.console.configuration import configured
from reticent.console.logs import begin
from reticent.console.options import (
    AGGREGATION_SERVER,
    CERTIFICATES,
    DECISIONS,
    KEY_SERVER,
    MAX_DAYS,
    AsJson,
    in_json,
)
from reticent.paillier import KEY_BITS
from reticent.privacy.limits import QueryLimits
from reticent.protocol.invitation import Invitation
from reticent.rpc.simulated_clock import clock_from
from reticent.storage.files import OWNER_ONLY_FOLDER, create
from reticent.tls.certificates import Certificate
from reticent_keys import administration
from reticent_keys.folder import Folder
from reticent_keys.membership import MEMBERSHIP, invitation_hash
from reticent_keys.server import KeyServer
from reticent_keys.service import Service

FOLDER = Path("keys")
LIMITS = QueryLimits()
_DAY = dt.timedelta(days=1)

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
    phones: str = KEY_SERVER,
    decisions: str = DECISIONS,
    certs: Certificates = CERTIFICATES,
    passphrase_file: Passphrase = None,
    key_bits: int = KEY_BITS[0],
    simulation: bool = False,
    membership_days: int = MEMBERSHIP // _DAY,
    limits: Annotated[QueryLimits, Parameter(name="*")] = LIMITS,
    simulated_clock: Annotated[str | None, Parameter(name="--simulated-clock")] = None,
    log_level: str = "info",
    log_json: bool = False,
) -> None:
    """Be a key server, until SIGINT or SIGTERM.

    The first time, an identity, a journal and a key pair are made in the folder. Begun again, it goes on where it was.
    It says at which addresses it listens, a line for each.

    Args:
        folder: Where the server keeps everything.
        phones: Where phones reach it, as host:port.
        decisions: Where the aggregation server does.
        certs: The folder of certificates, as `reticent certs init` makes it.
        passphrase_file: A file that nobody else can read (mode 0600), whose one line is the passphrase of the folder's
            secrets; asked for unless given.
        key_bits: How long new key pairs are: 3072 or 4096.
        simulation: Allow key pairs of 1024 and 2048 bits too, which are good for simulation only.
        membership_days: After how many days a phone that does not renew is no member any more.
        limits: Limits on each query, whatever phones accept.
        simulated_clock: For tests, on this machine only: the clock stands still at this instant, like
            2027-03-01T12:00:00Z, until it is moved.
        log_level: What is logged on standard error: debug, info, warning or error.
        log_json: Log as JSON.
    """
    begin(log_level, log_json)
    _check_days("a membership", membership_days)
    clock, others = clock_from(simulated_clock, phones, decisions)
    certificate = Certificate.load(certs, "keys")
    where = Folder(folder, bits=key_bits, simulation=simulation)
    secret = process.passphrase(passphrase_file, new=not where.is_there)
    with where.served(secret, now=clock.now, limits=limits, lifetime=membership_days * _DAY) as server:
        _tell_of_copy(server, clock)
        service = Service(server, phones=phones, decisions=decisions, certificate=certificate, others=others)
        process.run(lambda stop: _served(service, server, stop))


@app.command
def rotate(
    *,
    folder: At = FOLDER,
    passphrase_file: Passphrase = None,
    key_bits: int = KEY_BITS[0],
    simulation: bool = False,
    retire: bool = False,
) -> None:
    """Make a new key pair, under which queries are countersigned from now on, while the server runs or not.

    Run it as the user that the server runs as, who has to read the new pair.

    The former one decides what was countersigned under it, and is then destroyed.

    Args:
        folder: Where the server keeps everything.
        passphrase_file: As for `serve`.
        key_bits: How long the new key pair is: 3072 or 4096.
        simulation: Allow 1024 and 2048 bits too, which are good for simulation only.
        retire: Decide nothing any more under any former key. For a folder that was put back from a copy which
            `reticent keys backup` did not make: such a journal may have forgotten decisions.
    """
    where = Folder(folder, bits=key_bits, simulation=simulation)
    where.journal().close()  # says so where there is none, before it asks for anything
    made = where.rotate(process.passphrase(passphrase_file), SystemClock().now, retire=retire)
    process.say(f"the active key is {made}")


@app.command
def invite(
    *,
    count: Annotated[int, Parameter(name=["-n", "--count"])] = 1,
    output: Annotated[Path, Parameter(name=["-o", "--output"])] = Path("invitations"),
    key_server: str = KEY_SERVER,
    aggregation_server: str = AGGREGATION_SERVER,
    days: int = 30,
    folder: At = FOLDER,
    certs: Certificates = CERTIFICATES,
) -> None:
    """Write invitations, a file for each phone, while the server runs or not.

    Whoever has such a file can join once. Hand each over in private.

    Args:
        count: How many.
        output: The folder that they are written to, for their owner only. Nothing in it is overwritten.
        key_server: Where phones reach the key server, as host:port.
        aggregation_server: Where they reach the aggregation server.
        days: How long they are good, a hundred years at most.
        folder: Where the server keeps everything.
        certs: The folder of certificates, whose authority phones will trust.
    """
    _check_days("an invitation", days)
    for address in (key_server, aggregation_server):
        check_address(address)
    now = SystemClock().now()
    authority = Certificate.load(certs, "keys").authority.decode()
    with closing(Folder(folder).journal()) as journal:
        identity = bytes.fromhex(administration.report(journal, now).identity)
        output.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)
        for token in administration.invite(journal, count, expires=now + days * _DAY):
            invitation = Invitation(token, identity, authority, key_server, aggregation_server)
            path = output / f"{invitation_hash(token).hex()[:16]}.json"
            create(path, invitation.to_text().encode())
            process.say(str(path))


@app.command
def revoke(phone: str, /, *, folder: At = FOLDER) -> None:
    """Have a phone be no member any more. Queries that were dealt before are not changed.

    Args:
        phone: Its id, as `reticent keys phones` lists it, or the first 16 digits of it, which the phone shows itself.
        folder: Where the server keeps everything.
    """
    with closing(Folder(folder).journal()) as journal:
        wanted = administration.phone_of(journal, phone.rstrip("…"))
        anew = administration.revoke(journal, wanted)
    process.say(f"phone {wanted.hex()} {'is' if anew else 'was'} revoked{'' if anew else ' before'}")


@app.command
def backup(target: Path, /, *, folder: At = FOLDER) -> None:
    """Copy what the server needs to go on to a new folder, while it runs or not.

    To restore, serve from the copy, with the same passphrase. It cannot know what was decided after it was made. So it
    has no key pairs: queries that were countersigned before stay undecided unless they were decided already, and new
    ones get a new key.

    Args:
        target: The copy; there must be nothing of that name.
        folder: Where the server keeps everything.
    """
    Folder(folder).backup(target, SystemClock().now())
    process.say(f"copied to {target}")


@app.command
def phones(*, folder: At = FOLDER, as_json: AsJson = False) -> None:
    """List the phones that ever joined.

    Args:
        folder: Where the server keeps everything.
        as_json: Write JSON for machines, an object in a line.
    """
    with closing(Folder(folder).journal()) as journal:
        for phone in administration.enrolled(journal, SystemClock().now()):
            told = in_json(asdict(phone), indent=None)
            text = f"{phone.phone}  {phone.state:7}  until {phone.expires:%Y-%m-%d %H:%M} UTC"
            sys.stdout.write(f"{told if as_json else text}\n")


@app.command
def status(*, folder: At = FOLDER, as_json: AsJson = False) -> None:
    """Say how many phones, queries and decisions there are, and which keys.

    Args:
        folder: Where the server keeps everything.
        as_json: Write JSON for machines.
    """
    with closing(Folder(folder).journal()) as journal:
        found = administration.report(journal, SystemClock().now())
    if as_json:
        sys.stdout.write(in_json(asdict(found)) + "\n")
        return
    lines = [
        f"identity     {found.identity}",
        f"phones       {found.members} members, of {found.phones} that ever joined",
        f"invitations  {found.invitations} open",
        f"queries      {found.queries} countersigned, {found.decided} cohorts decided",
    ]
    lines += [
        f"key          {key.id[:16]}…  {key.state.lower()}, {key.bits} bits, since {key.made:%Y-%m-%d %H:%M} UTC, "
        f"{key.queries} queries, {key.undecided} cohorts undecided"
        for key in found.keys
    ]
    if found.copied is not None:
        lines.append(f"put back     from a backup of {found.copied:%Y-%m-%d %H:%M} UTC")
    sys.stdout.write("\n".join(lines) + "\n")


def _check_days(what: str, days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise ValueError(f"{what} lasts from 1 to {MAX_DAYS} days: got {days}")


async def _served(service: Service, server: KeyServer, stop: asyncio.Event) -> None:
    async with service:
        process.say(f"identity {server.identity.hex()}")
        process.say(f"listening for phones at {service.phones.address}")
        process.say(f"listening for the aggregation server at {service.decisions.address}")
        await stop.wait()


def _tell_of_copy(server: KeyServer, clock: Clock) -> None:
    copied = administration.report(server.journal, clock.now()).copied
    if copied is not None:
        _log.warning("this journal was put back from a backup of %s: older queries stay undecided", copied.isoformat())
