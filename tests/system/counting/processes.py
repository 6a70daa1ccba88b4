"""The world of real processes: both servers as their operators run them, over TLS, with clocks that are moved."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from asyncio import Runner
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from reticent.protocol import AgreementKey, Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.invitation import Invitation
from reticent.storage.database import Reader
from reticent.storage.databases import open_database
from reticent.storage.sql import FileFormat, SqlDatabase
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from reticent_agg.driver import LEASE
from reticent_agg.sql_schema import FORMAT
from reticent_keys import Identity, KeyPair, QueryKeyStore, administration
from reticent_keys.folder import Folder
from reticent_keys.sql_schema import JOURNAL
from reticent_sim.engine import ServerPair, launched
from tests.system.counting.world import AGGREGATION, KEYS, MEMBERSHIP, START, Fault, Kill, World

__all__ = ["Deployment", "Processes", "deployed"]

BITS = 2048
LOGGING = ("--log-level", "warning")
TIMEOUT = 60.0
"""Seconds until something that should happen is said not to."""
DEADLINE = 20.0
PAUSE = 0.02
"""Seconds from one look to the next, while something is waited for."""
KILLS_A_SCHEDULE = {KEYS: 0.5, AGGREGATION: 1.0}
"""At most, counted from the first schedule on: to begin again takes seconds."""
MAX_WHILE_ANSWERING = 0.012
"""Seconds until a server is killed that has been called: most answers take about as long."""


class Made(Folder):
    """The folder of a key server, of which the key pairs are known here too."""

    known: dict[str, KeyPair]

    @property
    def _generate(self) -> partial[KeyPair]:
        return partial(self._made, BITS, simulation=True)

    def _made(self, bits: int, *, simulation: bool) -> KeyPair:
        pair = KeyPair.generate(bits, simulation=simulation)
        self.known[pair.public.key_id.hex()] = pair
        return pair


class Deployment:
    """Both servers as processes, which are used for many schedules, one after the other.

    Args:
        path: An empty folder.
        database: The address of an empty PostgreSQL database, for the data of both servers.
    """

    def __init__(self, path: Path, database: str | None = None) -> None:
        self.path = path
        self.runner = Runner()
        self.over: set[bytes] = set()
        """The queries of the schedules before."""
        self.schedules = 0
        self.kills = {KEYS: 0, AGGREGATION: 0}
        self.servers = ServerPair(
            path,
            clock=START,
            key_bits=BITS,
            keys_options=(
                *("--min-honest", "2", "--min-liars-share", "0", "--min-cohort-share", "0"),
                *("--membership-days", str(MEMBERSHIP.days), *LOGGING),
            ),
            aggregation_options=LOGGING,
            database=database,
        )
        self.processes = {KEYS: self.servers.keys, AGGREGATION: self.servers.aggregation}
        passphrase = self.servers.passphrase
        self.folder = Made(self.servers.keys_folder, bits=BITS, simulation=True, database=database)
        self.folder.known = {}
        with self.folder.served(passphrase, now=lambda: START) as server:
            self.identity = server.identity
        storage = Identity.load(self.servers.keys_folder / "identity", passphrase).storage_key()
        self.query_keys = QueryKeyStore(self.servers.keys_folder / "queries", storage)
        self._channels: list[grpc.aio.Channel] = []
        self._database = database
        self._readers: dict[FileFormat, Reader | SqlDatabase] = {}
        self.calls: Mapping[str, Callable[..., Any]] = {}

    def restart(self, party: str) -> None:
        self.processes[party].restart()
        self.runner.run(self.connect())

    async def connect(self) -> None:
        """Call anew: a channel waits long for somebody who was away."""
        await self._hang_up()
        servers = self.servers
        endpoints = (servers.enrolment, servers.collecting, servers.counting, servers.deciding)
        self._channels = [endpoint.channel() for endpoint in endpoints]
        phones, collecting, analysts, decisions = self._channels
        enrolment = services.EnrolmentStub(phones)
        collects = services.CollectingStub(collecting)
        counting = services.CountingStub(analysts)
        self.calls = {
            "Join": enrolment.Join, "Renew": enrolment.Renew, "Leave": enrolment.Leave,
            "Announcements": collects.Announcements, "Query": collects.Query, "Key": collects.Key,
            "Contribute": collects.Contribute, "Decisions": collects.Decisions, "GetTerms": counting.GetTerms,
            "Announce": counting.Announce, "Status": counting.Status, "Abort": counting.Abort,
            "Decide": services.DecidingStub(decisions).Decide,
        }  # fmt: skip

    async def _hang_up(self) -> None:
        for each in self._channels:
            await each.close()

    def clock(self, party: str) -> dt.datetime:
        now = self.processes[party].clock
        assert now is not None
        return now

    def move(self, party: str, seconds: float) -> None:
        """Set a server's clock forward."""
        self.processes[party].move_clock(self.clock(party) + dt.timedelta(seconds=seconds))

    def read(self, data: FileFormat, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What a server's data is at present."""
        if data not in self._readers:
            path = self.servers.journal if data is JOURNAL else self.servers.database
            self._readers[data] = Reader(path, data) if self._database is None else open_database(self._database, data)
        with self._readers[data].reading() as run:
            return run(sql, values).fetchall()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self.runner.run(self._hang_up())


@contextlib.contextmanager
def deployed(path: Path, database: str | None = None) -> Iterator[Deployment]:
    """A deployment in an empty folder, of which both servers serve."""
    made = Deployment(path, database)
    with made.runner, launched(made.servers), closing(made):
        made.runner.run(made.connect())
        yield made


async def answered_in_time(call: Callable[..., Any], message: Any) -> Any:
    return await reply_of(call(message, timeout=DEADLINE))


class Processes(World):
    """One schedule of a deployment: its own phones and queries."""

    most_rotations = 1

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment.runner)
        self._deployment = deployment
        self._ahead: dict[str, dt.timedelta] = defaultdict(dt.timedelta)
        self._settled = False
        self._moments = 0
        deployment.schedules += 1

    def close(self) -> None:
        for device in self.devices:
            device.close()
        with closing(self._deployment.folder.journal()) as journal:
            for phone in self.evidence.members:
                administration.revoke(journal, phone)
        self._deployment.over.update(self.evidence.queries)

    @property
    def identity(self) -> bytes:
        return self._deployment.identity

    def name_of(self, thing: int | str) -> str:
        return f"{self._deployment.schedules}-{thing}"

    def is_ours(self, query: bytes) -> bool:
        return query not in self._deployment.over

    def now(self, party: str) -> dt.datetime:
        if party in self._deployment.processes:
            return self._deployment.clock(party)
        return self._deployment.clock(AGGREGATION) + self._ahead[party]

    def pass_time(self, seconds: float, *, ahead: str = "", by: float = 0.0) -> None:
        for party in (KEYS, AGGREGATION):
            self._deployment.move(party, seconds + (by if party == ahead else 0.0))
        if ahead not in {"", KEYS, AGGREGATION}:
            self._ahead[ahead] += dt.timedelta(seconds=by)
        self._settled = False

    async def deliver(self, call: str, message: Message) -> Message:
        self._settled = False
        return cast("Message", await answered_in_time(self._deployment.calls[call], message))

    async def deliver_killed(self, call: str, message: Message, kill: Kill) -> Message:
        party = KEYS if call in {"Join", "Renew", "Leave"} else AGGREGATION
        if not self._may_kill(party):
            return await self.deliver(call, message)
        answer = asyncio.create_task(self.deliver(call, message))
        self._moments += 1
        moment = self._moments * 0.618 % 1  # spread over the time that an answer takes
        await asyncio.sleep(MAX_WHILE_ANSWERING * moment if kill.after else 0)
        process = self._deployment.processes[party]
        await asyncio.to_thread(process.kill)
        await asyncio.wait([answer])
        await asyncio.to_thread(process.start)
        await self._deployment.connect()
        return await answer

    def kill(self, party: str) -> None:
        if self._may_kill(party):
            self._deployment.restart(party)

    def _may_kill(self, party: str) -> bool:
        if self._deployment.kills[party] >= KILLS_A_SCHEDULE[party] * self._deployment.schedules:
            return False
        self._deployment.kills[party] += 1
        self.seen[f"{party} died"] += 1
        return True

    # What the servers do on their own; only their deaths are ours.

    def countersign(self, fault: Fault) -> None:
        if fault.kills:
            self.kill(KEYS)

    def close_due(self, kill: Kill | None) -> None:
        if kill is not None:
            self.kill(AGGREGATION)

    def decide(self, fault: Fault, which: int) -> None:
        if fault.kills:
            self.kill(KEYS if which % 2 else AGGREGATION)

    async def ask_to_decide(self, head: wire.DecideHead, receipts: Sequence[wire.Receipt]) -> wire.Decision:
        async def messages() -> Any:
            yield wire.DecideRequest(head=head)
            yield wire.DecideRequest(receipts=wire.Receipts(receipts=receipts))

        return cast("wire.Decision", await answered_in_time(self._deployment.calls["Decide"], messages()))

    def terms(self) -> wire.Terms:
        """The aggregation server may have to find its way to the key server again."""
        for _ in self._until("the key server answers"):
            with contextlib.suppress(Refused, Unreachable):
                return super().terms()
        raise AssertionError

    def ask(self, call: str, message: Message, fault: Fault = Fault.NONE) -> Message | None:
        try:
            return super().ask(call, message, fault)
        except Refused as refused:
            if call == "Announce" and refused.refusal is Refusal.UNAVAILABLE:
                return None
            raise

    def settle(self) -> None:
        self.pass_time(LEASE.total_seconds())  # in PostgreSQL, what a killed server was sending stays leased to it
        for _ in self._until("all is countersigned, closed and decided"):
            waiting = [
                number
                for digest, number in self.collected(WAITING, milliseconds(self._deployment.clock(AGGREGATION)))
                if self.is_ours(digest)
            ]
            if not waiting:
                break
        self._settled = True

    def _until(self, what: str) -> Iterator[None]:
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            yield
            time.sleep(PAUSE)
        raise AssertionError(f"not within {TIMEOUT:g} s: {what}")

    # The key server's operator.

    def invitation(self) -> Invitation:
        with closing(self._deployment.folder.journal()) as journal:
            expires = self.now(KEYS) + dt.timedelta(days=365)
            [token] = administration.invite(journal, 1, expires=expires)
        return Invitation(token, self.identity, "no certificate", "localhost:1", "localhost:2")

    def revoke(self, phone: bytes) -> None:
        with closing(self._deployment.folder.journal()) as journal:
            administration.revoke(journal, phone)

    def rotate(self, kill: Kill | None) -> None:
        self._settled = False
        self._deployment.folder.rotate(self._deployment.servers.passphrase, lambda: self.now(KEYS))
        if kill is not None:
            self.kill(KEYS)

    # What can be seen.

    def journal(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._deployment.read(JOURNAL, sql, values)

    def collected(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._deployment.read(FORMAT, sql, values)

    def pair(self, key_id: str) -> KeyPair:
        return self._deployment.folder.known[key_id]

    def query_key(self, query: bytes) -> AgreementKey:
        return self._deployment.query_keys.get(query)

    def query_keys_kept(self) -> set[bytes] | None:
        if not self._settled:
            return None
        kept = (bytes.fromhex(file.stem) for file in (self._deployment.servers.keys_folder / "queries").glob("*.key"))
        return {query for query in kept if self.is_ours(query)}

    def pairs_kept(self) -> set[str] | None:
        if not self._settled:
            return None
        return {file.stem for file in (self._deployment.servers.keys_folder / "pairs").glob("*.key")}

    def decryptions(self, query: bytes, cohort: int) -> int | None:
        del query, cohort
        return None

    def place_of(self, number: int) -> Path:
        return self._deployment.path / f"phone-{self._deployment.schedules}-{number}"


WAITING = """
SELECT digest, number FROM queries
WHERE (phase = 1 AND refusal IS NULL) OR (phase = 2 AND closes <= ?) OR phase = 3
"""
