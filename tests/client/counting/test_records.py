"""The records of contributions: what they count, and what they keep no longer than it is needed."""

from pathlib import Path

import pytest

from reticent.protocol import Unreachable
from reticent.v1 import counting_pb2 as wire
from tests.client.counting.world import START, device, query


def test_the_bytes_of_every_attempt_count(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        size = len(phone.ask(query()).SerializeToString())
        counts = []
        for _ in range(3):
            counts.append(phone.participant.records.since(START.replace(year=2026)))
            phone.participant.not_delivered(query().digest, Unreachable("no reply"))
        assert counts == [(1, size), (1, size), (1, 2 * size)]


@pytest.mark.parametrize("outcome", [wire.RELEASED, wire.BURNT, wire.VOID])
def test_the_message_of_a_decided_contribution_is_deleted(tmp_path: Path, outcome: wire.Outcome.ValueType) -> None:
    with device(tmp_path) as phone:
        contribution = phone.ask(query())
        record = phone.participant.records.of(query().digest)
        assert record is not None
        assert record.message == contribution.SerializeToString()
        phone.participant.decided(phone.servers.decide(query(), outcome))
        decided = phone.participant.records.of(query().digest)
        assert decided is not None
        assert decided.message is None
