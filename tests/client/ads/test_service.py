"""The connection to the ad service: anonymous, encrypted, and to no other server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import SystemClock
from reticent.tls.certificates import Certificate, create
from reticent_client.ads import service as ads_service
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.reply_cache import ReplyCache
from reticent_client.ads.service import AdService
from tests.client.ads.world import HIERARCHY, StubService, settings_for, wire_ad
from tests.client.apps.phones import limited


async def asked(folder: Path, address: str, authority: bytes, nodes: list[int]) -> ReplyCache:
    """The cache after requests for some nodes."""
    contexts = UserContexts(settings_for(folder, address))
    async with AdService(address, authority) as connection:
        cache = ReplyCache(connection, contexts, SystemClock(), ads=3, cache_for=dt.timedelta(hours=1))
        for node in nodes:
            request = cache.request(node)
            assert request is not None
            await request
    return cache


@pytest.mark.parametrize("role", ["ads", "aggregation"])
@limited
async def test_a_phone_shows_no_certificate_and_accepts_the_ad_service_alone(role: str, tmp_path: Path) -> None:
    create(tmp_path / "authority", hosts=["localhost"], analysts=[])
    certificate = Certificate.load(tmp_path / "authority", role)
    service = StubService([wire_ad("shoes", {})])
    async with service.running(credentials=certificate.server_credentials(mutual=False)):
        nodes = [0, 1, len(HIERARCHY.nodes) - 1] if role == "ads" else [0]
        cache = await asked(tmp_path, service.address, certificate.authority, nodes)
        if role != "ads":
            assert cache.problem is not None
            assert "it is for another service" in cache.problem
            assert service.requests == []
            return
        assert cache.problem is None
        assert service.nodes == nodes
        assert {len(message) for _, message in service.requests} == {44}
        # Nothing but what every phone with the same gRPC sends, and no deadline, whose digits vary.
        assert len({tuple(sorted(each)) for each in service.metadata}) == 1
        names: set[Any] = {key for key, _ in service.metadata[0]}
        assert names == {"user-agent"}
        agent = dict(service.metadata[0])["user-agent"]
        assert agent.startswith("grpc-python-asyncio/")
        assert service.peers == [set()] * 3
        assert service.deadlines == [None] * 3


@limited
async def test_the_wait_for_other_phones_is_not_part_of_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ads_service, "DEADLINE", 0.01)
    service = StubService(payload=b"ads")
    async with service.running(), AdService(service.address, None) as connection:
        async with contextlib.AsyncExitStack() as others:
            for _ in range(ads_service.CONCURRENT_CALLS):
                await others.enter_async_context(connection._shared.calls)
            reply = asyncio.create_task(connection.select(b""))
            await asyncio.sleep(0.05)
            monkeypatch.setattr(ads_service, "DEADLINE", 30.0)  # it is read when the call begins
        assert await reply == b"ads"


@limited
async def test_an_address_that_is_not_local_needs_an_authority() -> None:
    with pytest.raises(ValueError, match="it needs certificates"):
        async with AdService("ads.example.org:443", None):
            pass
