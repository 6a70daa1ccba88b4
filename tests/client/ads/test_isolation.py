"""The ads of a day depend on the released stream, the log and the coins alone, whatever the mask hides."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.clock import ManualClock
from reticent.randomness import seeded
from reticent.v1 import phone_pb2
from reticent_client.ads.log import PrivateLog
from reticent_client.ads.messages import ShownAd
from tests.client.ads.world import HIERARCHY, PLACES, QUERIES, StubService, ad_phone, wire_ad
from tests.client.apps.phones import at, calling, limited, releasing
from tests.client.apps.test_timing import AWAY, Frame, Wire

STEPS = 8
SHOWN_DAY: Sequence[str | None] = ["home", "hospital", "work", "hospital", "home", "hospital", "work"]
HIDDEN_DAY: Sequence[str | None] = ["home", "elsewhere", "work", None, "home", "elsewhere", "work"]
"""The same where something is released; elsewhere is no context of the policy, which suppresses it."""


@dataclass
class Recorded:
    """All that left the phone in a day, and its log."""

    released: list[bytes]
    requests: list[tuple[dt.datetime, bytes]]
    replies: list[tuple[dt.datetime, bytes]]
    log: list[Any]


def ads_of_places() -> list[Any]:
    """An ad for each place, which has its best rate there, and one with a cap for all."""
    ads = []
    for place in PLACES.values():
        leaves = [n for n, node in enumerate(HIERARCHY.nodes) if node.level == 0 and node.values[0] == place]
        others = [n for n, node in enumerate(HIERARCHY.nodes) if node.level == 0 and node.values[0] != place]
        rates = dict.fromkeys(leaves, 0.5) | dict.fromkeys(others, 0.1)
        ads.append(wire_ad(f"near {place}", rates))
    return [*ads, wire_ad("everywhere", {0: 0.4}, cap=2)]


async def lived(folder: Path, day: Sequence[str | None], **changed: Any) -> Recorded:
    """A day with three requests a step, of which some ads are clicked."""
    service = StubService()
    for node in range(len(HIERARCHY.nodes)):
        service.of_node[node] = [ad for ad in ads_of_places() if all(below(rate.node, node) for rate in ad.rates)] or [
            wire_ad(f"general {node}", {node: 0.2})
        ]
    options: dict[str, Any] = {"quiet": ((dt.time(12, 30), dt.time(14)),), "max_per_day": 15, "cache_for": 4000.0}
    async with ad_phone(
        folder,
        service,
        policy=releasing(STEPS),
        start=at("00:00"),
        changed=options | changed,
        rng=seeded(7),
    ) as home:
        assert isinstance(home.clock, ManualClock)
        for number, context in enumerate(day):
            await home.live(context)
            for query in (*QUERIES, "nonsense")[number % 2 :: 2]:
                await home.clock.move_to(home.clock.now() + dt.timedelta(minutes=20))
                home.phone.sense(context)
                shown = await home.show(query)
                if isinstance(shown, ShownAd) and number % 2:
                    click = phone_pb2.ReportRequest(clicked=shown.showing).SerializeToString()
                    home.replies.append((home.clock.now(), await home.app.raw("Report", click)))
        log = PrivateLog(home.phone.store).last(100)
        released = [messages["masked"] for _, messages in home.phone.store.messages()]
        return Recorded(released, service.requests, home.replies, log)


def below(node: int, above: int) -> bool:
    """Whether a node is at or below another."""
    while node != above and node > 0:
        node = int(HIERARCHY.parents[node])
    return node == above


@limited
async def test_two_days_with_one_released_stream_are_equal_byte_by_byte(tmp_path: Path) -> None:
    one, other = await lived(tmp_path, SHOWN_DAY), await lived(tmp_path, HIDDEN_DAY)
    assert one.released == other.released
    assert one.requests == other.requests
    assert one.replies == other.replies
    assert one.log == other.log
    shown = {entry.ad for entry in one.log}
    assert len(shown) > 3  # places, the whole, and no ad
    assert None in shown


@limited
async def test_an_ad_of_the_exact_context_under_the_mask_tells_the_days_apart(tmp_path: Path) -> None:
    """The comparison above can fail: the user's explicit choice makes it."""
    one = await lived(tmp_path, SHOWN_DAY, exact_under_mask=True)
    other = await lived(tmp_path, HIDDEN_DAY, exact_under_mask=True)
    assert one.released == other.released
    assert one.requests != other.requests
    assert one.replies != other.replies


@limited
async def test_frames_on_the_wire_do_not_tell_an_ad_from_none(tmp_path: Path) -> None:
    """An ad of the service, one of the cache, none because of the cap, and none because the service is silent."""

    async def frames(*, silent: bool) -> list[Frame]:
        service = StubService([wire_ad("shoes", {}, cap=2)])
        async with ad_phone(tmp_path, service) as home:
            wire = Wire(home.clock, ("127.0.0.1", int(home.broker.address.rpartition(":")[2])))
            async with wire.tapped() as address, calling(address, home.phone.apps.add("weather")) as home.app:
                if silent:
                    service.open.clear()
                shown = [await home.show(wait=not silent) is not None for _ in range(3)]
                assert shown == ([False] * 3 if silent else [True, True, False])
            return [frame for frame in wire.frames if frame[1] == "to the app" and frame[2] != AWAY]

    one, other = await frames(silent=False), await frames(silent=True)
    assert one == other
    assert len(one) >= 3 * 3  # headers, the message and the trailers of each reply


@limited
async def test_what_a_sensor_reads_between_two_steps_changes_nothing(tmp_path: Path) -> None:
    """A request between two steps takes the released label of the present step, and no newer reading."""
    service = StubService([wire_ad("shoes", {})])
    async with ad_phone(tmp_path, service, changed={"cache_for": 0.0}) as home:
        await home.live("home")
        await home.show()
        home.phone.sense("work")
        await home.show()
        assert len(set(service.nodes)) == 1
