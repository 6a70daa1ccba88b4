"""Whatever strangers send to either server: a typed refusal, and nothing has changed."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import random
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reticent.paillier import PublicKey
from reticent.privacy import Counter as Asking
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, SigningKey, Unreachable, statements
from reticent.protocol.calls import REFUSAL, answered, failure_of
from reticent.protocol.layout import ciphertexts_to
from reticent.server import certificates
from reticent.server.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from tests.keys.phones import Phone
from tests.system.callers import in_turn, message_of
from tests.system.processes import ANALYST, PATIENCE, Process, Servers, reticent, running

START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
PHONES = 8
OPTIONS = ("--least-honest", "2", "--membership-days", "1")
LARGEST = 1 << 20

ENROLMENT = {"Join": wire.JoinRequest, "Renew": wire.RenewRequest, "Leave": wire.LeaveRequest}
DECIDING = {"Standing": wire.StandingRequest, "Countersign": wire.CountersignRequest, "Decide": wire.DecideRequest}
COLLECTING = {
    "Announcements": wire.AnnouncementsRequest,
    "Key": wire.KeyRequest,
    "Contribute": wire.Contribution,
    "Decisions": wire.DecisionsRequest,
}
COUNTING = {
    "Standing": wire.StandingRequest,
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
class City:
    """Both servers with phones of every kind, a query that collects and one that is decided."""

    servers: Servers
    phones: list[Phone]
    revoked: Phone
    left: Phone
    expired: Phone
    late_invitation: bytes
    spare: bytes
    """An invitation that nobody has taken."""
    key: PublicKey
    open: Query
    closed: Query
    cohorts: dict[tuple[str, bytes], int]
    """Of a query's id and a phone."""
    first: wire.Contribution = dataclasses.field(default_factory=wire.Contribution)
    """What the first phone has contributed to the open query."""

    def place(self, service: str) -> tuple[Process, str]:
        """The server of a service, and its address there."""
        process = self.servers.keys if service in {"Enrolment", "Deciding"} else self.servers.aggregation
        return process, process.phones if SHOWN[service] is None else process.others

    @contextlib.contextmanager
    def channel(self, service: str, name: str | None = "") -> Iterator[grpc.Channel]:
        """As those who may call a service, or as the party of this name."""
        shown = SHOWN[service] if name == "" else name
        with grpc.secure_channel(self.place(service)[1], self.servers.credentials(shown)) as made:
            yield made

    def said(self, number: int, query: Query | None = None, **changes: Any) -> wire.Contribution:
        """What a phone contributes, signed with what was changed."""
        asked = query or self.open
        phone = self.phones[number]
        cohort = self.cohorts[asked.id, phone.id]
        made = phone.contribution(asked, self.key, cohort, (1,))
        message = message_of(asked, phone, cohort, made, ciphertexts_to(made.ciphertexts, self.key))
        for name, value in changes.items():
            setattr(message, name, value)
        if changes:
            message.signature = phone.signing.sign(statement_of(message, asked))
        return message

    def dumps(self) -> list[str]:
        """All that both servers have written down."""
        return [*dump(self.servers.journal), *dump(self.servers.database)]


def statement_of(message: wire.Contribution, query: Query) -> bytes:
    contents = statements.ciphertexts_hash(message.ciphertexts)
    return statements.contribution(
        query.digest, query.key_id, message.phone, message.cohort, contents, seeded=message.seeded
    )


def dump(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def call(channel: grpc.Channel, method: str, chunks: Sequence[bytes]) -> list[bytes]:
    """Send messages, whatever they are; what comes back. Raises Refused or Unreachable.

    Whatever the servers themselves refuse says so in the trailing metadata.
    """
    asking: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/reticent.v1.{method}")
    said = asking(iter(chunks), timeout=PATIENCE)
    try:
        return list(said)
    except grpc.RpcError as error:
        failure = failure_of(error)
        own = "larger than max" in str(failure) or "Concurrent RPC limit" in str(failure)  # gRPC's own refusals
        if isinstance(failure, Refused) and not own:
            assert dict(said.trailing_metadata())[REFUSAL] == failure.refusal.name
        raise failure from error


def join(servers: Servers, tokens: Sequence[bytes]) -> list[Phone]:
    phones = [Phone(token) for token in tokens]
    with grpc.secure_channel(servers.keys.phones, servers.credentials()) as channel:
        for phone in phones:
            [answer] = call(channel, "Enrolment/Join", [phone.joining().SerializeToString()])
            phone.membership = wire.Membership.FromString(answer)
    return phones


def ask(servers: Servers, query_id: str, key: PublicKey, seconds: int, population: int = PHONES) -> Query:
    """Have a query announced."""
    query = question(query_id, key.key_id.hex(), seconds, population)
    with grpc.secure_channel(servers.aggregation.others, servers.credentials(ANALYST)) as channel:
        [answer] = call(
            channel, "Counting/Announce", [wire.AnnounceRequest(query=query.to_bytes()).SerializeToString()]
        )
    assert wire.QueryStatus.FromString(answer).phase == wire.COLLECTING
    return query


def question(query_id: str, key_id: str, seconds: int = 3600, population: int = PHONES, **changes: Any) -> Query:
    parts: dict[str, Any] = {
        "id": query_id,
        "counters": [Asking("visits", 0, 1)],
        "epsilon": 1.0,
        "delta": 1e-5,
        "l2_squared": 1,
        "l1": 1,
        "noise": "skellam",
        "population": population,
        "cohorts": 2,
        "fewest": 3,
        "liars": 0,
        "key_id": key_id,
        "closes_after": seconds,
    }
    return Query(**parts | changes)


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    with running(tmp_path_factory.mktemp("strangers"), clock=START, keys_options=OPTIONS) as servers:
        tokens = [each.token for each in servers.invitations(PHONES + 4)]
        [late] = servers.invitations(1, days=1)
        spare, *tokens = tokens
        [expired] = join(servers, tokens[:1])
        servers.move(START + dt.timedelta(days=2))
        revoked, left, *phones = join(servers, tokens[1:])
        reticent("keys", "revoke", revoked.id.hex(), "--folder", servers.journal.parent, folder=servers.folder)
        with grpc.secure_channel(servers.keys.phones, servers.credentials()) as channel:
            call(channel, "Enrolment/Leave", [left.leaving().SerializeToString()])
        with grpc.secure_channel(servers.aggregation.others, servers.credentials(ANALYST)) as channel:
            [answer] = call(channel, "Counting/Standing", [b""])
        key = PublicKey.from_bytes(wire.Terms.FromString(answer).public_key, simulation=True)
        closed, still = ask(servers, "closed", key, 60), ask(servers, "open", key, 12 * 3600)
        cohorts = {}
        with contextlib.closing(sqlite3.connect(servers.database)) as database:
            rows = database.execute("SELECT id, phone, cohort FROM dealt JOIN queries ON number = query")
            cohorts = {(query, phone): cohort for query, phone, cohort in rows}
        made = City(servers, phones, revoked, left, expired, late.token, spare, key, still, closed, cohorts)
        made.first = made.said(0)
        with made.channel("Collecting") as channel:
            call(channel, "Collecting/Contribute", [made.first.SerializeToString()])
        servers.move(START + dt.timedelta(days=2, hours=1))
        wait_for_decisions(servers, closed)
        yield made


def wait_for_decisions(servers: Servers, query: Query) -> None:
    """Return when all cohorts of a query are decided, after which neither server does anything of its own accord."""
    wanted = [wire.DecisionWanted(query=query.digest, cohort=cohort) for cohort in range(query.cohorts)]
    asked = wire.DecisionsRequest(wanted=wanted).SerializeToString()
    until = time.monotonic() + PATIENCE
    with grpc.secure_channel(servers.aggregation.phones, servers.credentials()) as channel:
        while time.monotonic() < until:
            [answer] = call(channel, "Collecting/Decisions", [asked])
            if len(wire.DecisionsReply.FromString(answer).decisions) == query.cohorts:
                return
            time.sleep(0.05)
    raise TimeoutError(f"{query.id} is not decided")


def still_serves(city: City) -> None:
    """Both servers do for an honest phone what they did before."""
    with city.channel("Collecting") as channel:
        asked = wire.AnnouncementsRequest(phone=city.phones[1].id).SerializeToString()
        [answer] = call(channel, "Collecting/Announcements", [asked])
        [announcement] = wire.AnnouncementsReply.FromString(answer).announcements
        assert announcement.query == city.open.to_bytes()
        [acknowledged] = call(channel, "Collecting/Contribute", [city.first.SerializeToString()])
        name = statements.digest(statement_of(city.first, city.open))
        assert wire.Acknowledgement.FromString(acknowledged).contribution == name
    with city.channel("Enrolment") as channel:
        phone = city.phones[1]
        [renewed] = call(channel, "Enrolment/Renew", [phone.renewing().SerializeToString()])
        assert wire.Membership.FromString(renewed).phone == phone.id


@pytest.fixture(autouse=True)
def unchanged(city: City) -> Iterator[None]:
    """Whatever a test sends: both servers have written down nothing, and go on serving."""
    before = city.dumps()
    yield
    assert city.dumps() == before
    still_serves(city)
    assert city.servers.keys.runs
    assert city.servers.aggregation.runs


def resigned(city: City, **changes: Any) -> wire.JoinRequest:
    """A request to join of an invitation that is open, changed and then signed."""
    phone = Phone(city.spare)
    request = phone.joining()
    for name, value in changes.items():
        setattr(request, name, value)
    statement = statements.joining(request.invitation, request.verify_key, request.agreement_key)
    request.signature = phone.signing.sign(statement)
    return request


def changed(message: Any, **changes: Any) -> Any:
    """A message, changed after it was signed."""
    made = type(message).FromString(message.SerializeToString())
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def twelve_hundred(city: City) -> wire.DecisionsRequest:
    wanted = wire.DecisionWanted(query=city.open.digest)
    return wire.DecisionsRequest(wanted=[wanted] * 1200)


def asking(city: City, **changes: Any) -> bytes:
    """The bytes of a query that is open, with changes."""
    return dataclasses.replace(city.open, **changes).to_bytes()


def head(city: City, **changes: Any) -> wire.DecideRequest:
    """The head of a request about a cohort that collects, with a ciphertext that is one."""
    parts: dict[str, Any] = {"query": city.open.digest, "contributors": 4, "ciphertexts": (1).to_bytes(256, "big")}
    return wire.DecideRequest(head=wire.DecideHead(**parts | changes))


def renewing_at(phone: Phone, expires: int) -> wire.RenewRequest:
    """What a phone signs that believes that its membership expires then."""
    signature = phone.signing.sign(statements.renewal(phone.id, expires))
    return wire.RenewRequest(phone=phone.id, expires=expires, signature=signature)


NOBODY = bytes(range(16))
OTHER = SigningKey()
SHORT = b"short"

Bad = tuple[str, Callable[[City], Message | Sequence[Message]], Refusal]
R = Refusal
BAD: dict[str, Bad] = {
    # Joining, and what comes after.
    "join: nothing": ("Enrolment/Join", lambda _: wire.JoinRequest(), R.MALFORMED),
    "join: a short token": ("Enrolment/Join", lambda c: resigned(c, invitation=SHORT), R.MALFORMED),
    "join: a short key": ("Enrolment/Join", lambda c: resigned(c, verify_key=SHORT), R.MALFORMED),
    "join: a weak key": ("Enrolment/Join", lambda c: resigned(c, agreement_key=bytes(32)), R.MALFORMED),
    "join: unsigned": ("Enrolment/Join", lambda c: changed(resigned(c), signature=bytes(64)), R.BAD_SIGNATURE),
    "join: with another's key": ("Enrolment/Join", lambda c: resigned(c, verify_key=OTHER.public), R.BAD_SIGNATURE),
    "join: uninvited": ("Enrolment/Join", lambda c: resigned(c, invitation=bytes(16)), R.INVITATION),
    "join: too late": ("Enrolment/Join", lambda c: Phone(c.late_invitation).joining(), R.INVITATION),
    "join: in another's place": ("Enrolment/Join", lambda c: Phone(c.phones[0].token).joining(), R.INVITATION),
    "join: revoked": ("Enrolment/Join", lambda c: c.revoked.joining(), R.REVOKED),
    "join: gone": ("Enrolment/Join", lambda c: c.left.joining(), R.REVOKED),
    "join: expired": ("Enrolment/Join", lambda c: c.expired.joining(), R.EXPIRED),
    "renew: nobody": ("Enrolment/Renew", lambda c: changed(c.phones[0].renewing(), phone=NOBODY), R.UNKNOWN_PHONE),
    "renew: a short id": ("Enrolment/Renew", lambda c: changed(c.phones[0].renewing(), phone=SHORT), R.MALFORMED),
    "renew: unsigned": (
        "Enrolment/Renew",
        lambda c: changed(c.phones[0].renewing(), signature=bytes(64)),
        R.BAD_SIGNATURE,
    ),
    "renew: another time": ("Enrolment/Renew", lambda c: renewing_at(c.phones[0], 1), R.CONFLICT),
    "renew: revoked": ("Enrolment/Renew", lambda c: c.revoked.renewing(), R.REVOKED),
    "renew: expired": ("Enrolment/Renew", lambda c: c.expired.renewing(), R.EXPIRED),
    "leave: nobody": ("Enrolment/Leave", lambda c: changed(c.phones[0].leaving(), phone=NOBODY), R.UNKNOWN_PHONE),
    "leave: by another": (
        "Enrolment/Leave",
        lambda c: changed(c.phones[0].leaving(), signature=c.phones[1].leaving().signature),
        R.BAD_SIGNATURE,
    ),
    # Contributing.
    "contribute: nothing": ("Collecting/Contribute", lambda _: wire.Contribution(), R.MALFORMED),
    "contribute: a short id": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=SHORT), R.MALFORMED),
    "contribute: a short signature": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=SHORT),
        R.MALFORMED,
    ),
    "contribute: to nothing": ("Collecting/Contribute", lambda c: changed(c.said(1), query=bytes(32)), R.UNKNOWN_QUERY),
    "contribute: nobody": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=NOBODY), R.NOT_ASKED),
    "contribute: revoked": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=c.revoked.id), R.NOT_ASKED),
    "contribute: elsewhere": ("Collecting/Contribute", lambda c: c.said(1, cohort=7), R.WRONG_COHORT),
    "contribute: unsigned": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=bytes(64)),
        R.BAD_SIGNATURE,
    ),
    "contribute: for another": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=c.said(2).signature),
        R.BAD_SIGNATURE,
    ),
    "contribute: seeded after all": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), seeded=True),
        R.BAD_SIGNATURE,
    ),
    "contribute: too little": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=b""), R.BAD_CIPHERTEXTS),
    "contribute: too much": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(512)), R.BAD_CIPHERTEXTS),
    "contribute: zero": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(256)), R.BAD_CIPHERTEXTS),
    "contribute: too large a number": (
        "Collecting/Contribute",
        lambda c: c.said(1, ciphertexts=b"\xff" * 256),
        R.BAD_CIPHERTEXTS,
    ),
    "contribute: a factor": (
        "Collecting/Contribute",
        lambda c: c.said(1, ciphertexts=c.key.n.to_bytes(256, "big")),
        R.BAD_CIPHERTEXTS,
    ),
    "contribute: something else": ("Collecting/Contribute", lambda c: c.said(0), R.CONFLICT),
    "contribute: late": ("Collecting/Contribute", lambda c: c.said(1, query=c.closed), R.LATE),
    "contribute: oversized": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(LARGEST)), R.OVERSIZED),
    # Asking the aggregation server.
    "announcements: a short id": (
        "Collecting/Announcements",
        lambda _: wire.AnnouncementsRequest(phone=SHORT),
        R.MALFORMED,
    ),
    "key: another": ("Collecting/Key", lambda _: wire.KeyRequest(key_id=bytes(32)), R.KEY_RETIRED),
    "decisions: too many": ("Collecting/Decisions", twelve_hundred, R.OVERSIZED),
    "announce: nothing": ("Counting/Announce", lambda _: wire.AnnounceRequest(), R.BAD_QUERY),
    "announce: garbage": ("Counting/Announce", lambda _: wire.AnnounceRequest(query=bytes(90)), R.BAD_QUERY),
    "announce: the name of another": (
        "Counting/Announce",
        lambda c: wire.AnnounceRequest(query=asking(c, epsilon=0.5)),
        R.CONFLICT,
    ),
    "announce: another key": (
        "Counting/Announce",
        lambda c: wire.AnnounceRequest(query=asking(c, id="new", key_id=bytes(32).hex())),
        R.KEY_RETIRED,
    ),
    "status: of nothing": ("Counting/Status", lambda _: wire.StatusRequest(id="nothing"), R.UNKNOWN_QUERY),
    "abort: nothing": ("Counting/Abort", lambda _: wire.AbortRequest(id="nothing"), R.UNKNOWN_QUERY),
    # Asking the key server.
    "countersign: nothing": ("Deciding/Countersign", lambda _: wire.CountersignRequest(), R.BAD_QUERY),
    "countersign: the name of another": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, epsilon=0.5)),
        R.CONFLICT,
    ),
    "countersign: another key": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", key_id=bytes(32).hex())),
        R.KEY_RETIRED,
    ),
    "countersign: too many": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", population=1000, fewest=400)),
        R.NOT_ENROLLED_ENOUGH,
    ),
    "countersign: too dear": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", epsilon=10.0)),
        R.BAD_QUERY,
    ),
    "decide: nothing": ("Deciding/Decide", lambda _: [], R.MALFORMED),
    "decide: no head": ("Deciding/Decide", lambda _: wire.DecideRequest(receipts=wire.Receipts()), R.MALFORMED),
    "decide: two heads": ("Deciding/Decide", lambda c: [head(c), head(c)], R.MALFORMED),
    "decide: no query": ("Deciding/Decide", lambda c: head(c, query=bytes(32)), R.UNKNOWN_QUERY),
    "decide: no cohort": ("Deciding/Decide", lambda c: head(c, cohort=9), R.MALFORMED),
    "decide: no receipts": ("Deciding/Decide", head, R.BAD_RECEIPTS),
    "decide: zero": ("Deciding/Decide", lambda c: head(c, ciphertexts=bytes(256)), R.BAD_CIPHERTEXTS),
    "decide: again": (
        "Deciding/Decide",
        lambda c: head(c, query=c.closed.digest, contributors=0),
        R.ALREADY_DECIDED,
    ),
}


def sent(city: City, method: str, messages: Message | Sequence[Message], name: str | None = "") -> list[bytes]:
    """Say something, as who may or as the party of this name."""
    said = [messages] if isinstance(messages, Message) else messages
    with city.channel(method.partition("/")[0], name) as channel:
        return call(channel, method, [each.SerializeToString() for each in said])


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_bad_is_refused_for_its_reason(city: City, bad: Bad) -> None:
    method, message, refusal = bad
    with pytest.raises(Refused) as refused:
        sent(city, method, message(city))
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_read_is_malformed(city: City, method: str) -> None:
    with city.channel(method.partition("/")[0]) as channel, pytest.raises(Refused) as refused:
        call(channel, method, [b"\xff\xff\xff"])
    assert refused.value.refusal is Refusal.MALFORMED


@pytest.mark.parametrize("method", METHODS)
def test_what_is_too_large_is_oversized(city: City, method: str) -> None:
    with city.channel(method.partition("/")[0]) as channel, pytest.raises(Refused) as refused:
        call(channel, method, [bytes(LARGEST + 1)])
    assert refused.value.refusal is Refusal.OVERSIZED


@pytest.mark.parametrize("method", METHODS)
def test_random_bytes_get_a_typed_refusal_or_an_answer_that_changes_nothing(city: City, method: str) -> None:
    with city.channel(method.partition("/")[0]) as channel:

        @settings(suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.binary(max_size=200), max_size=3))
        def send(chunks: list[bytes]) -> None:
            with contextlib.suppress(Refused):  # anything else is a fault
                call(channel, method, chunks)

        send()


@pytest.mark.parametrize("method", ["Enrolment/Join", "Enrolment/Renew", "Enrolment/Leave", "Collecting/Contribute"])
def test_a_phones_message_in_which_a_byte_is_wrong_is_refused(city: City, method: str) -> None:
    good = {
        "Enrolment/Join": Phone(city.spare).joining(),
        "Enrolment/Renew": city.phones[1].renewing(),
        "Enrolment/Leave": city.phones[1].leaving(),
        "Collecting/Contribute": city.said(1),
    }[method].SerializeToString()
    with city.channel(method.partition("/")[0]) as channel:

        @given(place=st.integers(0, len(good) - 1), other=st.integers(1, 255))
        def send(place: int, other: int) -> None:
            damaged = bytearray(good)
            damaged[place] ^= other
            with pytest.raises(Refused):
                call(channel, method, [bytes(damaged)])

        send()


NAMES = [("Deciding", ANALYST), ("Deciding", "keys"), ("Counting", "aggregation"), ("Counting", "keys")]


@pytest.mark.parametrize(("service", "name"), NAMES)
def test_the_certificate_of_another_role_is_not_permitted(city: City, service: str, name: str) -> None:
    for method in SERVICES[service]:
        with pytest.raises(Refused) as refused:
            sent(city, f"{service}/{method}", SERVICES[service][method](), name)
        assert refused.value.refusal is Refusal.NOT_PERMITTED


@pytest.mark.parametrize("service", ["Deciding", "Counting"])
def test_nobody_without_a_certificate_is_heard(city: City, service: str) -> None:
    for method in SERVICES[service]:
        with pytest.raises(Unreachable):
            sent(city, f"{service}/{method}", SERVICES[service][method](), None)


@pytest.mark.parametrize("service", ["Deciding", "Counting"])
def test_phones_addresses_have_nothing_for_others(city: City, service: str) -> None:
    process, _ = city.place(service)
    name = SHOWN[service]
    for method, kind in SERVICES[service].items():
        with (
            grpc.secure_channel(process.phones, city.servers.credentials(name)) as channel,
            pytest.raises(Unreachable, match="UNIMPLEMENTED"),
        ):
            call(channel, f"{service}/{method}", [kind().SerializeToString()])


@pytest.mark.parametrize("service", SERVICES)
def test_a_foreign_authority_is_worth_nothing(city: City, service: str, tmp_path: Path) -> None:
    """Neither to the servers, that do not know its certificates, nor to callers, that do not trust the servers then."""
    certificates.create(tmp_path / "certs", hosts=["127.0.0.1"], analysts=[ANALYST], days=2)
    foreign = Certificate.load(tmp_path / "certs", SHOWN[service] or "aggregation")
    trusting = grpc.ssl_channel_credentials(city.servers.authority, foreign.key, foreign.certificate)
    ways = [foreign.channel_credentials(), certificates.channel_credentials(foreign.authority)]
    if SHOWN[service] is not None:  # phones' addresses look at no certificates
        ways.append(trusting)
    for way in ways:
        for method, kind in SERVICES[service].items():
            with grpc.secure_channel(city.place(service)[1], way) as channel, pytest.raises(Unreachable):
                call(channel, f"{service}/{method}", [kind().SerializeToString()])


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_said_in_the_clear(city: City, service: str) -> None:
    for method, kind in SERVICES[service].items():
        with grpc.insecure_channel(city.place(service)[1]) as channel, pytest.raises(Unreachable):
            call(channel, f"{service}/{method}", [kind().SerializeToString()])


PLAIN = {
    "nothing": b"",
    "a page, please": b"GET / HTTP/1.1\r\nHost: reticent\r\n\r\n",
    "gRPC in the clear": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "half a greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a greeting that never ends": b"\x16\x03\x01\xff\xff" + bytes(1 << 16),
    "noise": random.Random(1).randbytes(100_000),  # noqa: S311  # to be replayed
}


@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("service", SERVICES)
def test_plain_connections_come_to_nothing(city: City, service: str, content: bytes) -> None:
    host, _, port = city.place(service)[1].rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
            with contextlib.suppress(OSError):  # the server may have hung up
                raw.sendall(content)
                raw.shutdown(socket.SHUT_WR)
            raw.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                answer = raw.recv(1 << 16)
                assert b"reticent" not in answer


CONNECTIONS, FLOOD, AT_A_TIME = 32, 8000, 3000
FLOODS = 3
FLOODED = 16 << 10  # bytes of a message
KNOWN = 4096  # calls that gRPC takes in before it lets go of some by itself
A_CALL = 64 << 10
"""What there is of such a call at most: HTTP/2 lets a caller send so much that nobody has asked for."""
KEPT = 16 << 20
"""By how much further floods may leave a server larger: what allocators do, and no leak of calls or messages."""


async def flood(city: City, address: str, method: str, content: bytes) -> Counter[Refusal]:
    """Make so many calls at a time, until there were FLOOD of them: how often each refusal came."""
    found: Counter[Refusal] = Counter()
    channels = [city.servers.channel(address) for _ in range(CONNECTIONS)]
    calls: list[Any] = [channel.unary_unary(f"/reticent.v1.{method}") for channel in channels]

    async def once(number: int) -> None:
        with pytest.raises(Refused) as refused:
            await answered(calls[number % CONNECTIONS](content, timeout=PATIENCE))
        found[refused.value.refusal] += 1
        if refused.value.refusal is Refusal.BUSY:
            assert refused.value.retry_after

    async with contextlib.AsyncExitStack() as stack:
        for channel in channels:
            await stack.enter_async_context(channel)
        await in_turn([partial(once, number) for number in range(FLOOD)], AT_A_TIME)
    return found


def still_serves_soon(city: City) -> None:
    """Honest phones are served again when they come back after the time that they are told."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return still_serves(city)
        except Refused as refused:
            if refused.refusal is not Refusal.BUSY or time.monotonic() > until:
                raise
            time.sleep(refused.retry_after or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Enrolment/Join", "Collecting/Contribute"])
def test_a_flood_is_told_to_come_back_and_takes_a_bounded_memory(city: City, method: str) -> None:
    """Thousands of calls at a time, on many connections.

    The server lets a bounded number inside, and asks only those for their messages. Of the others gRPC knows KNOWN,
    with what each has sent unasked. All that the floods bring is more than that: so nothing of it is kept for long, and
    what is left does not grow from flood to flood.
    """
    process, address = city.place(method.partition("/")[0])
    large = bytes(FLOODED)
    content = {
        "Enrolment/Join": wire.JoinRequest(invitation=NOBODY, signature=large),
        "Collecting/Contribute": wire.Contribution(
            query=city.open.digest, phone=NOBODY, ciphertexts=large, signature=bytes(64)
        ),
    }[method].SerializeToString()
    before, after = process.memory(), []
    process.forget_peak()
    with asyncio.Runner() as runner:
        for _ in range(FLOODS):
            answers = runner.run(flood(city, address, method, content))
            assert answers.total() == FLOOD
            assert set(answers) <= {Refusal.BUSY, Refusal.MALFORMED, Refusal.NOT_ASKED}
            assert answers[Refusal.BUSY] > FLOOD // 2
            after.append(process.memory())
            still_serves_soon(city)
    assert process.peak() - before < KNOWN * A_CALL < FLOODS * FLOOD * FLOODED
    assert after[-1] - after[0] < KEPT
