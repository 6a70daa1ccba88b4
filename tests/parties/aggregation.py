"""An aggregation server in the process of the test, its key server, and phones that can be found in a sum."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reticent.privacy import Query
from reticent.protocol import Refused, SigningKey, statements
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to, plaintext_count
from reticent.randomness import seeded
from reticent.storage.database import Database
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.counting import closing
from reticent_agg.store import AggregationStore, Lease, WorkItem
from tests.parties.key_pairs import pair
from tests.parties.queries import visits

BITS = 2048
START = dt.datetime(2027, 2, 1, tzinfo=dt.UTC)
DIGIT = 16  # bits between the contributions of two phones in a plaintext
QUERY_KEY = bytes(range(32))  # by which nobody shares a secret here


class Time:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


class Phone:
    """The phone of a number: its share of every plaintext is a digit of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = number.to_bytes(16, "big")
        self.key = _key_of(number)

    def contribution(self, query: Query, *, attempt: int = 0, **others: Any) -> wire.Contribution:
        """A contribution; each attempt has other ciphertexts of the same plaintexts."""
        cohort = others.pop("cohort", cohort_of(query, self.number))
        ciphertexts = others.pop("ciphertexts", None)
        if ciphertexts is None:
            ciphertexts = ciphertexts_of(self.number, attempt, plaintext_count(query, pair(BITS).public.bits))
        message = wire.Contribution(
            query=query.digest,
            phone=others.pop("phone", self.id),
            cohort=cohort,
            agreement_key=others.pop("agreement_key", bytes([attempt]) * 32),
            ciphertexts=ciphertexts,
            seeded=others.pop("seeded", False),
        )
        statement = statements.contribution(message, query.key_id)
        message.signature = others.pop("signature", self.key.sign(statement))
        assert not others
        return message

    def fetching(self, query: Query) -> wire.QueryRequest:
        """The request for a query."""
        signature = self.key.sign(statements.fetching(query.digest, self.id))
        return wire.QueryRequest(query=query.digest, phone=self.id, signature=signature)


@functools.cache
def _key_of(number: int) -> SigningKey:
    return SigningKey(number.to_bytes(32, "big"))


@functools.cache
def ciphertexts_of(number: int, attempt: int, places: int) -> bytes:
    """Of the digit of this number; another attempt hides the same one."""
    rng = seeded(1, "phone", number, attempt)
    plaintexts = [(1 << DIGIT * number) + place for place in range(places)]
    return ciphertexts_to(pair(BITS).public.encrypt(plaintexts, rng), pair(BITS).public)


class KeyServer:
    """Countersigns, deals and decides whatever it is asked."""

    identity = SigningKey(bytes(range(32)))

    def terms(self, population: int = 1000) -> wire.Terms:
        return wire.Terms(population=population, public_key=pair(BITS).public.to_bytes())

    def deals(self, query: Query, **others: Any) -> list[wire.Deal]:
        """The deal in two messages."""
        key = others.pop("agreement_key", QUERY_KEY)
        signature = others.pop("countersignature", self.identity.sign(statements.countersigned(query.digest, key)))
        phones = others.pop("phones", None)
        if phones is None:
            phones = [
                wire.Dealt(phone=phone.id, verify_key=phone.key.public, cohort=cohort_of(query, phone.number))
                for phone in map(Phone, range(query.population))
            ]
        assert not others
        return [
            wire.Deal(agreement_key=key, countersignature=signature, phones=phones[:2]),
            wire.Deal(phones=phones[2:]),
        ]

    def decision(self, head: wire.DecideHead, receipts: Iterable[wire.Receipt] = (), **others: Any) -> wire.Decision:
        """Release whatever it is; an empty head is burnt."""
        request = statements.RequestDigest(head)
        request.add(receipts)
        made = wire.Decision(
            query=head.query,
            cohort=head.cohort,
            outcome=wire.RELEASED if head.ciphertexts else wire.BURNT,
            contributors=head.contributors,
            request=request.digest(),
        )
        for name, value in others.items():
            setattr(made, name, value)
        made.signature = self.identity.sign(statements.decision(made))
        return made


def cohort_of(query: Query, number: int) -> int:
    """Phones are dealt in turn."""
    return number % query.cohorts


def make_query(population: int = 6, **others: Any) -> Query:
    """A query; each one has another id."""
    return visits(pair(BITS).public, population, **{"delta": 1e-3, "min_contributions": 2} | others)


def opened(place: Path | str | None, time: Time) -> AggregationServer:
    """An aggregation server that knows the key, over a file or a PostgreSQL database."""
    server = AggregationServer(
        SqlStore(place), identity=KeyServer.identity.public, now=time, rng=seeded(1, "server"), simulation=True
    )
    server.queries.learn(KeyServer().terms())
    return server


def database_of(server: AggregationServer) -> Database:
    """The file under a server."""
    return sqlite_of(server.store)


def sqlite_of(store: AggregationStore) -> Database:
    """The file under a store."""
    assert isinstance(store, SqlStore)
    assert isinstance(store.database, Database)
    return store.database


def announce(server: AggregationServer, query: Query, analyst: str | None = None) -> wire.QueryStatus:
    """Announce a query: its status afterwards."""
    server.queries.announce(query.to_bytes(), analyst)
    return server.replies.status(wire.StatusRequest(id=query.id), analyst)


def abort(server: AggregationServer, query_id: str, analyst: str | None = None) -> wire.QueryStatus:
    """Abort a query of an analyst: its status afterwards."""
    server.replies.status(wire.StatusRequest(id=query_id), analyst)
    closing.abort(server.store, query_id)
    return server.replies.status(wire.StatusRequest(id=query_id), analyst)


def uncountersigned(server: AggregationServer) -> list[Query]:
    """What the key server is to countersign."""
    return [query for _, query in server.queries.to_countersign()]


def requests(server: AggregationServer) -> list[wire.DecideHead]:
    """What the key server is to decide; looking changes nothing."""
    assert isinstance(server.store, SqlStore)
    with server.store.database.reading() as run:
        rows = run(_REQUESTS).fetchall()
    heads = []
    for content, burn in rows:
        head = wire.DecideHead.FromString(content)
        if burn:
            head.ClearField("ciphertexts")
        heads.append(head)
    return heads


_REQUESTS = """
SELECT head, burn FROM requests LEFT JOIN decisions USING (query, cohort) WHERE decision IS NULL ORDER BY query, cohort
"""


def claimed(server: AggregationServer, item: WorkItem) -> wire.DecideHead | None:
    """What is sent to the key server about a cohort."""
    now = milliseconds(START)
    message = server.store.claim(item, Lease("a test", now, now + 1))
    assert not isinstance(message, wire.CountersignRequest)
    return message


def collecting(server: AggregationServer, query: Query) -> Query:
    """Have a query announced and dealt."""
    announce(server, query)
    server.queries.countersign(query, KeyServer().deals(query))
    return query


def counted(head: wire.DecideHead) -> list[list[int]]:
    """How often each phone is in each plaintext of a sum, after the place that all of them have added is taken off."""
    sums = pair(BITS).decrypt(ciphertexts_from(head.ciphertexts, pair(BITS).public))
    return [digits(plain - place * head.contributors) for place, plain in enumerate(sums)]


def digits(number: int) -> list[int]:
    """The digits of a sum, from the first phone's on."""
    assert number >= 0
    size = -(-number.bit_length() // DIGIT)
    return [number >> DIGIT * place & (1 << DIGIT) - 1 for place in range(size)]


def phones_in(head: wire.DecideHead) -> set[int]:
    """Which phones are in a sum: each once, in all of its plaintexts."""
    (first, *rest) = counted(head)
    assert all(each == first for each in rest), "the plaintexts are of different phones"
    assert set(first) <= {0, 1}, f"some phones are counted more than once: {first}"
    return {number for number, times in enumerate(first) if times}


def closed(server: AggregationServer, time: Time, query: Query) -> list[wire.DecideHead]:
    """Let a query's time pass: what is asked of the key server, by cohort."""
    time.pass_(query.closes_after)
    server.closing.close_due()
    return [head for head in requests(server) if head.query == query.digest]


def receipts_of(server: AggregationServer, head: wire.DecideHead) -> list[wire.Receipt]:
    """The receipts that follow a head."""
    first, *rest = server.closing.messages(head)
    assert first.head == head
    return [receipt for each in rest for receipt in each.receipts.receipts]


def outcome_names(outcomes: Sequence[wire.Acknowledgement | Refused]) -> list[str]:
    """Outcomes in short: "ok", or the refusal's name."""
    return [each.refusal.name if isinstance(each, Refused) else "ok" for each in outcomes]
