"""The key server as a process that is killed, stopped, and restored from a backup."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refused, Unreachable
from reticent.rpc import Limits
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from tests.keys.processes import (
    POPULATION,
    Site,
    contributions,
    countersigned,
    decided,
    members,
    site,
    terms_of,
)
from tests.parties.decision_requests import expected, request, summed, sums
from tests.parties.phone import Phone

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@dataclass(frozen=True)
class Replies:
    """The replies of a server, which it repeats after whatever happens to it."""

    query: Query
    head: wire.DecideHead
    receipts: list[wire.Receipt]
    made: wire.Decision
    deals: list[wire.Deal]


async def first_replies(place: Site, phones: dict[bytes, Phone]) -> Replies:
    """A query of which one of two cohorts is decided."""
    async with place.deciding.channel() as to:
        query, key, cohorts = await contributions(to, phones, "first")
        head, receipts = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
        made = await decided(to, head, receipts)
        assert made.outcome == wire.RELEASED
        return Replies(query, head, receipts, made, await countersigned(to, query.to_bytes()))


def pairs(place: Site) -> int:
    """How many key pairs are kept."""
    return len(list((place.keys_folder / "pairs").iterdir()))


def test_the_server_goes_on_after_a_kill_and_commands(tmp_path: Path) -> None:
    with site(tmp_path) as place:
        phones = members(place, POPULATION)
        before = asyncio.run(first_replies(place, phones))
        place.keys.restart()

        async def after() -> None:
            async with place.deciding.channel() as to:
                assert await decided(to, before.head, before.receipts) == before.made
                assert await countersigned(to, before.query.to_bytes()) == before.deals
                await _rotate(place, to)
                await _revoke(place, to, next(iter(phones)))
                assert pairs(place) == 2
                burn = wire.DecideHead(query=before.query.digest, cohort=1)
                assert (await decided(to, burn, [])).outcome == wire.BURNT
                assert pairs(place) == 1

        asyncio.run(after())


async def _rotate(place: Site, to: grpc.aio.Channel) -> None:
    output = place.command("rotate", "--passphrase-file", "passphrase", "--key-bits", "2048", "--simulation")
    key = PublicKey.from_bytes((await terms_of(to)).public_key, simulation=True)
    assert output == f"the active key is {key.key_id.hex()}\n"


async def _revoke(place: Site, to: grpc.aio.Channel, phone: bytes) -> None:
    before = await terms_of(to)
    assert place.command("revoke", phone.hex()[:16]) == f"phone {phone.hex()} is revoked\n"
    assert place.command("revoke", phone.hex()) == f"phone {phone.hex()} was revoked before\n"
    assert (await terms_of(to)).population == before.population - 1
    assert "no phone has the id 00" in place.command("revoke", 32 * "0", code=3)
    assert "32 hexadecimal digits" in place.command("revoke", "nobody", code=2)


def test_a_backup_repeats_decisions_and_leaves_later_queries_closed(tmp_path: Path) -> None:
    with site(tmp_path) as place:
        before = asyncio.run(first_replies(place, members(place, POPULATION)))
        place.command("backup", "copy")

        async def after_the_backup() -> Query:
            async with place.deciding.channel() as to:
                late = replace(before.query, id="late")
                await countersigned(to, late.to_bytes())
                return late

        late = asyncio.run(after_the_backup())
        assert "copy" in place.command("backup", "copy", code=2)
        place.keys.stop()
        place.keys_folder = tmp_path / "copy"
        place.keys.start()

        async def from_the_copy() -> None:
            async with place.deciding.channel() as to:
                assert await decided(to, before.head, before.receipts) == before.made
                with pytest.raises(Refused, match="UNKNOWN_QUERY"):
                    await decided(to, wire.DecideHead(query=late.digest), [])
                for query in (late, before.query):
                    with pytest.raises(Refused, match="KEY_RETIRED"):
                        await countersigned(to, query.to_bytes())

        asyncio.run(from_the_copy())
        assert "restored from a backup" in place.log
        assert "restored     from a backup" in place.command("status", "--folder", "copy")


def test_the_log_tells_of_a_key_pair_that_cannot_be_opened(tmp_path: Path) -> None:
    """As when its operator rotates keys as another user of the machine."""
    with site(tmp_path) as place:
        (former,) = (place.keys_folder / "pairs").iterdir()

        async def run() -> None:
            async with place.deciding.channel() as to:
                place.command("rotate", "--passphrase-file", "passphrase", "--key-bits", "2048", "--simulation")
                (path,) = set((place.keys_folder / "pairs").iterdir()) - {former}
                path.write_bytes(b"")
                with pytest.raises(Refused, match="UNAVAILABLE: the key pair"):
                    await terms_of(to)

        asyncio.run(run())
        assert "a key pair cannot be opened" in place.log
        assert "this is no key pair" in place.log


def test_kills_while_a_cohort_is_decided_leave_one_decision_or_none(tmp_path: Path) -> None:
    """Killed at different moments of the same request, which in the end gets one answer for ever."""
    with site(tmp_path) as place:
        phones = members(place, POPULATION)

        async def prepare() -> tuple[wire.DecideHead, list[wire.Receipt], list[int]]:
            async with place.deciding.channel() as to:
                query, key, cohorts = await contributions(to, phones, "killed")
                message = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
                return *message, expected(cohorts[0])

        head, receipts, right = asyncio.run(prepare())
        for pause in (0.0, 0.005, 0.01, 0.02, 0.04):

            async def killed(pause: float = pause) -> None:
                async with place.deciding.channel() as to:
                    await terms_of(to)
                    call = asyncio.ensure_future(decided(to, head, receipts))
                    await asyncio.sleep(pause)
                    place.keys.kill()
                    with suppress(Unreachable):  # unless it was faster than the kill
                        assert (await call).outcome == wire.RELEASED

            asyncio.run(killed())
            assert json.loads(place.command("status", "--json"))["decided"] in {0, 1}
            place.keys.start()

        async def again() -> None:
            async with place.deciding.channel() as to:
                first = await decided(to, head, receipts)
                assert sums(first) == right
                assert await decided(to, head, receipts) == first
                with pytest.raises(Refused, match="ALREADY_DECIDED"):
                    await decided(to, head, receipts[::-1])

        asyncio.run(again())


def test_a_server_ends_in_time_though_somebody_keeps_it_waiting(tmp_path: Path) -> None:
    with site(tmp_path) as place:
        phones = members(place, POPULATION)

        async def run() -> None:
            async with place.deciding.channel() as to:
                query, key, cohorts = await contributions(to, phones, "waiting")
                head, _ = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
                stub: Any = services.DecidingStub(to)
                call = stub.Decide()
                await call.write(wire.DecideRequest(head=head))
                await terms_of(to)
                await asyncio.to_thread(place.keys.stop)

        begun = time.monotonic()
        asyncio.run(run())
        assert time.monotonic() - begun < Limits().timeout / 2
        assert "Traceback" not in place.log
