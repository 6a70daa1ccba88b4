"""The ad service in the process of the test: replies, refusals, and new versions while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads import service
from reticent_agg.ads.folder import AdFolder, AdSources
from reticent_agg.ads.index import AdIndex
from reticent_agg.ads.messages import EncodedAds
from reticent_agg.ads.service import AdServer
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, OTHER_HIERARCHY, PARENTS, World
from tests.parties.waiting import until

FINGERPRINT = bytes.fromhex(HIERARCHY.fingerprint)
SELECT = "/reticent.v1.Ads/Select"
DEADLINE = 10.0


def put(folder: AdFolder, given: Path, world: World = EXAMPLE) -> AdIndex:
    """Load a version, and give the index that its replies should come from."""
    given.mkdir(exist_ok=True)
    world.write(given)
    paths = AdSources(given / "catalogue.csv", given / "rates.npz", given / "hierarchy.json")
    return folder.index(folder.load(paths, dataclasses.asdict(world.settings)))


@contextlib.asynccontextmanager
async def serving(folder: AdFolder) -> AsyncIterator[tuple[AdServer, Callable[[bytes], Any]]]:
    """A service, and the raw method that its phones call."""
    with folder.serve_alone():
        async with (
            AdServer(folder, phones="127.0.0.1:0", credentials=None) as server,
            channel(server.address, None) as way,
        ):
            select: Any = way.unary_unary(SELECT)
            yield server, select


def request(node: int, ads: int = 2, hierarchy: bytes = FINGERPRINT) -> bytes:
    return wire.SelectRequest(hierarchy=hierarchy, node=node, ads=ads).SerializeToString()


async def refusal_of(call: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await reply_of(call)
    return caught.value


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, DEADLINE))


def test_phones_get_the_replies_of_the_index_and_strangers_typed_refusals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def live() -> None:
        folder = AdFolder(tmp_path / "ads")
        async with serving(folder) as (server, select):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await select(request(0))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert (await refusal_of(select(request(0)))).retry_after == pytest.approx(10, abs=0.1)
            index = put(folder, tmp_path / "given")
            server.check_folder()
            await until(lambda: server.version is not None)
            for node in range(len(PARENTS)):
                for ads in (1, 2, 4, 4):  # the last one is kept
                    expected = index.format.reply(index.encoded(node), ads)
                    assert await select(request(node, ads)) == expected, (node, ads)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await select(request(0, hierarchy=bytes.fromhex(OTHER_HIERARCHY.fingerprint)))
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            for wrong, refusal, detail in (
                (request(0, hierarchy=b""), Refusal.OTHER_HIERARCHY, "another hierarchy"),
                (request(len(PARENTS)), Refusal.MALFORMED, f"the hierarchy has {len(PARENTS)} nodes"),
                (wire.SelectRequest(hierarchy=FINGERPRINT, ads=1), Refusal.MALFORMED, "there is no such node"),
                (wire.SelectRequest(hierarchy=FINGERPRINT, node=0), Refusal.MALFORMED, "a reply has 1 to 4 ads: got 0"),
                (request(0, 5), Refusal.MALFORMED, "a reply has 1 to 4 ads: got 5"),
                (b"\xff", Refusal.MALFORMED, "is not a SelectRequest"),
                (bytes(300), Refusal.OVERSIZED, "256 bytes: got 300"),
            ):
                content = wrong if isinstance(wrong, bytes) else wrong.SerializeToString()
                found = await refusal_of(select(content))
                assert (found.refusal, detail in found.detail) == (refusal, True), found
            await server.report()
            report = folder.report()
            assert report is not None
            assert (report.serving, report.served, report.refused) == ("000001", 4 * len(PARENTS), 8)
        stopped = folder.report()
        assert stopped is not None
        assert stopped.stopped

    run(live())
    logged = [each.getMessage() for each in caplog.records if each.name.startswith("reticent")]
    assert [each.partition(" at ")[0] for each in logged] == [
        "serving version 000001: 4 ads, 4 rates",
        "stopped listening",
    ]  # and nothing about requests


def test_a_node_is_computed_once_for_all_and_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, gate = list[int](), threading.Event()
    encoded = AdIndex.encoded

    def slow(index: AdIndex, node: int) -> EncodedAds:
        computed.append(node)
        if node == 1:
            gate.wait(DEADLINE)
        return encoded(index, node)

    async def live() -> None:
        folder = AdFolder(tmp_path / "ads")
        index = put(folder, tmp_path / "given")
        monkeypatch.setattr(AdIndex, "encoded", slow)
        async with serving(folder) as (_, select):
            await select(request(2))
            first = select(request(1))
            waiting = [asyncio.ensure_future(select(request(1))) for _ in range(8)]
            await until(lambda: computed == [2, 1])
            assert await select(request(2, 1)) == index.format.reply(encoded(index, 2), 1)
            first.cancel()  # the others still wait for what it began
            gate.set()
            expected = index.format.reply(encoded(index, 1), 2)
            assert {await each for each in waiting} == {expected}
        assert computed == [2, 1]

    run(live())


def test_every_reply_is_of_one_version_while_versions_change_and_bad_ones_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was requested before is ready when a new version is served."""
    computed, encoded = list[str](), AdIndex.encoded

    def noted(index: AdIndex, node: int) -> EncodedAds:
        computed.append(threading.current_thread().name.partition("_")[0])
        return encoded(index, node)

    lines = [dataclasses.replace(each, text="Now better") for each in EXAMPLE.lines]
    rates = {key: (rate / 2, views) for key, (rate, views) in EXAMPLE.rates.items()}
    other = dataclasses.replace(EXAMPLE, lines=lines, rates=rates)

    async def live() -> None:
        folder = AdFolder(tmp_path / "ads")
        replies = list[bytes]()
        one = put(folder, tmp_path / "given")
        monkeypatch.setattr(AdIndex, "encoded", noted)
        async with serving(folder) as (server, select):

            async def call() -> None:
                while not done.is_set():
                    replies.append(await select(request(0)))

            done = asyncio.Event()
            calls = [asyncio.ensure_future(call()) for _ in range(4)]
            await until(lambda: len(replies) > 20)
            two = await asyncio.to_thread(put, folder, tmp_path / "given", other)
            server.check_folder()
            await until(lambda: server.version is not None and server.version.name == "000002")
            (folder.path / "000002" / "index.npz").write_text("damaged by somebody")
            server.check_folder()
            await until(lambda: any(each.levelno == logging.ERROR for each in caplog.records))
            count = len(replies)
            await until(lambda: len(replies) > count + 20)
            done.set()
            await asyncio.gather(*calls)
            await server.report()
            report = folder.report()
            assert report is not None
            assert (report.serving, report.rejected) == ("000002", "000002")  # it was spoilt after it was served
            assert "this is not an index of ads" in str(report.reason)
        assert computed == ["selector", "loader"]
        first, second = (each.format.reply(encoded(each, 0), 2) for each in (one, two))
        assert set(replies) == {first, second}
        assert replies[-20:] == [second] * 20

    run(live())


def test_the_ads_that_nobody_asks_for_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = AdFolder(tmp_path / "ads")
    index, version = put(folder, tmp_path / "given"), folder.current()
    assert version is not None
    monkeypatch.setattr(service, "MAX_CACHED_BYTES", 250)
    served = service.ServedVersion(version, index)
    for node in (1, 2, 3):
        served.keep(node, EncodedAds(bytes(100), (0, 100)))
        served.cached(1)
    assert served.last_nodes() == [3, 1]
    served.keep(4, EncodedAds(bytes(1000), (0, 1000)))  # more than there is room for: it is kept alone
    assert served.last_nodes() == [4]


def test_a_full_disk_does_not_end_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = AdFolder(tmp_path / "ads")
    index = put(folder, tmp_path / "given")

    def full(_: AdFolder, _report: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AdFolder, "write_report", full)

    async def live() -> None:
        async with serving(folder) as (_, select):
            assert await select(request(0)) == index.format.reply(index.encoded(0), 2)

    run(live())
    assert "the report for `reticent ads status` cannot be written: [Errno 28]" in caplog.text
