"""An aggregation server as analysts see it, over TLS: what it says is what a test tells it to say."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from reticent.paillier import PublicKey
from reticent.privacy import CohortSum, Contributions, Ledger, Query, Release
from reticent.protocol import Refusal, Refused, SigningKey, statements
from reticent.randomness import seeded
from reticent.rpc import Admission, Caller, unary
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.client import Timeouts
from reticent_sim.local_counts import LocalCounts

SERVICE = "reticent.v1.Counting"
LISTED_AT_ONCE = 2
HASTY = Timeouts(call=2.0, max_outage=20.0, poll=0.05)
DEADLINE = 20.0  # seconds; more is a fault

Phones = Callable[[Query], Sequence[CohortSum]]


def public_key() -> PublicKey:
    """A key that nobody has the secret of."""
    rng = seeded(5, "key")
    while True:
        n = int.from_bytes(rng.bytes(128), "big") | 1 << 1023
        n += 1 - n % 4
        try:
            return PublicKey(n, n - 9, simulation=True)
        except ValueError:
            continue


def signed(signer: SigningKey, decision: wire.Decision) -> wire.Decision:
    """The decision with the signer's signature, in place of any other."""
    decision.signature = signer.sign(statements.decision(decision))
    return decision


def decision_of(query: Query, cohort: int, known: CohortSum, *, seeded: bool = False) -> wire.Decision:
    """What a key server decides, not signed."""
    sums = [] if known.sums is None else [statements.integer_to(each) for each in known.sums]
    return wire.Decision(
        query=query.digest,
        cohort=cohort,
        outcome=wire.BURNT if known.sums is None else wire.RELEASED,
        contributors=known.contributors,
        sums=sums,
        seeded=seeded,
        request=bytes(32),
    )


class CountingServer:
    """Listens in a thread of its own, again and again at the same port, and keeps in between what it was told.

    Args:
        folder: Where certificates go; they are made where there are none.
        phones: What becomes of a query as soon as it is announced; nothing, unless given.
    """

    def __init__(self, folder: Path, phones: Phones | None = None) -> None:
        self.folder = folder
        self.phones = phones
        self.signer = SigningKey()
        self.key = public_key()
        self.population = 60
        self.address = "127.0.0.1:0"
        self.statuses: dict[str, wire.QueryStatus] = {}
        self.refused: dict[str, Refused] = {}
        """Queries that the key server would not countersign."""
        self.refusals: list[Refused] = []
        self.next_page = 0
        """Every page of the list names this one as the next, if it is not 0."""
        """What the next calls are refused for."""
        self.calls: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        if not (folder / "aggregation.crt").exists():
            create(folder, hosts=["127.0.0.1", "localhost"], analysts=["ann"], days=2)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(DEADLINE)

    def stop(self) -> None:
        """Listen no more, and forget nothing."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(DEADLINE)
            assert not self._thread.is_alive()
            self._loop = None

    def away_for(self, seconds: float) -> threading.Thread:
        """Stop now, and come back so much later."""
        self.stop()

        def come_back() -> None:
            time.sleep(seconds)
            self.start()

        back = threading.Thread(target=come_back)
        back.start()
        return back

    def analyst(self, name: str = "ann", **changes: Any) -> Analyst:
        """Somebody who asks here."""
        certificate = Certificate.load(self.folder, name)
        return Analyst(self.address, certificate, self.signer.public, **{"timeouts": HASTY, **changes})

    def collecting(self, query: Query, contributors: int = 0, closes_in_ms: int = 5000) -> wire.QueryStatus:
        """So many phones of each cohort have contributed."""
        cohorts = [wire.CohortStatus(contributors=contributors)] * query.cohorts
        return self._set(query, wire.COLLECTING, cohorts, closes_in_ms)

    def closing(self, query: Query, *, key_server_unavailable: bool) -> wire.QueryStatus:
        """Collecting has ended, and no cohort is decided."""
        cohorts = [wire.CohortStatus(contributors=20)] * query.cohorts
        status = self._set(query, wire.CLOSING, cohorts, 0)
        status.key_server_unavailable = key_server_unavailable
        return status

    def decided(self, query: Query, known: Sequence[CohortSum], *, seeded: bool = False) -> wire.QueryStatus:
        """All cohorts are decided, and signed."""
        cohorts = [
            wire.CohortStatus(
                contributors=each.contributors,
                decision=signed(self.signer, decision_of(query, number, each, seeded=seeded)),
            )
            for number, each in enumerate(known)
        ]
        return self._set(query, wire.DECIDED, cohorts, 0)

    def refuse(self, query: Query, detail: str) -> None:
        """The key server does not countersign it."""
        self._set(query, wire.REFUSED, [], 0)
        self.refused[query.id] = Refused(Refusal.BAD_QUERY, detail)

    def lost(self, query: Query) -> None:
        """It will never be decided."""
        self._set(query, wire.LOST, [wire.CohortStatus(contributors=9)] * query.cohorts, 0)

    def _set(
        self, query: Query, phase: wire.Phase.ValueType, cohorts: list[wire.CohortStatus], closes_in_ms: int
    ) -> wire.QueryStatus:
        self.statuses[query.id] = wire.QueryStatus(
            query=query.to_bytes(), phase=phase, closes_in_ms=closes_in_ms, cohorts=cohorts
        )
        return self.statuses[query.id]

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        admission = Admission(("analyst",))
        methods = {
            "GetTerms": unary(admission, wire.TermsRequest, self._get_terms),
            "Announce": unary(admission, wire.AnnounceRequest, self._announce),
            "Status": unary(admission, wire.StatusRequest, self._status),
            "Abort": unary(admission, wire.AbortRequest, self._abort),
            "List": unary(admission, wire.ListRequest, self._list),
        }
        credentials = Certificate.load(self.folder, "aggregation").server_credentials(mutual=True)
        async with Listener(self.address, {SERVICE: methods}, credentials=credentials) as listener:
            self.address = listener.address
            ready.set()
            await self._stop.wait()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.refusals:
            raise self.refusals.pop(0)

    async def _get_terms(self, _: wire.TermsRequest, __: Caller) -> wire.Terms:
        self._called("terms")
        return wire.Terms(population=self.population, public_key=self.key.to_bytes())

    async def _announce(self, request: wire.AnnounceRequest, _: Caller) -> wire.QueryStatus:
        self._called("announce")
        query = Query.from_bytes(request.query)
        if self.refused.pop(query.id, None) is not None:
            del self.statuses[query.id]
        there = self.statuses.get(query.id)
        if there is not None:
            if there.query != request.query:
                raise Refused(Refusal.CONFLICT)
            return there
        if self.phones is not None:
            return self.decided(query, self.phones(query))
        return self.collecting(query)

    async def _status(self, request: wire.StatusRequest, _: Caller) -> wire.QueryStatus:
        self._called("status")
        if request.id not in self.statuses:
            raise Refused(Refusal.UNKNOWN_QUERY)
        if request.id in self.refused:
            raise self.refused[request.id]
        return self.statuses[request.id]

    async def _abort(self, request: wire.AbortRequest, _: Caller) -> wire.QueryStatus:
        self._called("abort")
        query = Query.from_bytes(self.statuses[request.id].query)
        return self.decided(query, [CohortSum(0, None)] * query.cohorts)

    async def _list(self, request: wire.ListRequest, __: Caller) -> wire.ListReply:
        """The list in pages of two queries; their numbers are those of their announcements."""
        self._called("list")
        numbered = [each for each in enumerate(self.statuses.values(), 1) if not 0 < request.after <= each[0]]
        page = numbered[: -LISTED_AT_ONCE - 1 : -1]
        following = page[-1][0] if len(page) < len(numbered) else 0
        return wire.ListReply(queries=[status for _, status in page], next=self.next_page or following)


class CountsOverTls:
    """`Counts` through an analyst and a server, of phones that a simulation plays; one at a time, the latest.

    Args:
        ledger: The analyst's.
        absent: How likely each phone is absent.
    """

    def __init__(self, ledger: Ledger | None, absent: float) -> None:
        local = LocalCounts(seeded(5, "phones"), absent=absent)
        given = self._given = _Given()
        server = CountingServer(Path(_certificates().name), lambda query: local._collected(query, given.counters))
        while _alive:
            _alive.pop().stop()
        server.start()
        _alive.append(server)
        self._analyst = server.analyst(ledger=ledger)

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        """Hand the counters to the phones, and ask them."""
        if not isinstance(counters, np.ndarray) or counters.ndim != 2 or len(counters) != query.population:
            raise ValueError(f"simulated phones take a row each: got {np.shape(counters)}")  # type: ignore[arg-type]
        query.fit(counters)
        self._given.counters = counters
        return self._analyst.count(query)


class _Given:
    """What the phones have counted."""

    counters: Contributions = ()


@cache
def _certificates() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


_alive: list[CountingServer] = []
