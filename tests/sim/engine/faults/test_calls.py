"""A phone behind a faulty network: real calls over TLS, of which some fail as a schedule says."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from reticent.privacy import Cost
from reticent_client import Situation
from reticent_client.counting.records import ContributionState
from reticent_client.counting.servers import Servers as ClientServers
from reticent_client.counting.session import Round, enrol, take_part
from reticent_sim.engine.faults import Fault, Kind, Moment, PhoneFaults, PhoneNetwork
from tests.client.counting.network import Network
from tests.client.counting.world import Device, Servers, device, query

DEADLINE = 60.0  # seconds for a test
SEEN: dict[Kind, tuple[set[int], str | None]] = {
    "request lost": ({0}, "DEADLINE_EXCEEDED: the request was lost"),
    "reply lost": ({1}, "DEADLINE_EXCEEDED: the reply was lost"),
    "delay": ({1}, "DEADLINE_EXCEEDED: the reply came after the deadline"),
    "cut": ({1, 2}, "UNAVAILABLE: the connection was cut"),
    "duplicate": ({2}, None),
}
"""How often a contribution arrives that the phone sends once, and what the phone sees."""
PARTITION = Fault(0, 23, "partition", "phone 0", server="aggregation")


def test_a_phone_sees_each_fault_and_contributes_the_same_in_the_end(tmp_path: Path) -> None:
    """One query for each fault, which is over in the next step."""
    faults = [Fault(0, step, kind, "phone 0", call="contribute") for step, kind in enumerate(SEEN)]
    present = Moment(1, 0)
    network = Network(Servers())
    calls = PhoneNetwork(PhoneFaults((*faults, PARTITION)), lambda: present)

    async def live(phone: Device) -> None:
        async def round_at(moment: Moment) -> Round:
            nonlocal present
            present = moment
            phone.pass_time(hours=1)
            async with calls.servers(network.invitation) as servers:
                return await take_part(phone.participant, servers, Situation())

        phone.now = dt.datetime.now(dt.UTC)
        phone.participant.enrolment.join(network.invitation)
        async with calls.servers(network.invitation) as servers:
            await enrol(phone.participant, servers)
        for fault, (kind, (arrivals, sentence)) in zip(faults, SEEN.items(), strict=True):
            network.queries, network.taken = [query(id=kind)], {}
            done = await round_at(fault.moment)
            assert [str(each.error) for each in done.failures] == ([sentence] if sentence else [])
            state = ContributionState.STORED if sentence else ContributionState.ACKNOWLEDGED
            assert [each.state for each in done.contributions] == [state], kind
            arrived = network.taken.get(network.queries[0].digest, [])
            assert len(arrived) in arrivals, kind
            done = await round_at(Moment(1, 1))
            assert [each.state for each in done.contributions] == [ContributionState.ACKNOWLEDGED]
            assert len(set(network.taken[network.queries[0].digest])) == 1  # always the same bytes
        made = network.calls.total()
        network.queries = [query(id="another")]
        done = await round_at(PARTITION.moment)
        assert {str(each.error) for each in done.failures} == {"UNAVAILABLE: the network does not reach the server"}
        assert network.calls.total() == made
        done = await round_at(Moment(1, 2))
        assert [each.state for each in done.contributions] == [ContributionState.ACKNOWLEDGED]

    async def serve() -> None:
        with device(tmp_path, servers=network.servers, joined=False, limit=Cost(100.0, 1e-3)) as phone:
            async with network.listening(tmp_path / "certs"):
                await live(phone)

    asyncio.run(asyncio.wait_for(serve(), DEADLINE))


def test_the_calls_of_a_step_are_counted_by_name_and_a_partition_stops_them_all() -> None:
    present = Moment(0, 0)
    faults = PhoneFaults(
        (
            Fault(0, 0, "cut", "phone 0", call="join", times=2),
            Fault(0, 0, "delay", "phone 0", call="contribute"),
            Fault(0, 1, "partition", "phone 0", server="keys"),
        )
    )
    network = PhoneNetwork(faults, lambda: present)
    assert not faults.take_applied()
    assert [network.fault_of("join") for _ in range(3)] == ["cut", "cut", None]
    assert faults.take_applied() == {faults.faults[0]}
    assert network.fault_of("contribute") == "delay"
    assert faults.take_applied() == {faults.faults[1]}
    present = Moment(0, 0, phase=1)
    assert network.fault_of("contribute") is None  # the calls of a step are counted, not those of a round
    present = Moment(0, 1)
    assert [network.fault_of(call) for call in ("join", "renew", "leave")] == ["partition"] * 3
    assert network.fault_of("contribute") is None
    assert faults.take_applied() == {faults.faults[2]}
    present = Moment(0, 0)
    assert network.fault_of("join") == "cut"


def test_servers_are_reached_once_they_listen(tmp_path: Path) -> None:
    network = Network(Servers())

    async def wait() -> None:
        async with network.listening(tmp_path / "certs"):
            pass  # its addresses and certificates are known from now on
        async with ClientServers(network.invitation) as servers:
            for wait in (servers.wait_for_key_server, servers.wait_for_aggregation_server):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait(), 0.02)
        async with network.listening(tmp_path / "certs"), ClientServers(network.invitation) as servers:
            await asyncio.wait_for(servers.wait_for_key_server(), DEADLINE)
            await asyncio.wait_for(servers.wait_for_aggregation_server(), DEADLINE)

    asyncio.run(wait())
