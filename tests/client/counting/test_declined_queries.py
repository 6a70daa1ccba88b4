"""What a phone remembers of declined queries, what it tries again, and what it contributes after all."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined, Participation, Situation
from reticent_client.counting import contribution, participant
from reticent_client.counting.records import DeclinedQueries
from reticent_client.errors import Reason
from tests.client.counting.world import BITS, Servers, device, query
from tests.parties.key_pairs import pair


def test_what_lasts_is_remembered_and_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with device(tmp_path, policy=Participation(max_epsilon=0.5)) as phone:
        announcement = phone.servers.announce(query())
        assert phone.participant.query_request(announcement) is not None
        assert phone.participant.key_id(announcement, query().to_bytes()) == pair(BITS).public.key_id
        with pytest.raises(Declined) as first:
            phone.ask(query())
        phone.restart()
        assert phone.participant.query_request(announcement) is None
        monkeypatch.setattr(participant, "check_query", lambda *_: pytest.fail("looked at it again"))
        with pytest.raises(Declined) as second:
            phone.ask(query())
        assert (second.value.reason, str(second.value)) == (first.value.reason, str(first.value))
        [shown] = DeclinedQueries(phone.store).all()
        assert (shown.query, shown.reason) == ("gym", Reason.EPSILON)


def test_another_policy_is_another_decision(tmp_path: Path) -> None:
    with device(tmp_path, policy=Participation(max_epsilon=0.5)) as phone:
        with pytest.raises(Declined):
            phone.ask(query())
        phone.policy = Participation(max_epsilon=1.0)
        phone.restart()
        assert phone.ask(query()).query == query().digest
        assert DeclinedQueries(phone.store).all() == []


def test_a_wrong_countersignature_does_not_spoil_the_right_one(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        forged = Servers().announce(query())
        for _ in range(2):
            with pytest.raises(Declined):
                phone.participant.contribute(forged, phone.servers.public.to_bytes())
        assert DeclinedQueries(phone.store).all() == []
        assert phone.ask(query()).query == query().digest


def test_what_passes_is_tried_again(tmp_path: Path) -> None:
    with device(tmp_path, policy=Participation(only_charging=True, only_unmetered=True)) as phone:
        with pytest.raises(Declined) as declined:
            phone.ask(query(), Situation(charging=True))
        assert declined.value.reason is Reason.METERED
        now = Situation(charging=True, unmetered=True)
        message = phone.ask(query(), now)
        assert phone.participant.due(Situation(unmetered=True)) == []
        assert phone.participant.due(now) == [message]


def test_a_new_day_has_room_again(tmp_path: Path) -> None:
    with device(tmp_path, policy=Participation(max_queries_per_day=1)) as phone:
        phone.ask(query())
        phone.pass_time(hours=23)
        with pytest.raises(Declined):
            phone.ask(query(id="other"))
        phone.pass_time(hours=1)
        assert phone.ask(query(id="other")).cohort == 0


def test_what_is_declined_is_remembered_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_client.counting.records.REMEMBERED", 5)
    with device(tmp_path, policy=Participation(queries=())) as phone:
        for number in range(9):
            phone.pass_time(seconds=1)
            with pytest.raises(Declined):
                phone.ask(query(id=f"q{number}"))
        shown = DeclinedQueries(phone.store).all()
        assert [each.query for each in shown] == [f"q{number}" for number in range(4, 9)]


def test_closing_late_is_the_servers_matter(tmp_path: Path) -> None:
    """The phone's clock says nothing about when a query closes."""
    with device(tmp_path) as phone:
        message = phone.ask(query())
        phone.now += dt.timedelta(days=300)
        assert phone.ask(query()) == message


def test_of_two_programs_that_run_one_phone_only_one_contributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the faster one has kept is what both send."""
    honest = contribution.prepare
    kept: list[wire.Contribution] = []
    with device(tmp_path) as phone:

        def prepare(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(participant, "prepare", honest)
            kept.append(phone.ask(query()))
            return honest(*arguments, **options)

        monkeypatch.setattr(participant, "prepare", prepare)
        assert [phone.ask(query())] == kept
        assert len(phone.participant.records.all()) == 1


def test_what_was_contributed_under_another_key_server_is_not_sent_again(tmp_path: Path) -> None:
    """Its aggregation server is another, and may belong to whoever can decrypt it."""
    with device(tmp_path) as phone:
        former = phone.servers
        assert phone.ask(query()).phone
        phone.participant.enrolment.leave()
        phone.participant.enrolment.left()
        phone.servers = Servers()
        phone.join()
        with pytest.raises(Declined) as declined:
            phone.participant.contribute(former.announce(query()))
    assert declined.value.reason is Reason.CONTRIBUTED
