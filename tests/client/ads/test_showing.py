"""An app shows an ad: what is sent to the service, what is chosen, when the reply leaves, and what the log keeps."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.randomness import seeded
from reticent.v1 import ads_pb2, phone_pb2
from reticent_agg.ads.index import MOST_RATES_PER_AD
from reticent_agg.ads.messages import ReplyFormat
from reticent_client.ads.log import PrivateLog
from reticent_client.ads.messages import MAX_REPLY, REPLY_SIZE, read_reply
from reticent_client.ads.settings import MAX_ADS
from reticent_client.store import PhoneStore
from tests.client.ads.world import CITY, HIERARCHY, LATTE, StubService, ad_phone, number, wire_ad
from tests.client.apps.phones import at, calling, limited, status
from tests.parties.waiting import until

CODE = grpc.StatusCode
SECOND = dt.timedelta(seconds=1)


@limited
async def test_an_app_shows_the_ad_of_the_exact_context_and_the_service_sees_the_general_one(tmp_path: Path) -> None:
    exact, cafe = number(LATTE, 0), number(LATTE, 1)
    service = StubService([wire_ad("general", {cafe: 0.3}), wire_ad("exact", {cafe: 0.1, exact: 0.4})])
    async with ad_phone(tmp_path, service) as home:
        await home.live("home")
        shown = await home.show("latte")
        assert shown is not None
        assert (shown.id, shown.text) == ("exact", "Buy exact!")
        assert service.nodes == [number(LATTE, CITY)]
        assert home.last.context == LATTE
        assert (home.last.ad, home.last.showing, home.last.clicked) == ("exact", shown.showing, False)
        await home.app.raw("Report", phone_pb2.ReportRequest(clicked=shown.showing).SerializeToString())
        assert home.last.clicked
        assert [view.ad for view in PrivateLog(home.phone.store).views()] == ["exact"]


@limited
async def test_every_reply_leaves_after_a_second_and_has_one_size(tmp_path: Path) -> None:
    """Shown, from the cache, removed by a rule, suppressed, refused by the service, invalid, or not in time."""
    service = StubService([wire_ad("shoes", {}, cap=2)])
    sent = []
    async with ad_phone(tmp_path, service, changed={"cache_for": 600.0}) as home:

        async def ask(query: str = "latte", *, wait: bool = True) -> bool:
            sent.append(home.clock.now())
            return await home.show(query, wait=wait) is not None

        await home.live("home")
        assert [await ask(), await ask(), await ask()] == [True, True, False]  # from the service, cached, and the cap
        assert len(service.requests) == 1
        service.ads = [wire_ad("boots", {}, cap=2)]
        await home.live("hospital")
        assert await ask()  # for the root
        await home.live("work")
        service.open.clear()
        assert not await ask("ramen", wait=False)  # not in time
        service.open.set()
        assert await ask("ramen")  # the reply has come meanwhile
        await home.live("home")
        service.refusal = CODE.RESOURCE_EXHAUSTED
        assert not await ask()
        service.refusal, service.payload = None, b"\xff"
        await home.live("home")
        assert not await ask()
        assert home.last.explanation is not None
        assert "invalid" in home.last.explanation["problem"]
        assert [instant - before for before, (instant, _) in zip(sent, home.replies, strict=True)] == [SECOND] * 8
        assert {len(reply) for _, reply in home.replies} == {REPLY_SIZE}
        assert {len(message) for _, message in service.requests} == {44}
        assert {0} < set(service.nodes)


@limited
async def test_a_suppressed_step_and_an_unknown_place_ask_for_the_root(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service, changed={"places": {"home": "40.71,-74.01"}, "cache_for": 0.0}) as home:
        await home.show()  # no step has begun
        for context in ("hospital", "work", "home"):
            await home.live(context)
            await home.show("latte")
            await home.show("nobody knows | this")
        await home.clock.move_to(home.clock.now() + dt.timedelta(minutes=31))
        await home.show()  # another step has begun, and was suppressed
        await home.live("home")
        home.clock._now += dt.timedelta(hours=1)
        await home.show()  # the phone slept, and missed the present step
        assert service.nodes == [0, 0, 0, 0, 0, number(LATTE, CITY), 0, 0, 0]


@limited
async def test_simultaneous_requests_share_the_caps(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {0: 0.9}, cap=3), wire_ad("boots", {0: 0.1})])
    async with ad_phone(tmp_path, service, changed={"max_per_day": 5}) as home:
        shown = await home.show_all(["latte"] * 8)
        assert sorted(ad.id for ad in shown if ad is not None) == ["boots"] * 2 + ["shoes"] * 3
        assert len({ad.showing for ad in shown if ad is not None}) == 5
        assert len(service.requests) == 1


@limited
async def test_an_app_waits_for_a_few_ads_at_a_time(tmp_path: Path) -> None:
    """Many more would not be decided in time: the delay would tell the app how many ads the phone has."""
    async with ad_phone(tmp_path, StubService([wire_ad("shoes", {})])) as home:
        waiting = [asyncio.ensure_future(home.app.raw("ShowAd", b"")) for _ in range(9)]
        await until(lambda: any(each.done() for each in waiting))
        [refused] = [each for each in waiting if each.done()]
        assert (await status(refused)).code() is CODE.RESOURCE_EXHAUSTED
        await home.clock.move_to(home.clock.now() + SECOND)
        await asyncio.gather(*(each for each in waiting if each is not refused))
        assert await home.show() is not None


@limited
async def test_clicks_on_what_the_app_has_not_shown_change_nothing(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service) as home:
        shown = await home.show()
        assert shown is not None
        click = phone_pb2.ReportRequest(clicked=shown.showing).SerializeToString()
        async with calling(home.broker.address, home.phone.apps.add("other")) as other:
            replies = [
                await other.raw("Report", click),
                await home.app.raw("Report", phone_pb2.ReportRequest(clicked="guessed").SerializeToString()),
            ]
            before = home.last
            replies += [await home.app.raw("Report", click), await home.app.raw("Report", click)]
            assert (before.clicked, home.last.clicked) == (False, True)
            assert set(replies) == {b""}


@limited
async def test_only_apps_that_the_user_allows_show_ads(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service) as home:
        async with calling(home.broker.address, home.phone.apps.add("other")) as other:
            assert (await status(other.raw("ShowAd", b""))).code() is CODE.PERMISSION_DENIED
        assert (await status(home.app.raw("ShowAd", b"\xff"))).code() is CODE.INVALID_ARGUMENT
        long = phone_pb2.ShowAdRequest(query="x" * 257).SerializeToString()
        assert (await status(home.app.raw("ShowAd", long))).code() is CODE.INVALID_ARGUMENT
        home.phone.apps.remove("weather")
        assert (await status(home.app.raw("ShowAd", b""))).code() is CODE.UNAUTHENTICATED
        assert service.requests == []


@limited
async def test_after_a_failure_the_phone_waits_as_long_as_the_service_asks(tmp_path: Path) -> None:
    service = StubService(refusal=CODE.RESOURCE_EXHAUSTED)
    async with ad_phone(tmp_path, service) as home:
        for _ in range(3):
            assert await home.show() is None
        assert len(service.requests) == 1
        service.refusal, service.ads = None, [wire_ad("shoes", {})]
        await home.clock.move_to(home.clock.now() + 5 * SECOND)
        assert await home.show() is not None


@limited
async def test_a_failure_by_a_clock_that_was_wrong_delays_no_request(tmp_path: Path) -> None:
    service = StubService(refusal=CODE.RESOURCE_EXHAUSTED)
    async with ad_phone(tmp_path, service) as home:
        assert await home.show() is None
        service.refusal, service.ads = None, [wire_ad("shoes", {})]
        home.clock._now -= dt.timedelta(hours=3)
        assert await home.show() is not None


def test_a_phone_reads_the_longest_reply_of_a_service() -> None:
    assert ReplyFormat(bytes(32), MOST_RATES_PER_AD).size(MAX_ADS) <= MAX_REPLY


@limited
async def test_an_ad_that_cannot_be_stored_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: the caps would not hold."""
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service) as home:

        def full(*_: object) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(PrivateLog, "add", full)
        assert await home.show() is None
        monkeypatch.undo()
        assert await home.show() is not None
        assert [instant for instant, _ in home.replies] == [at("12:00:01"), at("12:00:02")]


@limited
async def test_the_entry_is_on_disk_before_the_reply_leaves(tmp_path: Path) -> None:
    """A phone that is killed between the two has used up the cap: it never shows an ad that its log does not have."""
    service = StubService([wire_ad("shoes", {}, cap=1)])
    async with ad_phone(tmp_path, service) as home:
        showing = asyncio.ensure_future(home.runner.show("weather", "latte", home.clock.now()))
        await until(lambda: len(home.runner._replies._replies) > 0)
        await home.clock.move_to(at("12:00:00.900"))
        assert home.last.ad == "shoes"
        assert not showing.done()
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        assert await home.show() is None


@limited
async def test_old_entries_are_deleted_at_a_start_and_at_a_request(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {0: 0.5})])
    store, changed = PhoneStore(tmp_path / "phone.db"), {"keep_days": 2}
    first = at("12:00").day

    def kept() -> list[int]:
        return [each.day.day for each in PrivateLog(store).last(10)]

    with contextlib.closing(store):
        async with ad_phone(tmp_path, service, store=store, changed=changed) as home:
            for hours in (0, 36, 36):
                home.clock._now += dt.timedelta(hours=hours)
                await home.show()
                if not hours:
                    assert len(PrivateLog(store).chosen("a sequence", 4, home.clock.now(), seeded(1))) == 1
            assert kept() == [first + 3, first + 2]
            assert len(PrivateLog(store).chosen("a sequence", 4, home.clock.now(), seeded(1))) == 2
        async with ad_phone(tmp_path, service, store=store, changed=changed, start=at("12:00") + dt.timedelta(days=5)):
            assert kept() == [first + 3]


PARENTS = HIERARCHY.parents.tolist()


def reply_with(**fields: float) -> bytes:
    """A reply with one ad, whose rate has these fields."""
    given: dict[str, float] = {"node": 1, "rate": 0.2, "low": 0.1, "high": 0.3, "payment": 1.0} | fields
    return reply_of(rates=[ads_pb2.Rate(**given)])  # type: ignore[arg-type]


def reply_of(number: int = 1, **fields: Any) -> bytes:
    """A reply with ads that have these fields."""
    ads = [
        ads_pb2.Ad(**{"id": f"shoes {n}", "text": "New shoes!", "category": "music"} | fields) for n in range(number)
    ]
    return ads_pb2.SelectReply(ads=ads).SerializeToString()


@pytest.mark.parametrize(
    "payload",
    [
        reply_with(rate=float("nan")),
        reply_with(low=0.25),
        reply_with(low=-0.1),
        reply_with(high=1.5),
        reply_with(payment=float("inf")),
        reply_with(payment=-1.0),
        reply_with(node=10**6),
        reply_with(node=2),
        reply_of(2, id="shoes"),
        reply_of(id=""),
        reply_of(11),
        reply_of(id="\x1b[2J"),
        reply_of(text="New\nshoes"),
        reply_of(text=""),
        reply_of(category="x" * 1001),
        ads_pb2.SelectReply(padding=bytes(MAX_REPLY)).SerializeToString(),
    ],
)
def test_an_invalid_reply_is_refused_as_a_whole(payload: bytes) -> None:
    assert len(read_reply(reply_with(), PARENTS, 1, 10)) == 1
    assert len(read_reply(reply_of(10), PARENTS, 1, 10)) == 10
    with pytest.raises(ValueError, match=r"\w"):
        read_reply(payload, PARENTS, 1, 10)


@limited
async def test_an_ad_that_was_prefetched_does_not_depend_on_the_service(tmp_path: Path) -> None:
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service, changed={"cache_for": 600.0}) as home:
        await home.live("home")
        await home.runner.prefetch("latte")
        assert len(service.requests) == 1
        await home.runner.prefetch("latte")  # it has the reply
        service.open.clear()
        assert await home.show("latte", wait=False) is not None
        assert len(service.requests) == 1
