"""What a query costs that is burnt, refused or lost."""

import pickle
from collections.abc import Iterator

import pytest

from reticent.privacy import BudgetExceeded, CohortSum, Cost, Counter, Ledger, QueryBurnt
from reticent.protocol import Refusal, Refused, SigningKey
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.errors import NeverDecided
from reticent_analyst.question import QuestionSequence
from tests.analyst.queries import BURNT, KNOWN, gym_query
from tests.parties.counting_server import CountingServer, signed

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger(Cost(1.5, 1e-5))
    yield ledger
    ledger.close()


def test_a_query_that_is_burnt_costs_nothing(server: CountingServer, ledger: Ledger) -> None:
    server.phones = lambda query: [BURNT] * query.cohorts
    with server.analyst(ledger=ledger) as analyst:
        with pytest.raises(QueryBurnt, match="nothing was spent") as burnt:
            analyst.count(gym_query())
        assert burnt.value.spent == ()
        assert ledger.entries() == ()


@pytest.mark.parametrize("outcome", [wire.VOID, wire.RELEASED])
def test_decrypted_cohorts_of_a_burnt_query_are_spent(
    server: CountingServer, ledger: Ledger, outcome: wire.Outcome.ValueType
) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(gym_query())
        status = server.decided(gym_query(), [BURNT, KNOWN[1], BURNT])
        decision = status.cohorts[1].decision
        if outcome == wire.VOID:
            del decision.sums[:]
            decision.outcome = outcome
        signed(server.signer, decision)
        with pytest.raises(QueryBurnt, match="1 was decrypted, and its phones have spent") as burnt:
            handle.result()
        with pytest.raises(QueryBurnt) as again:
            handle.result()
        assert str(again.value) == str(burnt.value)
        assert burnt.value.spent == (1,)
        assert burnt.value.left_out == ((0, 1, 2) if outcome == wire.VOID else (0, 2))
        assert handle.progress.outcomes[1] == ("void" if outcome == wire.VOID else "released")
        [entry] = ledger.entries()
        assert (entry.query, entry.state) == ("gym", "spent")
        copy = pickle.loads(pickle.dumps(burnt.value))  # noqa: S301  # it was made here
        assert (str(copy), copy.spent) == (str(burnt.value), (1,))


def test_a_void_cohort_is_left_out_of_the_estimate(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(gym_query())
    decision = server.decided(gym_query(), KNOWN).cohorts[2].decision
    del decision.sums[:]
    decision.outcome = wire.VOID
    signed(server.signer, decision)
    release = handle.result()
    assert (release.cohorts_left_out, release.contributors) == ((2,), 45)
    assert handle.progress.outcomes == ("released", "released", "void")


def test_a_query_that_costs_too_much_is_not_announced(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst, pytest.raises(BudgetExceeded):
        analyst.start(gym_query(epsilon=2.0))
    assert "announce" not in server.calls


def test_a_refused_query_costs_nothing(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        server.refusals = [Refused(Refusal.UNKNOWN_QUERY), Refused(Refusal.KEY_RETIRED, "k1 is destroyed")]
        with pytest.raises(Refused, match="KEY_RETIRED: k1 is destroyed"):
            analyst.start(gym_query())
        assert ledger.entries() == ()


@pytest.mark.parametrize("refusal", [Refusal.KEY_RETIRED, Refusal.BAD_QUERY, Refusal.TOO_FEW_ENROLLED])
def test_a_refused_query_gives_back_the_reservation_of_a_killed_analyst(
    server: CountingServer, ledger: Ledger, refusal: Refusal
) -> None:
    ledger.reserve(gym_query().account, gym_query().cost)
    with server.analyst(ledger=ledger) as analyst:
        server.refusals = [Refused(Refusal.UNKNOWN_QUERY), Refused(refusal)]
        with pytest.raises(Refused, match=refusal.name):
            analyst.start(gym_query())
        assert ledger.entries() == ()


@pytest.mark.parametrize("refusal", [Refusal.CONFLICT, Refusal.NOT_PERMITTED])
def test_a_reservation_stays_if_phones_may_have_received_the_query(
    server: CountingServer, ledger: Ledger, refusal: Refusal
) -> None:
    ledger.reserve(gym_query().account, gym_query().cost)
    with server.analyst(ledger=ledger) as analyst:
        server.refusals = [Refused(Refusal.UNKNOWN_QUERY), Refused(refusal)]
        with pytest.raises(Refused, match=refusal.name):
            analyst.start(gym_query())
        [entry] = ledger.entries()
        assert entry.state == "reserved"


def test_the_reservation_or_spending_of_a_sequence_stays(server: CountingServer, ledger: Ledger) -> None:
    query = gym_query(sequence="week 9")
    ledger.reserve(query.account, query.cost)
    with server.analyst(ledger=ledger) as analyst:
        for state in ("reserved", "spent"):
            server.refusals = [Refused(Refusal.UNKNOWN_QUERY), Refused(Refusal.BAD_QUERY)]
            with pytest.raises(Refused, match="BAD_QUERY"):
                analyst.start(query)
            [entry] = ledger.entries()
            assert entry.state == state
            ledger.spend(query.account)


def test_a_query_that_is_not_countersigned_costs_nothing(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(gym_query())
        assert len(ledger.entries()) == 1
        server.refusals = [Refused(Refusal.TOO_FEW_ENROLLED)]
        with pytest.raises(Refused, match="TOO_FEW_ENROLLED"):
            handle.result()
        assert ledger.entries() == ()


def test_a_refusal_unrelated_to_the_query_gives_nothing_back(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(gym_query())
        server.refusals = [Refused(Refusal.NOT_PERMITTED)]
        with pytest.raises(Refused, match="NOT_PERMITTED"):
            handle.result()
        assert len(ledger.entries()) == 1


def test_a_sequence_costs_once_and_is_not_given_back_while_one_of_it_may_be_spent(
    server: CountingServer, ledger: Ledger
) -> None:
    week = QuestionSequence(name="week 9", epsilon=1.0, delta=1e-6, l2_squared=4, l1=4)
    with server.analyst(ledger=ledger) as analyst:
        for day in ("Monday", "Tuesday"):
            question = week.question(day, [Counter("a", 0, 1)], absent=0.1, cohorts=3, min_contributions=12)
            query = analyst.query(question)
            assert (query.sequence, query.l1, query.account) == ("week 9", 4, "sequence week 9")
            server.phones = lambda query: [CohortSum(15, (3,))] * query.cohorts
            analyst.count(query)
        server.phones = lambda query: [BURNT] * query.cohorts
        with pytest.raises(QueryBurnt):
            analyst.count(analyst.query(week.question("Wednesday", [Counter("a", 0, 1)], absent=0.1, cohorts=3)))
        [entry] = ledger.entries()
        assert (entry.state, entry.cost.epsilon) == ("spent", 1.0)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [({"epsilon": 2.0}, "epsilon = 2.0 instead of 1.0"), ({"l1": 3}, "l1 = 3 instead of 2")],
)
def test_phones_of_a_sequence_would_decline_other_terms_so_they_are_not_announced(
    server: CountingServer, analyst: Analyst, changes: dict[str, float], difference: str
) -> None:
    analyst.start(gym_query("Monday", sequence="week 9"))
    with pytest.raises(ValueError, match=f"contributed to 'Monday' decline 'Tuesday'.*got {difference}$"):
        analyst.start(gym_query("Tuesday", sequence="week 9", **changes))
    assert list(server.statuses) == ["Monday"]
    analyst.start(gym_query("Tuesday", sequence="week 10", **changes))


def test_a_burnt_query_binds_no_sequence_and_took_no_budget(server: CountingServer, analyst: Analyst) -> None:
    analyst.start(gym_query("Monday", sequence="week 9"))
    assert [query.id for query in analyst.paid_queries()] == ["Monday"]
    server.decided(gym_query("Monday", sequence="week 9"), [BURNT] * 3)
    server.refuse(gym_query("Sunday"), "too dear")
    assert analyst.paid_queries() == []
    analyst.start(gym_query("Tuesday", sequence="week 9", epsilon=2.0))


def test_an_earlier_query_of_another_key_server_does_not_prevent_a_new_one(
    server: CountingServer, analyst: Analyst
) -> None:
    signer, server.signer = server.signer, SigningKey()
    server.decided(gym_query("old", sequence="week 9"), KNOWN)
    server.signer = signer
    assert [query.id for query in analyst.paid_queries()] == ["old"]
    analyst.start(gym_query("new", sequence="week 9"))


# What is refused, and what is lost.


def test_a_corrected_query_may_have_the_id_of_a_refused_one(server: CountingServer, analyst: Analyst) -> None:
    server.refuse(gym_query(), "min_contributions must be at least 0.5 of a cohort: got 0.357")
    with pytest.raises(Refused, match=r"got 0\.357"):
        analyst.find("gym")
    server.phones = lambda _: KNOWN
    assert analyst.count(gym_query(min_contributions=13)).contributors == 45


def test_refused_queries_are_listed_with_the_reason(server: CountingServer, analyst: Analyst) -> None:
    server.refuse(gym_query(), "too dear")
    server.collecting(gym_query("other"))
    other, gym = analyst.queries()
    assert (other.phase, other.refusal) == ("collecting", None)
    assert (gym.phase, gym.refusal, gym.outcomes) == ("refused", "BAD_QUERY: too dear", (None,) * 3)
    assert gym.to_json()["refusal"] == "BAD_QUERY: too dear"


def test_a_lost_query_is_not_waited_for(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(gym_query())
        server.lost(gym_query())
        with pytest.raises(NeverDecided, match="'gym' can no longer be decided: the key server was restored"):
            handle.result()
        assert analyst.queries()[0].phase == "lost"
        assert len(ledger.entries()) == 1  # phones may never know that it was not released
