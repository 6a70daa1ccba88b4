"""`reticent agg`: the aggregation server as a process, and what its operator does."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from reticent.clock import SystemClock, first_of
from reticent.console import process
from reticent.console.configuration import configured
from reticent.console.logs import begin
from reticent.console.options import (
    AGGREGATION_SERVER,
    ANALYSTS,
    CERTIFICATES,
    DECISIONS,
    MAX_DAYS,
    AsJson,
    in_json,
)
from reticent.console.text import printable
from reticent.protocol.channels import KEY_SERVER, channel
from reticent.protocol.keys import identity_of
from reticent.protocol.phases import PHASES, in_words
from reticent.randomness import secure
from reticent.rpc.simulated_clock import clock_from
from reticent.storage.database import Database
from reticent.storage.database import migrate as migrate_file
from reticent.storage.files import OWNER_ONLY_FOLDER, PUBLIC, create
from reticent.tls.certificates import Certificate
from reticent_agg import administration
from reticent_agg.administration import Report
from reticent_agg.database import KIND, opened
from reticent_agg.server import ASK_AGAIN, AggregationServer
from reticent_agg.service import AggregationService

__all__ = ["app"]

FOLDER = Path("aggregation")
KEPT_DAYS = 30

_FILE = "aggregation.db"
_IDENTITY = "identity.pub"

app = App(
    name="agg",
    config=configured("agg"),
    default_parameter=Parameter(negative=()),
)

At = Annotated[Path, Parameter(name="--folder")]


@app.command
def serve(
    *,
    folder: At = FOLDER,
    phones: str = AGGREGATION_SERVER,
    analysts: str = ANALYSTS,
    key_server: str = DECISIONS,
    identity: str | None = None,
    certs: Annotated[Path, Parameter(name="--certs")] = CERTIFICATES,
    simulation: bool = False,
    ask_again: float = ASK_AGAIN.total_seconds(),
    simulated_clock: str | None = None,
    log_level: str = "info",
    log_json: bool = False,
) -> None:
    """Be an aggregation server, until SIGINT or SIGTERM.

    The first time, the folder is made. Begun again, it goes on where it was. It says at which addresses it listens, a
    line for each.

    Args:
        folder: Where the server keeps everything.
        phones: Where phones reach it, as host:port.
        analysts: Where analysts do.
        key_server: Where the key server listens for aggregation servers.
        identity: The key server's identity: the file identity.pub of its folder, or the 64 hexadecimal digits in it.
            Needed the first time; then it is in this folder, too.
        certs: The folder of certificates, as `reticent certs init` makes it.
        simulation: Accept keys of 1024 and 2048 bits too, which are good for simulation only.
        ask_again: After how many seconds phones ask again what they are asked.
        simulated_clock: For tests, on this machine only: the clock stands still at this instant, like
            2027-03-01T12:00:00Z, until it is moved.
        log_level: What is logged on standard error: debug, info, warning or error.
        log_json: Log as JSON.
    """
    begin(log_level, log_json)
    if not 0 < ask_again <= dt.timedelta(days=1).total_seconds():
        raise ValueError(f"--ask-again must lie between 0 and a day, in seconds: got {ask_again:g}")
    clock, further = clock_from(simulated_clock, phones, analysts)
    certificate = Certificate.load(certs, "aggregation")
    folder.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    server = AggregationServer(
        folder / _FILE,
        identity=_identity(folder / _IDENTITY, identity),
        now=clock.now,
        rng=secure(),
        simulation=simulation,
        ask_again=dt.timedelta(seconds=ask_again),
    )

    async def serve_until(stop: asyncio.Event) -> None:
        way = channel(key_server, certificate.channel_credentials(), KEY_SERVER)
        service = AggregationService(
            server,
            clock=clock,
            key_server=way,
            phones=phones,
            analysts=analysts,
            phones_credentials=certificate.server_credentials(callers_show_theirs=False),
            analysts_credentials=certificate.server_credentials(callers_show_theirs=True),
            others=further,
        )
        async with way, service:
            process.say(f"listening for phones at {service.phones_address}")
            process.say(f"listening for analysts at {service.analysts_address}")
            await first_of(stop.wait(), service.wait())

    with closing(server), server.claim():
        process.run(serve_until)


@app.command
def migrate(*, folder: At = FOLDER) -> None:
    """Bring the folder of an older version to the present one, while no server uses it.

    Args:
        folder: Where the server keeps everything.
    """
    migrate_file(folder / _FILE, KIND)
    process.say(f"{folder / _FILE} has version {KIND.version}")


@app.command
def prune(*, folder: At = FOLDER, days: float = KEPT_DAYS) -> None:
    """Forget which phones took part in queries that were decided long ago, and queries that were refused long ago.

    The server may run meanwhile. What was asked of phones and what was decided stays for ever. A phone that sends its
    contribution to such a query again is told that it is late.

    Args:
        folder: Where the server keeps everything.
        days: How many days ago they must have been decided, by this machine's clock.
    """
    if not 0 <= days <= MAX_DAYS:
        raise ValueError(f"--days must lie between 0 and {MAX_DAYS:,}: got {days:g}")
    before = SystemClock().now() - dt.timedelta(days=days)
    with _database_of(folder) as database:
        forgotten = administration.prune(database, before)
    for name in forgotten:
        process.say(f"{printable(name)}  pruned")
    if not forgotten:
        process.say(f"nothing to prune: no query was decided or refused before {before:%Y-%m-%d %H:%M:%S} UTC")


@app.command
def abort(query: str, /, *, folder: At = FOLDER) -> None:
    """Close an analyst's query now, and have every cohort burnt that is not decided yet.

    The server may run meanwhile: it asks the key server within half a minute.

    Args:
        query: The query's id.
        folder: Where the server keeps everything.
    """
    with _database_of(folder):
        identity = identity_of(str(folder / _IDENTITY))
    now = SystemClock().now
    server = AggregationServer(folder / _FILE, identity=identity, now=now, rng=secure(), simulation=True)
    with closing(server):
        phase = server.abort_any(query).phase
    process.say(f"{printable(query)}  {PHASES[phase]}")


@app.command
def status(*, folder: At = FOLDER, as_json: AsJson = False) -> None:
    """List all queries, the latest first, with how many phones have contributed.

    Args:
        folder: Where the server keeps everything.
        as_json: Write JSON for machines.
    """
    with _database_of(folder) as database:
        found = administration.report(database)
    if as_json:
        sys.stdout.write(in_json([asdict(each) for each in found]) + "\n")
    else:
        sys.stdout.write("".join(f"{_line(each)}\n" for each in found))


def _identity(path: Path, given: str | None) -> bytes:
    """The key server's identity, which is written down when it is given first, and never changes."""
    if given is not None:
        content = identity_of(given)
        with contextlib.suppress(FileExistsError):
            create(path, f"{content.hex()}\n".encode(), PUBLIC)
    if not path.exists():
        raise ValueError("--identity is needed the first time: `reticent keys status` prints it")
    kept = identity_of(str(path))
    if given is not None and kept != identity_of(given):
        raise ValueError(f"{path} names another key server: a folder is for one, and for its queries")
    return kept


@contextlib.contextmanager
def _database_of(folder: Path) -> Iterator[Database]:
    if not (folder / _FILE).exists():
        raise ValueError(f"there is no aggregation server in {folder}")
    with closing(opened(folder / _FILE)) as database:
        yield database


def _line(query: Report) -> str:
    decided = f"{len(query.outcomes)} of {len(query.contributors)} cohorts decided"
    contributed = f"{sum(query.contributors):,} of {query.population:,} phones"
    what = {
        "announced": "waits for the key server",
        "refused": query.refusal,
        "lost": f"{contributed}, {decided}; will never be decided: {query.refusal}",
        "collecting": f"{contributed}, until {query.closes:%Y-%m-%d %H:%M:%S} UTC" if query.closes else contributed,
        "closing": f"{contributed}, {decided}",
        "decided": f"{contributed}{', pruned' if query.pruned else ''}",
    }
    word = in_words(query.outcomes) if query.phase == "decided" else query.phase
    return printable(f"{query.id}  {word}  {what[query.phase]}")
