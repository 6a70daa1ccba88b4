"""A key server in the process of the test, on a journal that can be closed and opened again, with its phones."""

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from reticent.clock import ManualClock
from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query, QueryLimits
from reticent.protocol import Refusal, Refused
from reticent.storage.database import Database
from reticent.v1 import counting_pb2 as wire
from reticent_keys import (
    Identity,
    Journal,
    KeyPair,
    KeyPairStore,
    KeyServer,
    QueryKeyStore,
    SqlJournal,
    administration,
)
from reticent_keys.receipt_workers import ReceiptWorkers
from tests.parties.key_pairs import pair
from tests.parties.phone import Contribution, Phone

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


class LocalKeyServer:
    """A key server on a journal that can be closed and opened again, its phones, and a clock.

    Whoever makes one closes it: it is its own context.

    Args:
        path: Where the journal is: a file or an address of PostgreSQL; None for one in memory.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        limits: QueryLimits = LIMITS,
        identity: Identity | None = None,
        pairs: KeyPairStore | None = None,
        query_keys: QueryKeyStore | None = None,
        workers: ReceiptWorkers | None = None,
    ) -> None:
        self.path = path
        self.clock = ManualClock(START)
        self.identity = identity or Identity()
        self.pairs = pairs or KeyPairStore(None)  # what is in these two outlives the server, as files do
        self.query_keys = query_keys or QueryKeyStore(None)
        self.limits = limits
        self.workers = workers
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
                journal = stack.enter_context(contextlib.closing(SqlJournal(self.path)))
            server = KeyServer(
                journal,
                self.identity,
                self.pairs,
                self.query_keys,
                now=self.clock.now,
                limits=self.limits,
                lifetime=90 * DAY,
                generate=self._pair,
                seed=1,
                workers=self.workers,
            )
            stack.pop_all()
        return server

    @property
    def database(self) -> Database:
        """Of the journal."""
        assert isinstance(self.server.journal, SqlJournal)
        assert isinstance(self.server.journal.database, Database)
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
        """Of all the phones of a cohort, in the order of their ids, different ones."""
        key, query_key = self.key, self.query_key(query)
        phones = sorted(phone for phone, dealt_to in self.deal(query).items() if dealt_to == cohort)
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


def decisions(local: LocalKeyServer) -> int:
    """How many cohorts are decided."""
    with local.database.reading() as run:
        return int(run("SELECT count(*) FROM decisions").fetchone()[0])
