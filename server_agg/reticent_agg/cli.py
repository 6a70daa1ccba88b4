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
from reticent.console.logs import start_logging
from reticent.console.options import (
    AGGREGATION_METRICS,
    AGGREGATION_SERVER,
    ANALYSTS,
    CERTIFICATES,
    DECISIONS,
    MAX_DAYS,
    AsJson,
    DatabaseUrl,
    in_json,
)
from reticent.console.text import printable
from reticent.protocol.channels import KEY_SERVER, channel
from reticent.protocol.keys import identity_of
from reticent.protocol.phases import PHASES, outcomes_text, phase_of
from reticent.randomness import secure
from reticent.rpc.metrics import MetricsListener, StoreMetrics, timed
from reticent.rpc.simulated_clock import clock_from
from reticent.storage.databases import migrate as migrate_database
from reticent.storage.databases import place_of
from reticent.storage.files import PUBLIC, create, drafted_folder, make_folder
from reticent.tls.certificates import Certificate
from reticent_agg.administration import QuerySummary, summaries
from reticent_agg.counting.closing import abort as abort_query
from reticent_agg.metrics import REGISTRY, STORE_SECONDS, store_metrics
from reticent_agg.retention import prune as prune_store
from reticent_agg.server import POLL_INTERVAL, AggregationServer
from reticent_agg.service import AggregationService
from reticent_agg.sql_schema import FORMAT
from reticent_agg.sql_store import SqlStore

__all__ = ["app"]

FOLDER = Path("aggregation")
KEPT_DAYS = 30

_FILE = "aggregation.db"
_FILE_OWNER = "reticent agg serve"  # one process serves from a file: begun again after a kill, it has its leases back
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
    database: DatabaseUrl = None,
    phones: str = AGGREGATION_SERVER,
    analysts: str = ANALYSTS,
    key_server: str = DECISIONS,
    identity: str | None = None,
    certs: Annotated[Path, Parameter(name="--certs")] = CERTIFICATES,
    simulation: bool = False,
    poll_interval: float = POLL_INTERVAL.total_seconds(),
    keep_days: float = KEPT_DAYS,
    simulated_clock: str | None = None,
    metrics: str = AGGREGATION_METRICS,
    log_level: str = "info",
    log_json: bool = False,
) -> None:
    """Run an aggregation server until SIGINT or SIGTERM.

    The first start creates the folder; later starts continue from it. The server prints the addresses at which it
    listens, one a line. Any number of processes, on any machines, may serve from one PostgreSQL database.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
        phones: The address at which the server listens for phones, as host:port.
        analysts: The address at which the server listens for analysts.
        key_server: The address at which the key server listens for this server (its option --decisions).
        identity: The key server's identity: the file identity.pub of its folder, or the 64 hexadecimal digits in it.
            Required at the first start, which copies it to the server's folder.
        certs: The folder of certificates that `reticent certs init` makes.
        simulation: Accept keys of 1024 and 2048 bits too, which are for simulation only.
        poll_interval: The seconds after which phones request announcements again.
        keep_days: The days after which the server deletes which phones contributed to a query, and refused queries,
            as `reticent agg prune` does.
        simulated_clock: For tests, on this machine only: stop the clock at this instant, such as
            2027-03-01T12:00:00Z, until a test moves it.
        metrics: The address of the metrics for Prometheus, which have no TLS. Port 0 takes a free one, and '' means
            none. Processes on one machine need different ports.
        log_level: The lowest level that is logged on standard error: debug, info, warning or error. SIGUSR1
            logs one level more, SIGUSR2 one less, while the server runs.
        log_json: Log as JSON.
    """
    start_logging(log_level, log_json)
    if not 0 < poll_interval <= dt.timedelta(days=1).total_seconds():
        raise ValueError(f"--poll-interval must lie between 0 and a day, in seconds: got {poll_interval:g}")
    keep = _kept("--keep-days", keep_days)
    clock, further = clock_from(simulated_clock, phones, analysts)
    certificate = Certificate.load(certs, "aggregation")
    make_folder(folder)
    store = SqlStore(place_of(folder / _FILE, database))
    server = AggregationServer(
        timed(store, STORE_SECONDS),
        identity=_identity(folder / _IDENTITY, identity),
        now=clock.now,
        rng=secure(),
        simulation=simulation,
        poll_interval=dt.timedelta(seconds=poll_interval),
    )

    async def serve_until(stop: asyncio.Event) -> None:
        way = channel(key_server, certificate.channel_credentials(), KEY_SERVER)
        service = AggregationService(
            server,
            clock=clock,
            key_server=way,
            phones=phones,
            analysts=analysts,
            phones_credentials=certificate.server_credentials(mutual=False),
            analysts_credentials=certificate.server_credentials(mutual=True),
            others=further,
            lease_owner=_FILE_OWNER if database is None else None,
            keep=keep,
        )
        of_store = StoreMetrics(store_metrics(store, clock.now))
        async with way, service:
            process.print_line(f"listening for phones at {service.phones_address}")
            process.print_line(f"listening for analysts at {service.analysts_address}")
            if listener.address:
                process.print_line(f"listening for Prometheus at {listener.address}")
            with listener.serving(of_store, service.admissions):
                await first_of(stop.wait(), service.wait())

    with closing(server), store.serving(), MetricsListener(metrics, REGISTRY) as listener:
        process.run(serve_until)


@app.command
def prune(*, folder: At = FOLDER, database: DatabaseUrl = None, days: float = KEPT_DAYS) -> None:
    """Delete the participation records of old queries, and old refused queries.

    A server prunes by itself, too (option --keep-days), and may run meanwhile. Queries and decisions stay. If a phone
    sends a contribution to a pruned query again, the server refuses it as late.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
        days: The least age of the decision or refusal in days, by this machine's clock.
    """
    before = SystemClock().now() - _kept("--days", days)
    is_any = False
    with _store_of(folder, database) as store:
        for query_id in prune_store(store, before):
            is_any = True
            sys.stdout.write(f"{printable(query_id)}  pruned\n")
    if not is_any:
        sys.stdout.write(f"nothing to prune: no query was decided or refused before {before:%Y-%m-%d %H:%M:%S} UTC\n")


@app.command
def abort(query: str, /, *, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Close a query and burn its undecided cohorts. The query may belong to any analyst.

    A running server sends the request to the key server within 30 s.

    Args:
        query: The query's id.
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
    """
    with _store_of(folder, database) as store:
        found = abort_query(store, query)
    sys.stdout.write(f"{printable(query)}  {PHASES[phase_of(found.phase, is_refused=found.refused is not None)]}\n")


@app.command
def backup(target: Path, /, *, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Copy what the server needs to continue to a new folder, while it runs or not.

    To restore, serve from the copy. All open queries are aborted in the copy, because it may lack contributions and
    the original may send their sums. Queries that were announced after the backup are unknown to the copy.

    Args:
        target: The folder of the copy, which must not exist.
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
    """
    with _store_of(folder, database) as store, drafted_folder(target) as draft:
        if (folder / _IDENTITY).exists():  # the first start may have been interrupted
            create(draft / _IDENTITY, (folder / _IDENTITY).read_bytes(), PUBLIC)
        store.backup(draft / _FILE)
    sys.stdout.write(f"copied to {target}\n")


@app.command
def migrate(*, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Upgrade the database of an older version, while no server runs on it: completely, or not at all.

    Make a backup first.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
    """
    migrate_database(_existing(folder, database), FORMAT)
    sys.stdout.write(f"the database has version {FORMAT.version}\n")


@app.command
def restored(*, folder: At = FOLDER, database: DatabaseUrl = None) -> None:
    """Abort all open queries after the database was restored from a copy of its files, before the server starts on it.

    In a copy that `reticent agg backup` has made, they are aborted already.

    The copy may lack contributions, and the original may have sent a sum already. With a second sum of the same cohort,
    a malicious key server could find single contributions by subtraction. Phones of these queries keep their
    reservations. Queries that are decided in the copy do not change.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
    """
    with _store_of(folder, database) as store:
        aborted = store.abort_restored()
    for query in aborted:
        sys.stdout.write(f"{printable(query)}  aborted\n")


@app.command
def status(*, folder: At = FOLDER, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List all queries, the latest first, with the number of contributions.

    Args:
        folder: The folder with all files of the server.
        database: A PostgreSQL database in place of the file in the folder, such as postgresql://user@host/name.
        as_json: Print JSON.
    """
    with _store_of(folder, database) as store:
        found = summaries(store)
    if as_json:
        sys.stdout.write(in_json([asdict(each) for each in found]) + "\n")
    else:
        sys.stdout.write("".join(f"{_line(each)}\n" for each in found))


def _kept(option: str, days: float) -> dt.timedelta:
    if not 0 <= days <= MAX_DAYS:
        raise ValueError(f"{option} must lie between 0 and {MAX_DAYS:,}: got {days:g}")
    return dt.timedelta(days=days)


def _identity(path: Path, given: str | None) -> bytes:
    """The key server's identity. The first one given is kept, and never changes."""
    if given is not None:
        content = identity_of(given)
        with contextlib.suppress(FileExistsError):
            create(path, f"{content.hex()}\n".encode(), PUBLIC)
    if not path.exists():
        raise ValueError("--identity is required at the first start: `reticent keys status` prints it")
    kept = identity_of(str(path))
    if given is not None and kept != identity_of(given):
        raise ValueError(f"{path} names another key server: a folder belongs to one key server")
    return kept


def _existing(folder: Path, database: str | None) -> Path | str:
    """The place of a database that a server has made."""
    place = place_of(folder / _FILE, database)
    if isinstance(place, Path) and not place.exists():
        raise ValueError(f"there is no aggregation server in {folder}")
    return place


@contextlib.contextmanager
def _store_of(folder: Path, database: str | None) -> Iterator[SqlStore]:
    with closing(SqlStore(_existing(folder, database))) as store:
        yield store


def _line(query: QuerySummary) -> str:
    decided = f"{len(query.outcomes)} of {len(query.contributors)} cohorts decided"
    contributed = f"{sum(query.contributors):,} of {query.population:,} phones"
    pruned = ", pruned" if query.pruned else ""
    attempted = f", attempt {query.attempts}" if query.attempts > 1 else ""
    what = {
        "announced": f"waits for the key server{attempted}",
        "refused": query.refusal,
        "lost": f"{contributed}, {decided}; will never be decided: {query.refusal}{attempted}{pruned}",
        "collecting": f"{contributed}, until {query.closes:%Y-%m-%d %H:%M:%S} UTC" if query.closes else contributed,
        "closing": f"{contributed}, {decided}{attempted}",
        "decided": f"{contributed}{pruned}",
    }
    word = outcomes_text(query.outcomes) if query.phase == "decided" else query.phase
    return printable(f"{query.id}  {word}  {what[query.phase]}")
