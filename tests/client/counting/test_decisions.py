"""What is spent, what is given back, and against which signature only."""

from collections.abc import Callable
from pathlib import Path

import pytest

from reticent.protocol import Refusal, Refused, SigningKey, Unreachable, statements
from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined
from reticent_client.counting.records import ContributionState
from reticent_client.errors import ForeignReply
from tests.client.counting.world import Device, device, query

OUTCOMES = [
    (wire.RELEASED, ContributionState.RELEASED, {"gym": "spent"}),
    (wire.VOID, ContributionState.VOID, {"gym": "spent"}),
    (wire.BURNT, ContributionState.BURNT, {}),
]


@pytest.mark.parametrize(("outcome", "state", "accounts"), OUTCOMES)
def test_a_decision_spends_or_gives_back(
    tmp_path: Path, outcome: wire.Outcome.ValueType, state: ContributionState, accounts: dict[str, str]
) -> None:
    with device(tmp_path) as phone:
        phone.ask(query())
        assert phone.accounts() == {"gym": "reserved"}
        assert phone.participant.awaited() == [wire.DecisionWanted(query=query().digest, cohort=0)]
        for _ in range(2):
            assert phone.participant.decided(phone.servers.decide(query(), outcome)) is state
            phone.restart()
            assert phone.accounts() == accounts
        assert phone.participant.awaited() == []
        assert phone.participant.due() == []


def _unsigned(decision: wire.Decision, _phone: Device) -> None:
    decision.signature = b""


def _by_another(decision: wire.Decision, _phone: Device) -> None:
    decision.signature = SigningKey().sign(statements.decision(decision))


def _of_another_query(decision: wire.Decision, phone: Device) -> None:
    decision.CopyFrom(phone.servers.decide(query(id="other"), wire.BURNT))


def _renamed(decision: wire.Decision, phone: Device) -> None:
    """Another query's decision, passed off as this one's."""
    decision.CopyFrom(phone.servers.decide(query(id="other"), wire.BURNT))
    decision.query = query(**COHORTS).digest
    decision.cohort = 1


def _of_another_cohort(decision: wire.Decision, phone: Device) -> None:
    decision.CopyFrom(phone.servers.decide(query(**COHORTS), wire.BURNT, cohort=0))


def _moved(decision: wire.Decision, phone: Device) -> None:
    """Another cohort's decision, passed off as this one's."""
    decision.CopyFrom(phone.servers.decide(query(**COHORTS), wire.BURNT, cohort=0))
    decision.cohort = 1


def _turned(decision: wire.Decision, phone: Device) -> None:
    decision.CopyFrom(phone.servers.decide(query(**COHORTS), wire.RELEASED, cohort=1))
    decision.outcome = wire.BURNT


def _without_outcome(decision: wire.Decision, phone: Device) -> None:
    decision.CopyFrom(phone.servers.decide(query(**COHORTS), wire.OUTCOME_UNSPECIFIED, cohort=1))


COHORTS = {"population": 60, "cohorts": 2}


@pytest.mark.parametrize(
    "forge",
    [_unsigned, _by_another, _of_another_query, _renamed, _of_another_cohort, _moved, _turned, _without_outcome],
)
def test_nothing_is_given_back_without_the_key_servers_word(
    tmp_path: Path, forge: Callable[[wire.Decision, Device], None]
) -> None:
    example = query(**COHORTS)
    with device(tmp_path) as phone:
        phone.ask(example, cohort=1)
        decision = phone.servers.decide(example, wire.BURNT, cohort=1)
        good = wire.Decision.FromString(decision.SerializeToString())
        forge(decision, phone)
        with pytest.raises(ForeignReply):
            phone.participant.decided(decision)
        phone.restart()
        assert phone.accounts() == {"gym": "reserved"}
        assert phone.participant.awaited() == [wire.DecisionWanted(query=example.digest, cohort=1)]
        phone.participant.decided(good)  # the test can tell the two apart
        assert phone.accounts() == {}


@pytest.mark.parametrize("first", [wire.RELEASED, wire.VOID])
def test_the_first_decision_stands(tmp_path: Path, first: wire.Outcome.ValueType) -> None:
    with device(tmp_path) as phone:
        phone.ask(query())
        phone.participant.decided(phone.servers.decide(query(), first))
        before = phone.accounts()
        for other in {wire.RELEASED, wire.VOID, wire.BURNT} - {first}:
            with pytest.raises(ForeignReply, match="and the key server now reports"):
                phone.participant.decided(phone.servers.decide(query(), other))
        assert phone.accounts() == before


@pytest.mark.parametrize(("then", "never"), [(wire.RELEASED, wire.VOID), (wire.VOID, wire.RELEASED)])
def test_what_was_burnt_and_is_decrypted_after_all_is_spent_for_good(
    tmp_path: Path, then: wire.Outcome.ValueType, never: wire.Outcome.ValueType
) -> None:
    with device(tmp_path) as phone:
        phone.ask(query())
        phone.participant.decided(phone.servers.decide(query(), wire.BURNT))
        for other in (then, wire.BURNT, never):
            with pytest.raises(ForeignReply, match="and the key server now reports"):
                phone.participant.decided(phone.servers.decide(query(), other))
            phone.restart()
            assert phone.accounts() == {"gym": "spent"}
        [record] = phone.participant.records.all()
        assert record.state.name == wire.Outcome.Name(then)
        assert record.detail == "the key server had called it burnt before"


def test_a_decision_about_what_was_never_said_is_none(tmp_path: Path) -> None:
    with device(tmp_path) as phone, pytest.raises(ForeignReply):
        phone.participant.decided(phone.servers.decide(query(), wire.BURNT))


def test_an_acknowledgement_of_something_else_is_none(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.ask(query())
        for wrong in (b"", bytes(32)):
            with pytest.raises(ForeignReply):
                phone.participant.acknowledged(wire.Acknowledgement(contribution=wrong))
        assert len(phone.participant.due()) == 1


@pytest.mark.parametrize("refusal", sorted(set(Refusal) - {Refusal.BUSY, Refusal.UNAVAILABLE}, key=str))
def test_what_a_server_refuses_for_good_stays_reserved_until_the_decision(tmp_path: Path, refusal: Refusal) -> None:
    """The server that refuses may lie: only the key server's signature frees the budget."""
    with device(tmp_path) as phone:
        phone.ask(query())
        phone.participant.not_delivered(query().digest, Refused(refusal))
        phone.restart()
        phone.pass_time(days=1)
        assert phone.participant.due() == []
        with pytest.raises(Declined):
            phone.ask(query())
        [record] = phone.participant.records.all()
        assert record.state is ContributionState.REFUSED
        assert record.detail.startswith(refusal.name)
        assert phone.accounts() == {"gym": "reserved"}
        assert len(phone.participant.awaited()) == 1
        phone.participant.decided(phone.servers.decide(query(), wire.BURNT))
        assert phone.accounts() == {}


@pytest.mark.parametrize("error", [Refused(Refusal.BUSY), Refused(Refusal.UNAVAILABLE), Unreachable("nobody listens")])
def test_what_did_not_get_through_is_sent_again_later_each_time(tmp_path: Path, error: Refused | Unreachable) -> None:
    with device(tmp_path) as phone:
        message = phone.ask(query())
        waits = []
        for _ in range(20):
            assert phone.participant.due() == [message]
            phone.participant.not_delivered(message.query, error)
            phone.restart()  # how often it was tried survives
            assert phone.participant.due() == []
            [record] = phone.participant.records.all()
            again = record.not_before
            waits.append((again - phone.now).total_seconds())
            phone.now = again
        for attempt, wait in enumerate(waits):
            whole = min(3600.0, 2.0**attempt)
            assert 0.499 * whole <= wait <= whole + 0.001
        assert len({wait / min(3600.0, 2.0**attempt) for attempt, wait in enumerate(waits)}) > 10


def test_a_server_that_says_when_to_come_back_is_heard(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        message = phone.ask(query())
        phone.participant.not_delivered(message.query, Refused(Refusal.BUSY, retry_after=100.0))
        phone.pass_time(seconds=99)
        assert phone.participant.due() == []
        phone.pass_time(seconds=1)
        assert phone.participant.due() == [message]
        phone.participant.not_delivered(message.query, Refused(Refusal.BUSY, retry_after=1e9))  # not for ever, though
        phone.pass_time(hours=1)
        assert phone.participant.due() == [message]


def test_a_clock_that_was_set_back_does_not_silence_it(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        message = phone.ask(query())
        phone.participant.not_delivered(message.query, Unreachable("nobody listens"))
        phone.pass_time(days=-30)
        assert phone.participant.due() == [message]


def test_an_acknowledgement_that_comes_after_a_refusal_counts(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        message = phone.ask(query())
        phone.participant.not_delivered(message.query, Refused(Refusal.CONFLICT))
        phone.participant.acknowledged(phone.servers.acknowledge(query(), message))
        assert phone.participant.records.all()[0].state is ContributionState.ACKNOWLEDGED
        phone.participant.not_delivered(message.query, Refused(Refusal.LATE))  # a repeated message, overtaken
        assert phone.participant.records.all()[0].state is ContributionState.ACKNOWLEDGED
