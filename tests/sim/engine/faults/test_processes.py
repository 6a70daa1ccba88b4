"""Faults of processes: servers are killed, start again, and have no room on their disks."""

import asyncio
import random
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.protocol import Refusal, Refused
from reticent.protocol.calls import reply_of
from reticent.v1.counting_pb2_grpc import CollectingStub, EnrolmentStub
from reticent_sim.engine import ServerPair, ServerProcess, launched
from reticent_sim.engine.errors import LaunchError
from reticent_sim.engine.faults import Fault, FaultSchedule, Moment, ProcessFaults
from tests.parties.callers import TIMEOUT
from tests.parties.phone import Phone
from tests.system.campaign import ALLOWED, START, Campaign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the files of other processes")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    """A process that does nothing."""
    made = ServerProcess("sleeper", tmp_path, command=lambda: ["sleep", "60"], endpoints=())
    made.start()
    yield made
    if made.is_running:
        made.kill()


def file_limit(process: ServerProcess) -> int:
    return resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[0]


def test_faults_of_processes_begin_and_end_with_their_steps(process: ServerProcess) -> None:
    schedule = FaultSchedule(
        (
            Fault(0, 1, "crash", "keys", steps=0),
            Fault(0, 2, "full", "keys", steps=5),
            Fault(0, 3, "crash", "keys", steps=2),
            Fault(0, 4, "crash", "keys", steps=2),
            Fault(0, 4, "crash", "ads"),
            Fault(0, 8, "crash", "keys", steps=1, phase=1),
            Fault(0, 9, "crash", "keys", steps=7, phase=2),
            Fault(0, 8, "crash", "worker 3", steps=0),
            Fault(0, 23, "crash", "keys", steps=9),
        )
    )
    killed: list[tuple[int, Moment]] = []
    faults = ProcessFaults(schedule, {"keys": process}, lambda *crash: killed.append(crash))
    free, first = file_limit(process), process.pid
    found = []
    for step in range(24):
        for phase in range(3):
            for each in faults.begin(Moment(0, step, phase)):
                found.append((*each.moment[1:], each.outcome))
                assert each.fault in schedule.faults
        assert process.is_running == (step not in {3, 4, 5, 9, 23})
        if process.is_running:
            assert file_limit(process) == (0 if step in {2, 6} else free), step
    assert found == [
        (1, 0, "killed, serves again"),
        (2, 0, "its disk is full"),
        (3, 0, "killed"),
        (4, 0, "it did not run"),
        (4, 0, "not applied: the run has no such server"),
        (6, 0, "serves again"),
        (7, 0, "its disk has room again"),
        (8, 0, "killed, works again"),
        (8, 1, "killed"),
        (8, 2, "serves again"),
        (9, 2, "killed"),
        (10, 0, "serves again"),
        (23, 0, "killed"),
    ]
    assert killed == [(3, Moment(0, 8))]
    assert [each.outcome for each in faults.finish(Moment(0, 23))] == ["serves again"]
    assert process.is_running
    assert process.pid != first


def test_the_disk_of_a_server_with_a_database_is_not_full(process: ServerProcess) -> None:
    schedule = FaultSchedule((Fault(0, 1, "full", "aggregation-2"),))
    faults = ProcessFaults(schedule, {"aggregation-2": process}, without_disks=["aggregation-2"])
    free = file_limit(process)
    [outcome] = faults.begin(Moment(0, 1))
    assert (outcome.is_applied, outcome.outcome) == (False, "not applied: its data is in PostgreSQL")
    assert file_limit(process) == free


def test_full_disks_are_refused_before_the_run_where_they_cannot_be_made(
    process: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(resource, "prlimit")
    with pytest.raises(LaunchError, match="only Linux"):
        ProcessFaults(FaultSchedule((Fault(0, 2, "full", "keys"),)), {"keys": process})
    ProcessFaults(FaultSchedule((Fault(0, 2, "full", "phone 3"),)), {"keys": process})


@pytest.mark.slow
def test_servers_refuse_on_a_full_disk_and_what_they_acknowledged_is_counted_once_in_the_end(tmp_path: Path) -> None:
    schedule = FaultSchedule(
        (
            Fault(0, 0, "full", "keys"),
            Fault(0, 1, "full", "aggregation"),
            Fault(0, 2, "crash", "aggregation", steps=0),
            Fault(0, 3, "crash", "keys"),
        )
    )

    async def live(servers: ServerPair) -> None:
        campaign = Campaign(servers, random.Random(1))  # noqa: S311  # no secret
        campaign.phones = [Phone(each.token) for each in servers.invitations(12)]
        faults = ProcessFaults(schedule, {"keys": servers.keys, "aggregation": servers.aggregation})
        faults.begin(Moment(0, 0))
        async with servers.enrolment.channel() as channel:
            enrolment = EnrolmentStub(channel)
            with pytest.raises(Refused) as caught:
                await reply_of(enrolment.Join(campaign.phones[0].joining(), timeout=TIMEOUT))
            assert caught.value.refusal is Refusal.UNAVAILABLE
            assert caught.value.retry_after == pytest.approx(1, abs=0.1)
            faults.begin(Moment(0, 1))
            for phone in campaign.phones:
                phone.membership = await reply_of(enrolment.Join(phone.joining(), timeout=TIMEOUT))
        assert [each.outcome for each in faults.finish(Moment(0, 1))] == ["its disk has room again"]
        await campaign.announce([False])
        [asked] = campaign.asked
        async with servers.collecting.channel() as channel:
            collecting = CollectingStub(channel)
            await reply_of(collecting.Contribute(asked.messages[0], timeout=TIMEOUT))
            faults.begin(Moment(0, 1))
            for message in asked.messages[1:4]:
                with pytest.raises(Refused) as caught:
                    await reply_of(collecting.Contribute(message, timeout=TIMEOUT))
                assert caught.value.refusal is Refusal.UNAVAILABLE
            await reply_of(collecting.Contribute(asked.messages[0], timeout=TIMEOUT))  # that needs no room
            faults.finish(Moment(0, 2))
            await reply_of(collecting.Contribute(asked.messages[1], timeout=TIMEOUT))
            faults.begin(Moment(0, 2))
            faults.begin(Moment(0, 3))
            for number in range(12):
                await campaign.to_aggregation.retried(collecting.Contribute, asked.messages[number])
                asked.acknowledged.add(number)
        assert [each.outcome for each in faults.begin(Moment(0, 4))] == ["serves again"]
        assert not campaign.wrong(await campaign.decisions())

    with launched(ServerPair(tmp_path, clock=START, keys_options=ALLOWED)) as servers:
        asyncio.run(live(servers))
