"""An aggregation server that says what the key server knows nothing of: it costs a phone next to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.clock import first_of
from reticent.privacy import Cost, Query
from reticent.protocol import Refusal, Refused
from reticent.randomness import seeded
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined, Participation, Situation
from reticent_client.counting import status_view
from reticent_client.counting.participant import Participant
from reticent_client.counting.records import ContributionState
from reticent_client.counting.servers import Servers as Channels
from reticent_client.counting.session import MAX_ANNOUNCEMENTS, MAX_PAGES, Round, enrol, run, take_part
from reticent_client.counting.status_view import RoundPrinter, Status
from reticent_client.errors import ForeignReply, Reason
from tests.client.counting.network import Context, Network
from tests.client.counting.world import Device, Servers, device, query

DEADLINE = 60.0  # seconds for a test
SITUATION = Situation()
NO_SIGNATURE = bytes(64)
"""No signature."""


class Lying(Network):
    """An aggregation server that announces and decides whatever it likes."""

    def __init__(self) -> None:
        super().__init__(Servers())
        self.announced: list[wire.Announcement] = []
        self.nexts: Mapping[int, int] = {}
        """The next page, by the page: their places in what is announced."""
        self.page_size = 1
        self.fails_at: int | None = None
        """The page that is refused."""
        self.decisions: list[wire.Decision] = []
        self.requested = asyncio.Event()

    async def Announcements(self, request: Any, context: Context) -> wire.AnnouncementsReply:  # noqa: N802
        self.requested.set()
        await self._called("Announcements", context)
        if self.fails_at == request.after:
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        page = self.announced[request.after : request.after + self.page_size] if self.nexts else self.announced
        following = self.nexts.get(request.after, 0)
        return wire.AnnouncementsReply(announcements=page, again_in_ms=self.again_in_ms, next=following)

    async def Decisions(self, request: wire.DecisionsRequest, context: Context) -> wire.DecisionsReply:  # noqa: N802
        await self._called("Decisions", context)
        return wire.DecisionsReply(decisions=self.decisions)


@contextlib.asynccontextmanager
async def lied_to(folder: Path, **arguments: Any) -> AsyncIterator[tuple[Lying, Device, Channels]]:
    """A phone that has joined, and its way to the servers."""
    network = Lying()
    with device(folder, servers=network.servers, joined=False, **arguments) as phone:
        async with network.listening(folder / "certs"):
            phone.now = dt.datetime.now(dt.UTC)
            phone.participant.enrolment.join(network.invitation)
            async with Channels(network.invitation, deadline=DEADLINE) as servers:
                await enrol(phone.participant, servers)
                yield network, phone, servers


def _within(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE))


def _rows(phone: Device) -> int:
    with phone.store.database.reading() as run_sql:
        return int(run_sql("SELECT count(*) FROM declined").fetchone()[0])


def test_nothing_is_kept_of_what_nobody_countersigned_but_one_line(tmp_path: Path) -> None:
    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            long = [query(id=f"{number}{'x' * 10_000}").to_bytes() for number in range(20)]
            for content in (*long, b"", b"nothing that could be read"):
                network.announced.append(wire.Announcement(query=content, countersignature=NO_SIGNATURE))
            for _ in range(2):
                done = await take_part(phone.participant, servers, SITUATION)
                [declined] = done.declined
                assert (declined.reason, declined.query) == (Reason.NOT_COUNTERSIGNED, None)
                assert declined.sentence == "the key server has not countersigned this query, nor 21 others"
                assert (done.contributions, done.failures) == ((), ())
            assert _rows(phone) == 0
            assert (network.calls["Query"], network.calls["Key"]) == (0, 0)

    _within(live())


def test_what_nobody_countersigned_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes time, and what was read takes memory."""
    with device(tmp_path) as phone:
        forged = Servers().announce(query())
        monkeypatch.setattr(Query, "from_bytes", lambda _: pytest.fail("read it"))
        assert phone.participant.query_request(forged) is None
        with pytest.raises(Declined) as declined:
            phone.participant.contribute(forged, query().to_bytes(), phone.servers.public.to_bytes())
        assert declined.value.reason is Reason.NOT_COUNTERSIGNED


def test_a_bounded_number_of_announcements_is_looked_at(tmp_path: Path) -> None:
    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            network.announced = [wire.Announcement(cohort=number) for number in range(20_000)]
            network.page_size = MAX_ANNOUNCEMENTS - 1
            pages: list[Mapping[int, int]] = [{}, {0: network.page_size, network.page_size: 2 * network.page_size}]
            for nexts in pages:
                network.nexts = nexts
                done = await take_part(phone.participant, servers, SITUATION)
                assert [declined.sentence for declined in done.declined] == [
                    f"the key server has not countersigned this query, nor {MAX_ANNOUNCEMENTS - 1} others"
                ]

    _within(live())


PAGES = 3
ENDLESS = {page: page + 1 for page in range(2 * MAX_PAGES)}


def test_pages_are_followed_to_their_end_and_no_further(tmp_path: Path) -> None:
    """Each page has one announcement; the query that closes first comes first."""
    cases: list[tuple[Mapping[int, int], int | None, int, int]] = [
        ({0: 1, 1: 2}, 2, 2, 3),  # the last one fails
        ({0: 1, 1: 2}, None, PAGES, PAGES),
        ({0: 1, 1: 2, 2: 1}, None, PAGES, PAGES),  # a circle
        ({0: 1, 1: -5}, None, 2, 2),
        (ENDLESS, None, PAGES, MAX_PAGES),
    ]

    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            network.queries = [query(id=f"query {number}") for number in range(PAGES)]
            network.announced = [phone.servers.announce(each) for each in network.queries]
            for number, each in enumerate(network.announced):
                each.closes_in_ms = 1000 - number
            for nexts, fails_at, looked_at, calls in cases:
                network.nexts, network.fails_at = nexts, fails_at
                network.calls.clear()
                done = await take_part(phone.participant, servers, SITUATION)
                ids = [record.id for record in done.contributions]
                assert ids == [f"query {number}" for number in reversed(range(looked_at))]
                assert network.calls["Announcements"] == calls
                assert len(done.failures) == (fails_at is not None)

    _within(live())


def test_an_announcement_that_is_there_often_is_answered_once(tmp_path: Path) -> None:
    async def live() -> None:
        async with lied_to(tmp_path, policy=Participation(max_epsilon=1.0)) as (network, phone, servers):
            good, dear = (phone.servers.announce(each) for each in (query(), query(id="dear", epsilon=1.5)))
            network.announced = [good, dear] * 10
            network.queries = [query(), query(id="dear", epsilon=1.5)]
            done = await take_part(phone.participant, servers, SITUATION)
            assert [record.id for record in done.contributions] == ["gym"]
            assert [declined.query for declined in done.declined] == ["dear"]

    _within(live())


def test_no_more_decisions_are_looked_at_than_were_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[wire.Decision] = []
    take_decision = Participant.take_decision

    async def counted(phone: Participant, decision: wire.Decision) -> ContributionState:
        looked_at.append(decision)
        return await take_decision(phone, decision)

    monkeypatch.setattr(Participant, "take_decision", counted)

    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            network.queries = [query(id="one"), query(id="two")]
            network.announced = [phone.servers.announce(each) for each in network.queries]
            network.decisions = [wire.Decision(cohort=number) for number in range(5000)]
            done = await take_part(phone.participant, servers, SITUATION)
            assert len(looked_at) == 2
            [trouble] = done.failures  # of one kind one line
            failed = "check of a decision failed: the decision is not about a contribution of this phone's"
            assert str(trouble) == failed

    _within(live())


def test_what_went_wrong_holds_nothing_of_what_was_looked_at(tmp_path: Path) -> None:
    """A traceback has frames, and those the messages."""

    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            network.queries = [query(epsilon=50.0)]
            network.announced = [phone.servers.announce(query(epsilon=50.0)), wire.Announcement(query=b"what?")]
            network.refusals = {"Contribute": Refused(Refusal.UNAVAILABLE)}
            phone.ask(query())
            network.decisions = [wire.Decision()]
            done = await take_part(phone.participant, servers, SITUATION)
            errors = [*done.declined, *(trouble.error for trouble in done.failures)]
            assert {type(error) for error in errors} == {Declined, Refused, ForeignReply}
            for error in errors:
                assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)

    _within(live())


class Quick:
    """A clock that nobody waits for."""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    async def wait_until(self, instant: dt.datetime) -> None:
        await asyncio.sleep(0)


def _running(
    phone: Device, servers: Channels, stop: asyncio.Event, on_round: Callable[[Round], None]
) -> asyncio.Task[None]:
    rounds = run(
        partial(take_part, phone.participant, servers, SITUATION),
        clock=Quick(),
        backoff=Backoff(random=seeded(1).random),
        on_round=on_round,
    )
    return asyncio.create_task(first_of(rounds, stop.wait()))


def test_it_stops_while_a_server_lets_it_wait(tmp_path: Path) -> None:
    async def live() -> None:
        async with lied_to(tmp_path) as (network, phone, servers):
            network.silent = {"Announcements"}
            stop = asyncio.Event()
            rounds: list[Round] = []
            work = _running(phone, servers, stop, rounds.append)
            await network.requested.wait()
            stop.set()
            await asyncio.wait_for(work, DEADLINE / 2)  # long before the call would end by itself
            assert rounds == []

    _within(live())


def test_an_answer_that_is_being_made_when_it_stops_is_made(tmp_path: Path) -> None:
    """The files are closed when it has stopped, and nobody writes in them any more."""
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(dict[str, float]):
        def get(self, *_: object) -> float:
            begun.set()
            assert go_on.wait(DEADLINE)
            return 1.0

    async def live() -> None:
        counted: Mapping[str, float] = Waiting()
        async with lied_to(tmp_path, counted=counted) as (network, phone, servers):
            network.queries = [query(), query(id="other")]
            network.announced = [phone.servers.announce(each) for each in network.queries]
            stop = asyncio.Event()
            work = _running(phone, servers, stop, lambda _: None)
            await asyncio.to_thread(begun.wait, DEADLINE)
            stop.set()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not work.done()
            go_on.set()
            await work
            assert {record.id: record.state for record in phone.participant.records.all()} == {
                "gym": ContributionState.STORED
            }
            assert phone.accounts() == {"gym": "reserved"}

    _within(live())


def _round(number: int, length: int) -> Round:
    declined = Declined(Reason.BUDGET, "y" * length, f"{number} {'x' * length}")
    return Round((), (declined,), (), (), (), dt.timedelta(seconds=1))


def test_what_is_told_is_cut_and_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_view, "MAX_PRINTED", 5)
    teller = RoundPrinter(as_json=False)
    for number in (*range(8), 7, 0):
        teller.round(_round(number, 100_000))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= status_view.MAX_LINE + len("...")
    # What was told not long ago is not told again.
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4", "5", "6", "7", "0"]
    assert len(teller._printed) == 5


def test_a_status_is_cut(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.ask(query(id="x" * 100_000))
        declined = _round(1, 100_000).declined
        records = phone.participant.records.all()
        shown = Status(None, Cost(1.0, 1e-5), phone.participant.ledger.entries(), records, declined).to_text()
        assert max(map(len, shown.splitlines())) <= status_view.MAX_LINE + len("...")
        assert shown.count("x...: ") == 3
