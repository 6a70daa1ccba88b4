"""What servers that mean harm can make of a phone: nothing."""

import threading
from pathlib import Path

import pytest

from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.conditions import Declined, Reason
from reticent_client.counting.participant import ForeignAnswer
from reticent_client.counting.records import State
from tests.client.counting.world import Device, query

THREADS = 4


def test_a_decision_with_a_number_beyond_all_numbers_is_foreign(tmp_path: Path) -> None:
    device = Device(tmp_path)
    asked = query()
    device.participant.asked(device.servers.announce(asked), device.servers.public.to_bytes())
    made = wire.Decision(query=asked.digest, outcome=wire.RELEASED, contributors=2**64 - 1, signature=bytes(64))
    with pytest.raises(ForeignAnswer, match="not signed by the key server"):
        device.participant.decided(made)
    assert [entry.state for entry in device.ledger.entries()] == ["reserved"]


def test_no_key_is_fetched_for_a_query_that_nobody_countersigned(tmp_path: Path) -> None:
    device = Device(tmp_path)
    announcement = device.servers.announce(query())
    assert device.participant.key_wanted(announcement) is not None
    announcement.countersignature = bytes(64)
    assert device.participant.key_wanted(announcement) is None


def test_several_threads_give_one_answer(tmp_path: Path) -> None:
    """Noise is fresh each time: two answers would be two draws to average."""
    device = Device(tmp_path, rng=secure())
    announcement, key = device.servers.announce(query()), device.servers.public.to_bytes()
    together = threading.Barrier(THREADS)
    answers = []

    def answer() -> None:
        together.wait()
        answers.append(device.participant.asked(announcement, key).SerializeToString())

    threads = [threading.Thread(target=answer) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(answers) == THREADS
    assert len(set(answers)) == 1


def test_a_phone_that_runs_twice_without_a_claim_still_gives_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one answers between our intention and our keeping it."""
    device = Device(tmp_path, rng=secure())
    asked, key = query(), device.servers.public.to_bytes()
    announcement = device.servers.announce(asked)
    keep = device.participant.records.keep
    faster: list[wire.Contribution] = []

    def late(*given: object) -> bool:
        if not faster:
            faster.append(wire.Contribution())
            faster[0] = device.participant.asked(announcement, key)
        return keep(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(device.participant.records, "keep", late)
    assert device.participant.asked(announcement, key) == faster[0]
    assert [record.state for record in device.participant.records.all()] == [State.STORED]


def test_what_is_released_after_it_was_called_burnt_is_spent(tmp_path: Path) -> None:
    device = Device(tmp_path)
    asked = query()
    device.participant.asked(device.servers.announce(asked), device.servers.public.to_bytes())
    device.participant.decided(device.servers.decide(asked, wire.BURNT))
    assert device.ledger.entries() == ()
    released = device.servers.decide(asked, wire.RELEASED)
    with pytest.raises(ForeignAnswer, match="is BURNT, and the key server now says RELEASED"):
        device.participant.decided(released)
    assert [(entry.query, entry.state) for entry in device.ledger.entries()] == [(asked.account, "spent")]
    assert device.participant.decided(released) is State.RELEASED


def test_a_number_of_an_app_that_fails_in_its_own_way_is_declined(tmp_path: Path) -> None:
    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("no")

    device = Device(tmp_path, counted={"visits": Broken()})  # type: ignore[dict-item]
    with pytest.raises(Declined) as declined:
        device.participant.asked(device.servers.announce(query()), device.servers.public.to_bytes())
    assert declined.value.reason is Reason.BAD_COUNTERS
