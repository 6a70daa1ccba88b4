"""Phones, and what stands around a key server, as its tests need them: they say what real ones say, without noise."""

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from reticent.clock import ManualClock
from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Counter, Query, QueryLimits
from reticent.protocol import AgreementKey, Refusal, Refused, SigningKey, packing_of, shared_secret, statements
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure, seeded
from reticent.storage.database import Database
from reticent.v1 import counting_pb2 as wire
from reticent_keys import (
    Identity,
    Journal,
    KeyPair,
    KeyPairStore,
    KeyServer,
    QueryKeyStore,
    SqliteJournal,
    administration,
)
from tests.core.paillier.keys import pair

START = dt.datetime(2027, 3, 1, tzinfo=dt.UTC)
BITS = 2048
PASSPHRASE = "nobody knows"  # noqa: S105  # of tests
YEAR = dt.timedelta(days=365)
DAY = dt.timedelta(days=1)
LIMITS = QueryLimits(min_honest=2, min_cohort_share=0.3, min_liars_share=0.0)
QUERY = Query(
    id="gym",
    counters=[Counter("visits", 0, 3), Counter("steps", -2, 500), Counter("late", 0, 1)],
    epsilon=1.0,
    delta=1e-5,
    l2_squared=250_014,
    l1=506,
    noise="skellam",
    population=20,
    cohorts=2,
    min_contributions=5,
    liars=1,
    key_id="none",
    closes_after=3600,
)
"""What the tests ask, under a key that is there."""


@dataclass
class Contribution:
    """What a phone sends, and its receipt."""

    ciphertexts: list[int]
    receipt: wire.Receipt
    values: Sequence[int]


@dataclass
class Phone:
    """A phone that is enrolled."""

    token: bytes
    signing: SigningKey = field(default_factory=SigningKey)
    membership: wire.Membership = field(default_factory=wire.Membership)

    @property
    def id(self) -> bytes:
        return self.membership.phone

    def joining(self) -> wire.JoinRequest:
        statement = statements.joining(self.token, self.signing.public)
        return wire.JoinRequest(
            invitation=self.token,
            verify_key=self.signing.public,
            signature=self.signing.sign(statement),
        )

    def renewing(self) -> wire.RenewRequest:
        expires = self.membership.expires
        signature = self.signing.sign(statements.renewal(self.id, expires))
        return wire.RenewRequest(phone=self.id, expires=expires, signature=signature)

    def leaving(self) -> wire.LeaveRequest:
        return wire.LeaveRequest(phone=self.id, signature=self.signing.sign(statements.leaving(self.id)))

    def contribution(
        self,
        query: Query,
        key: PublicKey,
        query_key: bytes,
        cohort: int,
        values: Sequence[int],
        *,
        seeded: bool = False,
        own: AgreementKey | None = None,
    ) -> Contribution:
        own = own or AgreementKey()
        secret = shared_secret(own, phone=self.id, phone_key=own.public, query_key=query_key)
        packing = packing_of(query, key.bits)
        tags = [tag(secret, query.digest, cohort, place) for place in range(packing.plaintexts)]
        padded = [
            centred(plaintext + pad(secret, query.digest, cohort, place, key.n), key.n)
            for place, plaintext in enumerate(packing.pack(values, tags))
        ]
        ciphertexts = key.encrypt(padded, secure())
        digest = statements.ciphertexts_hash(ciphertexts_to(ciphertexts, key))
        receipt = wire.Receipt(phone=self.id, agreement_key=own.public, ciphertexts_hash=digest, seeded=seeded)
        receipt.signature = self.signing.sign(statements.contribution_of(query.digest, query.key_id, cohort, receipt))
        return Contribution(ciphertexts, receipt, values)


class LocalServer:
    """A key server on a journal that can be closed and opened again, its phones, and a clock.

    Whoever makes one closes it: it is its own context.

    Args:
        path: Where the journal is; None for one in memory.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        limits: QueryLimits = LIMITS,
        identity: Identity | None = None,
        pairs: KeyPairStore | None = None,
        query_keys: QueryKeyStore | None = None,
    ) -> None:
        self.path = path
        self.clock = ManualClock(START)
        self.identity = identity or Identity()
        self.pairs = pairs or KeyPairStore(None)  # what is in these two outlives the server, as files do
        self.query_keys = query_keys or QueryKeyStore(None)
        self.limits = limits
        self._made = 0
        self.phones: dict[bytes, Phone] = {}
        self.server = self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, journal: Journal | None = None) -> KeyServer:
        """A server on a journal, or on the one at the path, which is closed if no server can start on it."""
        with contextlib.ExitStack() as stack:
            if journal is None:
                journal = stack.enter_context(contextlib.closing(SqliteJournal(self.path)))
            server = KeyServer(
                journal,
                self.identity,
                self.pairs,
                self.query_keys,
                now=self.clock.now,
                limits=self.limits,
                lifetime=90 * DAY,
                generate=self._pair,
                rng=seeded(1, "dealing"),
            )
            stack.pop_all()
        return server

    @property
    def database(self) -> Database:
        """Of the journal."""
        assert isinstance(self.server.journal, SqliteJournal)
        return self.server.journal.database

    def close(self) -> None:
        self.server.journal.close()

    def restart(self) -> None:
        self.close()
        self.server = self.open()

    def advance(self, by: dt.timedelta) -> None:
        self.clock._now += by

    def invited(self) -> Phone:
        return Phone(self.tokens(1)[0])

    def tokens(self, count: int, lifetime: dt.timedelta = YEAR) -> list[bytes]:
        """Of new invitations."""
        return administration.invite(self.server.journal, count, expires=self.clock.now() + lifetime)

    def enrolled(self, count: int) -> list[Phone]:
        phones = [Phone(token) for token in self.tokens(count)]
        for phone in phones:
            phone.membership = self.server.members.join(phone.joining())
            self.phones[phone.id] = phone
        return phones

    @property
    def key(self) -> PublicKey:
        return PublicKey.from_bytes(self.server.terms().public_key, simulation=True)

    def query(self, **changes: object) -> Query:
        return replace(QUERY, key_id=self.key.key_id.hex(), **changes)  # type: ignore[arg-type]

    def query_key(self, query: Query) -> bytes:
        """The public one of a query, which is countersigned if it was not."""
        return next(self.server.dealer.countersign(query.to_bytes())).agreement_key

    def deal(self, query: Query) -> dict[bytes, int]:
        """The cohort of each phone."""
        return {each.phone: each.cohort for each in dealt(self.server, query)}

    def contributions(self, query: Query, cohort: int, **options: Any) -> list[Contribution]:
        """Of all the phones of a cohort, different ones."""
        key, query_key = self.key, self.query_key(query)
        phones = [phone for phone, dealt_to in self.deal(query).items() if dealt_to == cohort]
        return [
            self.phones[phone].contribution(
                query, key, query_key, cohort, (place % 4, 10 * place - 2, place % 2), **options
            )
            for place, phone in enumerate(phones)
        ]

    def _pair(self) -> KeyPair:
        self._made += 1
        return pair(BITS, self._made)


def refused(reason: Refusal, call: Callable[[], object], match: str | None = None) -> None:
    """The call is refused for this reason, in words that match."""
    with pytest.raises(Refused, match=match) as caught:
        call()
    assert caught.value.refusal is reason


def dealt(server: KeyServer, query: Query) -> list[wire.Dealt]:
    return [phone for deal in server.dealer.countersign(query.to_bytes()) for phone in deal.phones]


def summed(key: PublicKey, contributions: Sequence[Contribution]) -> list[int]:
    """What an honest aggregation server makes of contributions."""
    return [key.add(column) for column in zip(*(each.ciphertexts for each in contributions), strict=True)]


def request(
    query: Query, cohort: int, key: PublicKey, ciphertexts: list[int], receipts: Iterable[wire.Receipt]
) -> tuple[wire.DecideHead, list[wire.Receipt]]:
    """To decide a cohort."""
    sent = list(receipts)
    head = wire.DecideHead(
        query=query.digest, cohort=cohort, contributors=len(sent), ciphertexts=ciphertexts_to(ciphertexts, key)
    )
    return head, sent


def honest(
    query: Query, cohort: int, key: PublicKey, contributions: Sequence[Contribution]
) -> tuple[wire.DecideHead, Iterator[wire.Receipt]]:
    """To decide the sum of these contributions."""
    head, receipts = request(query, cohort, key, summed(key, contributions), (each.receipt for each in contributions))
    return head, iter(receipts)


def sums(decision: wire.Decision) -> list[int]:
    return [int.from_bytes(each, "big", signed=True) for each in decision.sums]


def expected(contributions: Sequence[Contribution]) -> list[int]:
    return [sum(column) for column in zip(*(each.values for each in contributions), strict=True)]


def decisions(local: LocalServer) -> int:
    """How many cohorts are decided."""
    with local.database.reading() as run:
        return int(run("SELECT count(*) FROM decisions").fetchone()[0])
