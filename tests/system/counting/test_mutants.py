"""What the state machine is worth: it finds parties that break what the protocol promises."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from reticent.paillier import PublicKey
from reticent.privacy import Norms, Query
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.store import CohortBatch, PutResult
from reticent_client import Situation
from reticent_client.counting.contribution import prepare, values_of
from reticent_keys import SqlJournal
from reticent_keys.deciding import Decider, DecisionRequest
from reticent_keys.journal import KeyState
from tests.system.counting.cores import Cores
from tests.system.counting.machine import CountingMachine
from tests.system.counting.phones import Watched
from tests.system.counting.test_state_machine import FAST
from tests.system.counting.world import World

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

FOUND = settings(FAST, max_examples=1000, phases=(Phase.generate,), derandomize=True)
Rows = list[tuple[Any, ...]]


class Hasty(SqlStore):
    """Acknowledges before it commits: what it has acknowledged last is not on disk until something else is."""

    before: tuple[Rows, Rows, Rows] | None = None

    def put_contributions(self, batches: Sequence[CohortBatch], now: int) -> list[list[PutResult]]:
        self.before = self.rows()
        return super().put_contributions(batches, now)

    def rows(self) -> tuple[Rows, Rows, Rows]:
        with self.database.reading() as run:
            queries = run("SELECT number, phase FROM queries").fetchall()
            return queries, run("SELECT * FROM sums").fetchall(), run("SELECT * FROM receipts").fetchall()


class HastyCores(Cores):
    aggregation_store = Hasty

    def kill(self, party: str) -> None:
        assert isinstance(self._store, Hasty)
        self._now, self._before = self._store.rows(), self._store.before
        super().kill(party)

    def lost(self) -> None:
        if self._before is None or self._before[0] != self._now[0]:
            return
        with closing(SqlStore(self.folder / "aggregation.db")) as store, store.database.transaction() as run:
            run("DELETE FROM sums")
            run("DELETE FROM receipts")
            for row in self._before[1]:
                run("INSERT INTO sums VALUES (?, ?, ?, ?, ?)", row)
            for row in self._before[2]:
                run("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)", row)


class Redrawing(Watched):
    """Makes another answer, with other noise, when one did not get through."""

    def due(self, situation: Situation | None = None) -> list[wire.Contribution]:
        return [self._redrawn(message) for message in super().due(situation)]

    def contribute(
        self,
        announcement: wire.Announcement,
        content: bytes = b"",
        public_key: bytes = b"",
        situation: Situation | None = None,
    ) -> wire.Contribution:
        if content:
            keys[announcement.query] = Query.from_bytes(content), public_key, announcement.agreement_key
        return super().contribute(announcement, content, public_key, situation)

    def _redrawn(self, message: wire.Contribution) -> wire.Contribution:
        record, member = self.records.of(message.query), self.enrolment.current
        if record is None or member is None or not record.attempts:
            return message
        query, content, query_key = keys[message.query]
        key = PublicKey.from_bytes(content, simulation=True)
        values = values_of(query, self._counters(query))
        assert isinstance(self._rng, np.random.Generator)
        made = prepare(
            query, message.cohort, values, Norms(0, 0), key=key, query_key=query_key, member=member, rng=self._rng
        )
        return made.message


keys: dict[bytes, tuple[Query, bytes, bytes]] = {}
"""The queries, the public keys that they name, and the key server's keys for them."""


class RedrawingCores(Cores):
    phone = Redrawing


class Undecided(Decider):
    """Decides again what was decided, when another request arrives."""

    def begin(self, head: wire.DecideHead) -> DecisionRequest:
        self.kept: list[wire.Receipt] = []
        try:
            return super().begin(head)
        except Refused as refused:
            self._forget(refused, head)
        return super().begin(head)

    def add(self, request: DecisionRequest, receipts: Sequence[wire.Receipt]) -> None:
        self.kept.extend(receipts)
        super().add(request, receipts)

    def decide(self, request: DecisionRequest) -> wire.Decision:
        try:
            return super().decide(request)
        except Refused as refused:
            self._forget(refused, request.head)
        again = super().begin(request.head)
        super().add(again, self.kept)
        return super().decide(again)

    def _forget(self, refused: Refused, head: wire.DecideHead) -> None:
        if refused.refusal is not Refusal.ALREADY_DECIDED:
            raise refused
        assert isinstance(self._journal, SqlJournal)
        with self._journal.database.transaction() as run:
            (query,) = run("SELECT number FROM queries WHERE digest = ?", (head.query,)).fetchone()
            for table in ("decisions", "decryptions"):
                run(f"DELETE FROM {table} WHERE query = ? AND cohort = ?", (query, head.cohort))  # noqa: S608  # ours


class UndecidedCores(Cores):
    decider = Undecided


class Careless(Decider):
    """Decrypts before it looks how many contributions there are."""

    def decide(self, request: DecisionRequest) -> wire.Decision:
        made = super().decide(request)
        if made.outcome == wire.BURNT:
            [key] = self._journal.keys(KeyState.ACTIVE)
            self._keyring.pair(key).decrypt([1])
        return made


class CarelessCores(Cores):
    decider = Careless


@pytest.mark.parametrize(
    ("world", "found"),
    [
        (HastyCores, "what was acknowledged is not counted"),
        (RedrawingCores, "a phone said two different things to one query"),
        # Or it forgets what was decided, and refuses the other request for another reason.
        (
            UndecidedCores,
            "decided twice|there are two decisions|what is wrong was decided|refused has changed something",
        ),
        (CarelessCores, "what was burnt had been decrypted"),
    ],
)
def test_whoever_breaks_a_promise_is_found(world: type[Cores], found: str) -> None:
    class OfMutants(CountingMachine):
        def begin(self) -> World:
            return world()

    with pytest.raises(AssertionError, match=found):
        run_state_machine_as_test(OfMutants, settings=FOUND)
