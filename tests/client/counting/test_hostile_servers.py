"""What servers that mean harm can make of a phone: nothing."""

import threading
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import Cost, Query
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting import participant
from reticent_client.counting.budget import unrecorded
from reticent_client.counting.contribution import PreparedContribution, prepare
from reticent_client.counting.records import ContributionState
from reticent_client.errors import Declined, ForeignReply, Reason
from tests.client.counting.world import MEMBERSHIP, PHONE, Device, Servers, device, query

THREADS = 4


def _lose_entries(phone: Device) -> None:
    with phone.store.transaction() as run:
        run("DELETE FROM entries")


def test_a_decision_with_a_number_beyond_all_numbers_is_foreign(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        example = query()
        phone.ask(example)
        made = wire.Decision(query=example.digest, outcome=wire.RELEASED, contributors=2**64 - 1, signature=bytes(64))
        with pytest.raises(ForeignReply, match="not signed by the key server"):
            phone.participant.decided(made)
        assert [entry.state for entry in phone.participant.ledger.entries()] == ["reserved"]


def test_no_query_is_fetched_that_nobody_countersigned(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        announcement = phone.servers.announce(query())
        assert phone.participant.query_request(announcement) is not None
        announcement.countersignature = bytes(64)
        assert phone.participant.query_request(announcement) is None


def test_several_threads_give_one_answer(tmp_path: Path) -> None:
    """Noise is fresh each time: two answers would be two draws to average."""
    with device(tmp_path, rng=secure()) as phone:
        announcement, key = phone.servers.announce(query()), phone.servers.public.to_bytes()
        content = query().to_bytes()
        together = threading.Barrier(THREADS)
        contributions = []

        def contribute() -> None:
            together.wait()
            contributions.append(phone.participant.contribute(announcement, content, key).SerializeToString())

        threads = [threading.Thread(target=contribute) for _ in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(contributions) == THREADS
        assert len(set(contributions)) == 1


def test_a_phone_that_runs_twice_without_a_claim_still_gives_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one contributes while we make our contribution."""
    with device(tmp_path, rng=secure()) as phone:
        example, key = query(), phone.servers.public.to_bytes()
        announcement = phone.servers.announce(example)
        faster: list[wire.Contribution] = []

        def late(*given: Any, **more: Any) -> PreparedContribution:
            if not faster:
                faster.append(wire.Contribution())
                faster[0] = phone.participant.contribute(announcement, example.to_bytes(), key)
            return prepare(*given, **more)

        monkeypatch.setattr(participant, "prepare", late)
        assert phone.participant.contribute(announcement, example.to_bytes(), key) == faster[0]
        assert [record.state for record in phone.participant.records.all()] == [ContributionState.STORED]


def test_what_is_released_after_it_was_called_burnt_is_spent(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        example = query()
        phone.ask(example)
        phone.participant.decided(phone.servers.decide(example, wire.BURNT))
        assert phone.participant.ledger.entries() == ()
        released = phone.servers.decide(example, wire.RELEASED)
        with pytest.raises(ForeignReply, match="is BURNT, and the key server now reports RELEASED"):
            phone.participant.decided(released)
        assert [(entry.query, entry.state) for entry in phone.participant.ledger.entries()] == [
            (example.account, "spent")
        ]
        assert phone.participant.decided(released) is ContributionState.RELEASED


def _released_without_room(phone: Device, first: Query, second: Query) -> None:
    """What was burnt is said again to another query, and then the first is released after all."""
    phone.ask(first)
    phone.participant.decided(phone.servers.decide(first, wire.BURNT))
    phone.ask(second)
    with pytest.raises(ForeignReply, match="is BURNT, and the key server now reports RELEASED"):
        phone.participant.decided(phone.servers.decide(first, wire.RELEASED))


@pytest.mark.parametrize(
    ("first", "second", "limit"),
    [
        (query(), query(id="other"), Cost(1.0, 1e-5)),
        (query(id="a", sequence="s"), query(id="b", sequence="s", epsilon=0.5), Cost(3.0, 1e-5)),
    ],
    ids=["the budget is full", "the sequence has other terms"],
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_release_that_the_budget_cannot_hold_stops_answers_and_not_the_phone(
    tmp_path: Path, first: Query, second: Query, limit: Cost, lost: bool
) -> None:
    with device(tmp_path, limit=limit) as phone:
        _released_without_room(phone, first, second)
        if lost:  # the entries of the ledger
            _lose_entries(phone)
        for _ in range(2):
            phone.restart()
            states = {record.id: record.state for record in phone.participant.records.all()}
            assert states == {first.id: ContributionState.RELEASED, second.id: ContributionState.STORED}
            assert unrecorded(phone.participant.records.all(), phone.participant.ledger.entries()) != []
            for other in (query(id="more", epsilon=0.1), query(id="c", sequence="s")):
                with pytest.raises(Declined, match="the phone contributes nothing new") as declined:
                    phone.ask(other)
                assert declined.value.reason is Reason.BUDGET
        assert len(phone.participant.due()) == 1  # what was said stays said


def test_a_release_beyond_the_budget_is_recorded_once_the_budget_allows_it(tmp_path: Path) -> None:
    with device(tmp_path, limit=Cost(1.0, 1e-5)) as phone:
        other = query(id="other")
        _released_without_room(phone, query(), other)
        phone.participant.decided(phone.servers.decide(other, wire.BURNT))
        phone.restart()
        assert phone.accounts() == {"gym": "spent"}


def test_a_smaller_budget_than_what_was_said_does_not_stop_the_phone(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.ask(query())
        phone.limit = Cost(0.5, 1e-5)
        _lose_entries(phone)
        phone.restart()
        with pytest.raises(Declined, match="the cost of 'gym' exceeds the budget"):
            phone.ask(query(id="other", epsilon=0.1))


def test_a_number_of_an_app_that_fails_in_its_own_way_is_declined(tmp_path: Path) -> None:
    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("no")

    with device(tmp_path, counted={"visits": Broken()}) as phone:
        with pytest.raises(Declined) as declined:
            phone.ask(query())
        assert declined.value.reason is Reason.BAD_COUNTERS


def test_a_phone_that_moved_to_another_key_server_tells_it_nothing_of_before(tmp_path: Path) -> None:
    """The new aggregation server may belong to whoever decrypts for the old key server."""
    with device(tmp_path) as phone:
        message = phone.ask(query())
        enrolment, former = phone.participant.enrolment, phone.servers
        enrolment.leave()
        assert phone.participant.due() == [message]  # who was asked still answers
        enrolment.left()
        phone.servers = Servers()
        request = enrolment.join(phone.servers.invitation(bytes(15) + b"1"))
        enrolment.joined(phone.servers.enrol(request, phone.now + MEMBERSHIP, bytes(reversed(PHONE))))
        phone.restart()
        assert phone.participant.due() == []
        assert phone.participant.awaited() == []
        with pytest.raises(Declined) as declined:
            phone.participant.contribute(former.announce(query()), phone.servers.public.to_bytes())
        assert declined.value.reason is Reason.CONTRIBUTED
        assert phone.accounts() == {"gym": "reserved"}
        now = phone.ask(query(id="now"))
        assert phone.participant.due() == [now]
        assert [each.query for each in phone.participant.awaited()] == [now.query]
        phone.participant.decided(former.decide(query(), wire.BURNT))  # however it came here
        assert phone.accounts() == {"now": "reserved"}


def test_a_decision_that_comes_while_another_query_of_the_sequence_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burnt cost is given back, and a contribution of that moment is recorded all the same."""
    first, second, third = (query(id=f"q{number}", sequence="s") for number in range(3))
    with device(tmp_path) as phone:
        phone.ask(first)
        burnt = phone.servers.decide(first, wire.BURNT)
        decider = threading.Thread(target=phone.participant.decided, args=(burnt,))
        reserve = phone.participant.ledger.reserve

        def reserved(*given: Any, **more: Any) -> Any:
            if decider.ident is None:
                decider.start()
                decider.join(0.2)  # as long as a decision may take that waits for nobody
            return reserve(*given, **more)

        monkeypatch.setattr(phone.participant.ledger, "reserve", reserved)
        phone.ask(second)
        decider.join()
        states = {record.id: record.state for record in phone.participant.records.all()}
        assert states == {"q0": ContributionState.BURNT, "q1": ContributionState.STORED}
        assert phone.accounts() == {second.account: "reserved"}
        assert phone.ask(third).query == third.digest
