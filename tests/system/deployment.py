"""Both servers as real processes, with phones of every kind and queries, for those who send them anything."""

import contextlib
import dataclasses
import datetime as dt
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refused, statements
from reticent.protocol.calls import REFUSAL, failure_of
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent_sim.engine import ANALYST, Endpoint, ServerPair, ServerProcess, launched
from tests.parties.phone import Phone, joined
from tests.parties.queries import visits

TIMEOUT = 60.0
"""Seconds that a call may take."""
START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
PHONES = 8
OPTIONS = ("--min-honest", "2", "--min-liars-share", "0", "--membership-days", "1")
MAX_BYTES = 1 << 20

ENROLMENT = {"Join": wire.JoinRequest, "Renew": wire.RenewRequest, "Leave": wire.LeaveRequest}
DECIDING = {"GetTerms": wire.TermsRequest, "Countersign": wire.CountersignRequest, "Decide": wire.DecideRequest}
COLLECTING = {
    "Announcements": wire.AnnouncementsRequest,
    "Query": wire.QueryRequest,
    "Key": wire.KeyRequest,
    "Contribute": wire.Contribution,
    "Decisions": wire.DecisionsRequest,
}
COUNTING = {
    "GetTerms": wire.TermsRequest,
    "Announce": wire.AnnounceRequest,
    "Status": wire.StatusRequest,
    "Abort": wire.AbortRequest,
    "List": wire.ListRequest,
}
SERVICES: dict[str, dict[str, type[Message]]] = {
    "Enrolment": ENROLMENT,
    "Deciding": DECIDING,
    "Collecting": COLLECTING,
    "Counting": COUNTING,
}
SHOWN = {"Enrolment": None, "Deciding": "aggregation", "Collecting": None, "Counting": ANALYST}
"""Whose certificate must be shown for a service."""
METHODS = [f"{service}/{name}" for service, methods in SERVICES.items() for name in methods]


@dataclasses.dataclass
class Deployment:
    """Both servers with phones of every kind, a query that collects and one that is decided."""

    servers: ServerPair
    phones: list[Phone]
    revoked: Phone
    left: Phone
    expired: Phone
    late_invitation: bytes
    spare: Invitation
    """An invitation that nobody has taken."""
    key: PublicKey
    open: Query
    closed: Query
    cohorts: dict[tuple[str, bytes], int]
    """Of a query's id and a phone."""
    query_keys: dict[str, bytes]
    first: wire.Contribution = dataclasses.field(default_factory=wire.Contribution)
    """What the first phone has contributed to the open query."""

    def process(self, service: str) -> ServerProcess:
        """The server of a service."""
        return self.servers.keys if service in {"Enrolment", "Deciding"} else self.servers.aggregation

    def endpoint(self, service: str) -> Endpoint:
        """Where a service is."""
        endpoint: Endpoint = getattr(self.servers, service.lower())
        return endpoint

    @contextlib.contextmanager
    def channel(self, service: str, name: str | None = "") -> Iterator[grpc.Channel]:
        """As those who may call a service, or as the party of this name."""
        shown = SHOWN[service] if name == "" else name
        with self.endpoint(service).blocking_channel(self.servers.credentials(shown)) as made:
            yield made

    def said(self, number: int, query: Query | None = None, **changes: Any) -> wire.Contribution:
        """What a phone contributes, signed with what was changed."""
        asked = query or self.open
        phone = self.phones[number]
        cohort = self.cohorts[asked.id, phone.id]
        message = phone.message(asked, self.key, self.query_keys[asked.id], cohort, (1,))
        for name, value in changes.items():
            setattr(message, name, value)
        if changes:
            message.signature = phone.signing.sign(statement_of(message, asked))
        return message

    def dumps(self) -> list[str]:
        """All that both servers have written down."""
        return [*dump(self.servers.journal), *dump(self.servers.database)]


def statement_of(message: wire.Contribution, query: Query) -> bytes:
    return statements.contribution(message, query.key_id)


def dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def call(channel: grpc.Channel, method: str, chunks: Sequence[bytes]) -> list[bytes]:
    """Send messages, whatever they are; what comes back. Raises Refused or Unreachable.

    Whatever the servers themselves refuse says so in the trailing metadata.
    """
    asking: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/reticent.v1.{method}")
    said = asking(iter(chunks), timeout=TIMEOUT)
    try:
        return list(said)
    except grpc.RpcError as error:
        failure = failure_of(error)
        own = "larger than max" in str(failure) or "Concurrent RPC limit" in str(failure)  # gRPC's own refusals
        if isinstance(failure, Refused) and not own:
            assert dict(said.trailing_metadata())[REFUSAL] == failure.refusal.name
        raise failure from error


def join(servers: ServerPair, invitations: Sequence[Invitation]) -> list[Phone]:
    with servers.enrolment.blocking_channel() as channel:
        return joined(channel, invitations)


def ask(servers: ServerPair, query_id: str, key: PublicKey, seconds: int, population: int = PHONES) -> Query:
    """Have a query announced."""
    query = visits(key, population, id=query_id, cohorts=2, min_contributions=3, closes_after=seconds)
    with servers.counting.blocking_channel() as channel:
        [answer] = call(
            channel, "Counting/Announce", [wire.AnnounceRequest(query=query.to_bytes()).SerializeToString()]
        )
    assert wire.QueryStatus.FromString(answer).phase == wire.COLLECTING
    return query


@contextlib.contextmanager
def inhabited(folder: Path) -> Iterator[Deployment]:
    """A deployment in an empty folder."""
    with launched(ServerPair(folder, clock=START, keys_options=OPTIONS)) as servers:
        spare, first, *others = servers.invitations(PHONES + 4)
        [late] = servers.invitations(1, days=1)
        [expired] = join(servers, [first])
        servers.move_clocks(START + dt.timedelta(days=2))
        revoked, left, *phones = join(servers, others)
        servers.run("keys", "revoke", revoked.id.hex())
        with servers.enrolment.blocking_channel() as channel:
            call(channel, "Enrolment/Leave", [left.leaving().SerializeToString()])
        with servers.counting.blocking_channel() as channel:
            [answer] = call(channel, "Counting/GetTerms", [b""])
        key = PublicKey.from_bytes(wire.Terms.FromString(answer).public_key, simulation=True)
        closed, still = ask(servers, "closed", key, 60), ask(servers, "open", key, 12 * 3600)
        cohorts = {}
        with contextlib.closing(sqlite3.connect(servers.database)) as database:
            rows = database.execute("SELECT id, phone, cohort FROM dealt JOIN queries ON number = query")
            cohorts = {(query, phone): cohort for query, phone, cohort in rows}
            query_keys = dict(database.execute("SELECT id, agreement_key FROM queries"))
        made = Deployment(
            servers, phones, revoked, left, expired, late.token, spare, key, still, closed, cohorts, query_keys
        )
        made.first = made.said(0)
        with made.channel("Collecting") as channel:
            call(channel, "Collecting/Contribute", [made.first.SerializeToString()])
        servers.move_clocks(START + dt.timedelta(days=2, hours=1))
        wait_for_decisions(servers, closed)
        still_serves(made)  # renewed once, a membership stays what it is while the clock stands still
        yield made


def wait_for_decisions(servers: ServerPair, query: Query) -> None:
    """Return when all cohorts of a query are decided, after which neither server does anything of its own accord."""
    wanted = [wire.DecisionWanted(query=query.digest, cohort=cohort) for cohort in range(query.cohorts)]
    asked = wire.DecisionsRequest(wanted=wanted).SerializeToString()
    until = time.monotonic() + TIMEOUT
    with servers.collecting.blocking_channel() as channel:
        while time.monotonic() < until:
            [answer] = call(channel, "Collecting/Decisions", [asked])
            if len(wire.DecisionsReply.FromString(answer).decisions) == query.cohorts:
                return
            time.sleep(0.05)
    raise TimeoutError(f"{query.id} is not decided")


def still_serves(target: Deployment) -> None:
    """Both servers do for an honest phone what they did before."""
    with target.channel("Collecting") as channel:
        asked = wire.AnnouncementsRequest(phone=target.phones[1].id).SerializeToString()
        [answer] = call(channel, "Collecting/Announcements", [asked])
        [announcement] = wire.AnnouncementsReply.FromString(answer).announcements
        assert announcement.query == target.open.digest
        [acknowledged] = call(channel, "Collecting/Contribute", [target.first.SerializeToString()])
        name = statements.digest(statement_of(target.first, target.open))
        assert wire.Acknowledgement.FromString(acknowledged).contribution == name
    with target.channel("Enrolment") as channel:
        phone = target.phones[1]
        [renewed] = call(channel, "Enrolment/Renew", [phone.renewing().SerializeToString()])
        assert wire.Membership.FromString(renewed).phone == phone.id


def sent(target: Deployment, method: str, messages: Message | Sequence[Message], name: str | None = "") -> list[bytes]:
    """Say something, as who may or as the party of this name."""
    said = [messages] if isinstance(messages, Message) else messages
    with target.channel(method.partition("/")[0], name) as channel:
        return call(channel, method, [each.SerializeToString() for each in said])
