"""The key server as a process that is killed, stopped, and put back from a backup."""

import asyncio
import json
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refused, Unreachable
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from reticent_keys.service import SILENCE
from tests.keys.phones import expected, request, summed, sums
from tests.keys.processes import POPULATION, as_party, asked, countersigned, decided, joined, site, standing

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_the_server_goes_on_after_kills_and_commands(tmp_path: Path) -> None:
    with site(tmp_path) as place:
        place.start()
        phones = asyncio.run(joined(place, POPULATION))

        async def before() -> tuple[Query, wire.DecideHead, list[wire.Receipt], wire.Decision, list[wire.Deal]]:
            async with as_party(place, "aggregation") as to:
                query, key, cohorts = await asked(to, phones, "first")
                head, receipts = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
                made = await decided(to, head, receipts)
                return query, head, receipts, made, await countersigned(to, query.to_bytes())

        query, head, receipts, made, deals = asyncio.run(before())
        assert made.outcome == wire.RELEASED
        place.stop(signal.SIGKILL)
        place.start()

        async def after() -> None:
            async with as_party(place, "aggregation") as to:
                assert await decided(to, head, receipts) == made
                assert await countersigned(to, query.to_bytes()) == deals
                active = place.run("rotate", "--passphrase-file", "passphrase", "--key-bits", "2048", "--simulation")
                terms = await standing(to)
                key = PublicKey.from_bytes(terms.public_key, simulation=True)
                assert active == f"the active key is {key.key_id.hex()}\n"
                gone = next(iter(phones))
                assert place.run("revoke", gone.hex()[:16]) == f"phone {gone.hex()} is revoked\n"
                assert place.run("revoke", gone.hex()) == f"phone {gone.hex()} was revoked before\n"
                assert (await standing(to)).population == terms.population - 1
                assert len(list((place.path / "keys" / "pairs").iterdir())) == 2
                assert (await decided(to, wire.DecideHead(query=query.digest, cohort=1), [])).outcome == wire.BURNT
                assert len(list((place.path / "keys" / "pairs").iterdir())) == 1
                assert "no phone has the id 00" in place.run("revoke", 32 * "0", code=1)
                assert "32 hexadecimal digits" in place.run("revoke", "nobody", code=2)

        asyncio.run(after())
        place.run("backup", "copy")

        async def after_the_backup() -> Query:
            async with as_party(place, "aggregation") as to:
                key = PublicKey.from_bytes((await standing(to)).public_key, simulation=True)
                late = replace(query, id="late", population=POPULATION - 1, key_id=key.key_id.hex())
                await countersigned(to, late.to_bytes())
                return late

        late = asyncio.run(after_the_backup())
        assert "copy" in place.run("backup", "copy", code=2)
        assert place.stop() == 0
        place.start("--folder", "copy")

        async def from_the_copy() -> None:
            async with as_party(place, "aggregation") as to:
                assert await decided(to, head, receipts) == made
                with pytest.raises(Refused, match="UNKNOWN_QUERY"):
                    await decided(to, wire.DecideHead(query=late.digest), [])
                with pytest.raises(Refused, match="KEY_RETIRED"):
                    await countersigned(to, late.to_bytes())

        asyncio.run(from_the_copy())
        assert "put back from a backup" in place.log
        assert "put back     from a backup" in place.run("status", "--folder", "copy")


@pytest.mark.slow
def test_kills_while_a_cohort_is_decided_leave_one_decision_or_none(tmp_path: Path) -> None:
    """Killed at different moments of the same request, which in the end gets one answer for ever."""
    with site(tmp_path) as place:
        place.start()
        phones = asyncio.run(joined(place, POPULATION))

        async def prepare() -> tuple[wire.DecideHead, list[wire.Receipt], list[int]]:
            async with as_party(place, "aggregation") as to:
                query, key, cohorts = await asked(to, phones, "killed")
                ask = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
                return *ask, expected(cohorts[0])

        head, receipts, right = asyncio.run(prepare())
        for pause in (0.0, 0.005, 0.01, 0.02, 0.04):

            async def killed(pause: float = pause) -> None:
                async with as_party(place, "aggregation") as to:
                    await standing(to)
                    call = asyncio.ensure_future(decided(to, head, receipts))
                    await asyncio.sleep(pause)
                    place.stop(signal.SIGKILL)
                    with suppress(Unreachable):  # unless it was faster than the kill
                        assert (await call).outcome == wire.RELEASED

            asyncio.run(killed())
            assert json.loads(place.run("status", "--json"))["decided"] in {0, 1}
            place.start()

        async def again() -> None:
            async with as_party(place, "aggregation") as to:
                first = await decided(to, head, receipts)
                assert sums(first) == right
                assert await decided(to, head, receipts) == first
                with pytest.raises(Refused, match="ALREADY_DECIDED"):
                    await decided(to, head, receipts[::-1])

        asyncio.run(again())


def test_a_server_ends_in_time_though_somebody_keeps_it_waiting(tmp_path: Path) -> None:
    with site(tmp_path) as place:
        place.start()
        phones = asyncio.run(joined(place, POPULATION))

        async def run() -> None:
            async with as_party(place, "aggregation") as to:
                query, key, cohorts = await asked(to, phones, "waiting")
                head, _ = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
                stub: Any = services.DecidingStub(to)
                call = stub.Decide()
                await call.write(wire.DecideRequest(head=head))
                await standing(to)
                assert await asyncio.to_thread(place.stop) == 0

        begun = time.monotonic()
        asyncio.run(run())
        assert time.monotonic() - begun < SILENCE / 2
        assert "Traceback" not in place.log
