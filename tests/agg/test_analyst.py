import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import (
    AlreadyDecided,
    BudgetExceeded,
    CohortSum,
    Cost,
    Counter,
    Ledger,
    Query,
    QueryBurnt,
    estimate,
)
from reticent.protocol import Refusal, Refused, SigningKey, Unreachable
from reticent.server.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_agg.asking.analyst import Analyst
from reticent_agg.asking.client import Patience
from reticent_agg.asking.handle import NeverDecided, NotDecided, Progress
from reticent_agg.asking.question import Question
from reticent_agg.errors import BadAnswer
from reticent_sim.local_counts import LocalCounts
from tests.agg.counting_server import CountingServer, CountsOverTls, decision_of, signed

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

FALSE_ALARM = 1e-6
OFF = 0.3
KNOWN = [CohortSum(15, (20, -3)), CohortSum(16, (25, 2)), CohortSum(14, (18, 0))]
BURNT = CohortSum(3, None)


def asked(name: str = "gym", **changes: Any) -> Query:
    fields: dict[str, Any] = {
        "id": name,
        "counters": [Counter("visits", 0, 2), Counter("hours", -1, 1)],
        "epsilon": 1.0,
        "delta": 1e-6,
        "l2_squared": 4,
        "l1": 2,
        "noise": "skellam",
        "population": 60,
        "cohorts": 3,
        "fewest": 12,
        "liars": 2,
        "key_id": "k1",
        "closes_after": 60,
    }
    return Query(**{**fields, **changes})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def server(certificates: Path) -> Iterator[CountingServer]:
    with CountingServer(certificates) as server:
        yield server


@pytest.fixture
def analyst(server: CountingServer) -> Iterator[Analyst]:
    with server.analyst() as analyst:
        yield analyst


def test_terms_are_the_population_and_the_key(server: CountingServer, analyst: Analyst) -> None:
    terms = analyst.terms()
    assert (terms.population, terms.public_key, terms.key_id) == (60, server.key, server.key.key_id.hex())


def test_a_question_is_put_to_the_phones_that_there_are(server: CountingServer, analyst: Analyst) -> None:
    server.population = 5000
    query = analyst.query(Question(id="q", counters=[Counter("a", 0, 1)], epsilon=1.0, delta=1e-6, absent=0.2))
    assert (query.population, query.key_id) == (5000, server.key.key_id.hex())


def test_what_is_released_is_estimated_from_the_decisions(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: KNOWN
    release = analyst.count(asked())
    assert release == estimate(asked(), KNOWN, seeded=False)
    assert (release.value, release.contributors) == ((63.0, -1.0), 45)


def test_seeded_noise_of_any_cohort_is_said(server: CountingServer, analyst: Analyst) -> None:
    analyst.start(asked())
    server.decided(asked(), KNOWN, seeded=True)
    assert analyst.find("gym").result().seeded


def test_short_cohorts_are_left_out(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: [KNOWN[0], BURNT, KNOWN[2]]
    release = analyst.count(asked())
    assert (release.cohorts_left_out, release.contributors) == ((1,), 32)


# What is not believed.


def resigned(change: Callable[[wire.Decision], object]) -> Callable[[CountingServer, wire.QueryStatus], None]:
    """The key server itself signs what it cannot mean."""

    def forge(server: CountingServer, status: wire.QueryStatus) -> None:
        change(status.cohorts[1].decision)
        signed(server.signer, status.cohorts[1].decision)

    return forge


def altered(change: Callable[[wire.Decision], object]) -> Callable[[CountingServer, wire.QueryStatus], object]:
    """The aggregation server changes what was signed."""
    return lambda _, status: change(status.cohorts[1].decision)


def changed(**fields: Any) -> Callable[[wire.Decision], None]:
    def change(decision: wire.Decision) -> None:
        for name, value in fields.items():
            setattr(decision, name, value)

    return change


def sums(*contents: bytes) -> Callable[[wire.Decision], None]:
    def change(decision: wire.Decision) -> None:
        del decision.sums[:]
        decision.sums.extend(contents)

    return change


FORGERIES: dict[str, tuple[Callable[[CountingServer, wire.QueryStatus], object], str]] = {
    "another signer": (lambda _, status: signed(SigningKey(), status.cohorts[1].decision), "not signed"),
    "no signature": (altered(changed(signature=b"")), "not signed"),
    "a sum": (altered(sums(b"\x63", b"\x00")), "not signed"),
    "the contributors": (altered(changed(contributors=13)), "not signed"),
    "the outcome": (altered(changed(outcome=wire.VOID)), "not signed"),
    "seeded": (altered(changed(seeded=True)), "not signed"),
    "the request": (altered(changed(request=bytes(31) + b"\x01")), "not signed"),
    "so many contributors that they fit nowhere": (altered(changed(contributors=2**64 - 1)), "counts 18446744"),
    "another query's": (resigned(changed(query=asked("other").digest)), "is about another query"),
    "another cohort's": (resigned(changed(cohort=2)), "is about cohort 2"),
    "a copy": (lambda _, status: status.cohorts[1].decision.CopyFrom(status.cohorts[0].decision), "is about cohort 0"),
    "more than there are": (resigned(changed(contributors=21)), "counts 21 phones of 20"),
    "too few": (resigned(changed(contributors=11)), "releases 11 contributions, of at least 12"),
    "no outcome": (resigned(changed(outcome=0)), "has no outcome"),
    "another outcome": (resigned(changed(outcome=9)), "has no outcome"),
    "burnt, with sums": (resigned(changed(outcome=wire.BURNT)), "has sums, and is not released"),
    "void, with sums": (resigned(changed(outcome=wire.VOID)), "has sums, and is not released"),
    "a sum too few": (resigned(sums(b"\x01")), "has 1 sums, of 2 counters"),
    "a sum too many": (resigned(sums(b"\x01", b"\x02", b"\x03")), "has 3 sums, of 2 counters"),
    "a long sum": (resigned(sums(b"\x01", b"\x00\x02")), "not written as they must be"),
    "an empty sum": (resigned(sums(b"\x01", b"")), "not written as they must be"),
    "none": (lambda _, status: status.cohorts[1].ClearField("decision"), "called decided, and 1 cohorts are not"),
    "a cohort too few": (lambda _, status: status.cohorts.pop(), "tells of 2 cohorts"),
    "a cohort too many": (lambda _, status: status.cohorts.append(status.cohorts[0]), "tells of 4 cohorts"),
    "no phase": (lambda _, status: setattr(status, "phase", 9), "tells of"),
    "another query": (
        lambda _, status: setattr(status, "query", asked("gym", epsilon=0.5).to_bytes()),
        "another query",
    ),
}


@pytest.mark.parametrize(("forge", "said"), FORGERIES.values(), ids=FORGERIES)
def test_what_the_key_server_cannot_have_meant_is_refused(
    server: CountingServer,
    analyst: Analyst,
    forge: Callable[[CountingServer, wire.QueryStatus], object],
    said: str,
) -> None:
    handle = analyst.start(asked())
    status = server.decided(asked(), KNOWN)
    forge(server, status)
    with pytest.raises(BadAnswer, match=said):
        handle.result()
    server.decided(asked(), KNOWN)
    assert handle.result() == estimate(asked(), KNOWN, seeded=False)


def test_a_decision_does_not_change(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(asked())
    status = server.collecting(asked())
    status.cohorts[1].decision.CopyFrom(signed(server.signer, decision_of(asked(), 1, KNOWN[1])))
    assert handle.status().outcomes == (None, "released", None)
    server.decided(asked(), [KNOWN[0], CohortSum(16, (26, 2)), KNOWN[2]])
    with pytest.raises(BadAnswer, match="two decisions about cohort 1"):
        handle.result()


def test_a_query_is_found_under_its_own_name_only(server: CountingServer, analyst: Analyst) -> None:
    server.standing["other"] = server.decided(asked(), KNOWN)
    with pytest.raises(BadAnswer, match=r"'other'.*'gym'"):
        analyst.find("other")
    server.standing["gym"].query = b"reticent.query.1\n"
    with pytest.raises(BadAnswer, match="a query that is none"):
        analyst.find("gym")


def test_a_key_that_is_none_is_refused(server: CountingServer, analyst: Analyst) -> None:
    server.key = type("Key", (), {"to_bytes": lambda _: b"\x00\x01\x03\x02"})()
    with pytest.raises(BadAnswer, match="public key is none"):
        analyst.terms()


# What is burnt, and what it costs.


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger(Cost(1.5, 1e-5))
    yield ledger
    ledger.close()


def test_a_query_that_is_burnt_costs_nothing(server: CountingServer, ledger: Ledger) -> None:
    server.phones = lambda query: [BURNT] * query.cohorts
    with server.analyst(ledger=ledger) as analyst:
        with pytest.raises(QueryBurnt, match="nothing was spent") as burnt:
            analyst.count(asked())
        assert burnt.value.spent == ()
        assert ledger.entries() == ()


@pytest.mark.parametrize("outcome", [wire.VOID, wire.RELEASED])
def test_what_was_decrypted_is_spent_though_the_query_is_burnt(
    server: CountingServer, ledger: Ledger, outcome: wire.Outcome.ValueType
) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(asked())
        status = server.decided(asked(), [BURNT, KNOWN[1], BURNT])
        decision = status.cohorts[1].decision
        if outcome == wire.VOID:
            sums()(decision)
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
    handle = analyst.start(asked())
    decision = server.decided(asked(), KNOWN).cohorts[2].decision
    sums()(decision)
    decision.outcome = wire.VOID
    signed(server.signer, decision)
    release = handle.result()
    assert (release.cohorts_left_out, release.contributors) == ((2,), 45)
    assert handle.progress.outcomes == ("released", "released", "void")


def test_a_query_that_costs_too_much_is_not_announced(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst, pytest.raises(BudgetExceeded):
        analyst.start(asked(epsilon=2.0))
    assert "announce" not in server.calls


def test_a_refused_query_costs_nothing(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        server.refusals = [Refused(Refusal.UNKNOWN_QUERY), Refused(Refusal.KEY_RETIRED, "k1 is destroyed")]
        with pytest.raises(Refused, match="KEY_RETIRED: k1 is destroyed"):
            analyst.start(asked())
        assert ledger.entries() == ()


def test_nor_does_one_that_the_key_server_will_not_countersign(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(asked())
        assert len(ledger.entries()) == 1
        server.refusals = [Refused(Refusal.NOT_ENROLLED_ENOUGH)]
        with pytest.raises(Refused, match="NOT_ENROLLED_ENOUGH"):
            handle.result()
        assert ledger.entries() == ()


def test_a_refusal_that_says_nothing_of_the_query_gives_nothing_back(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(asked())
        server.refusals = [Refused(Refusal.NOT_PERMITTED)]
        with pytest.raises(Refused, match="NOT_PERMITTED"):
            handle.result()
        assert len(ledger.entries()) == 1


def test_a_sequence_costs_once_and_is_not_given_back_while_one_of_it_may_be_spent(
    server: CountingServer, ledger: Ledger
) -> None:
    week = Analyst.sequence("week 9", epsilon=1.0, delta=1e-6, l2_squared=4, l1=4)
    with server.analyst(ledger=ledger) as analyst:
        for day in ("Monday", "Tuesday"):
            question = week.question(day, [Counter("a", 0, 1)], absent=0.1, cohorts=3, fewest=12)
            query = analyst.query(question)
            assert (query.sequence, query.l1, query.account) == ("week 9", 4, "sequence week 9")
            server.phones = lambda query: [CohortSum(15, (3,))] * query.cohorts
            analyst.count(query)
        server.phones = lambda query: [BURNT] * query.cohorts
        with pytest.raises(QueryBurnt):
            analyst.count(analyst.query(week.question("Wednesday", [Counter("a", 0, 1)], absent=0.1, cohorts=3)))
        [entry] = ledger.entries()
        assert (entry.state, entry.cost.epsilon) == ("spent", 1.0)


# Once, and again.


def test_a_query_is_asked_once_and_its_result_as_often_as_one_likes(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: KNOWN
    handle = analyst.start(asked())
    first = handle.result()
    assert handle.result() is first
    assert analyst.find("gym").result() == first
    for again in (asked(), asked(epsilon=0.5)):
        with pytest.raises(AlreadyDecided, match="'gym'"):
            analyst.count(again)
    assert server.calls.count("announce") == 1


def test_a_query_that_is_not_decided_yet_is_waited_for(server: CountingServer, analyst: Analyst) -> None:
    analyst.start(asked())
    with server.analyst() as again:  # after a restart of the notebook
        handle = again.start(asked())
        server.decided(asked(), KNOWN)
        assert handle.result().contributors == 45
    server.collecting(asked())
    with pytest.raises(Refused, match="CONFLICT"):
        analyst.start(asked(epsilon=0.5))


def test_queries_are_listed(server: CountingServer, analyst: Analyst) -> None:
    server.decided(asked("one"), KNOWN)
    server.collecting(asked("two"), 7)
    found = analyst.queries()
    assert [(each.query.id, each.phase, each.decided) for each in found] == [
        ("two", "collecting", 0),
        ("one", "decided", 3),
    ]
    assert found[0].contributors == (7, 7, 7)


def test_an_abort_burns_what_is_not_decided(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(asked())
    assert server.standing["gym"].phase == wire.COLLECTING
    assert handle.abort().outcomes == ("burnt",) * 3
    with pytest.raises(QueryBurnt):
        handle.result()


def test_real_phones_take_their_own_counters(analyst: Analyst) -> None:
    with pytest.raises(ValueError, match="real phones take their own"):
        analyst.count(asked(), np.ones((60, 2)))


def test_an_identity_has_32_bytes(server: CountingServer) -> None:
    with pytest.raises(ValueError, match="32 bytes: got 31"):
        Analyst(server.address, Certificate.load(server.folder, "ann"), bytes(31))


# Waiting.


def test_progress_is_told_from_the_first_look_to_the_decision(server: CountingServer, analyst: Analyst) -> None:
    seen: list[Progress] = []
    handle = analyst.start(asked())

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            server.collecting(asked(), 9)
        if len(seen) == 2:
            server.standing["gym"].phase = wire.CLOSING
        if len(seen) == 3:
            server.decided(asked(), KNOWN)

    handle.result(watcher=watch)
    assert [each.phase for each in seen] == ["collecting", "collecting", "closing", "decided"]
    assert [each.contributors for each in seen] == [(0,) * 3, (9,) * 3, (9,) * 3, (15, 16, 14)]
    assert [each.decided for each in seen] == [0, 0, 0, 3]
    assert seen[0].closes_in == 5.0


def test_a_restart_of_the_server_is_waited_out(server: CountingServer) -> None:
    gone: list[float] = []
    backs: list[threading.Thread] = []

    def watch(progress: Progress) -> None:
        gone.append(progress.away)
        if len(gone) == 1:
            server.decided(asked(), KNOWN)
            backs.append(server.away_for(1.5))

    with server.analyst(watcher=watch) as analyst:
        assert analyst.count(asked()).contributors == 45
    backs[0].join()
    assert gone[0] == gone[-1] == 0.0
    assert max(gone) > 0.5


def test_a_server_that_never_answers_is_given_up_soon(server: CountingServer) -> None:
    analyst = server.analyst(patience=Patience(call=0.5, away=600.0))
    server.stop()
    begun = time.monotonic()
    with analyst, pytest.raises(Unreachable, match=r"127.0.0.1:\d+ has not answered for \d s: UNAVAILABLE"):
        analyst.terms()
    assert time.monotonic() - begun < 5


def test_so_is_one_that_is_away_for_longer_than_the_patience(server: CountingServer) -> None:
    with server.analyst(patience=Patience(call=2.0, away=0.7, poll=0.1)) as analyst:
        handle = analyst.start(asked())
        server.stop()
        with pytest.raises(Unreachable, match="has not answered for"):
            handle.result()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_deadline_passes_and_the_query_goes_on(server: CountingServer, analyst: Analyst, is_away: bool) -> None:
    handle = analyst.start(asked())
    if is_away:
        server.stop()
    rest = r"127.0.0.1:\d+ does not answer" if is_away else r"collecting (ends in \d s|is over)"
    begun = time.monotonic()
    with pytest.raises(NotDecided, match=rf"'gym' is not decided after 1.5 s: 0 of its 3 cohorts are, and {rest}; the"):
        handle.result(timeout=1.5)
    assert 0.1 < time.monotonic() - begun < 30
    if is_away:
        server.start()
    server.decided(asked(), KNOWN)
    assert handle.result(timeout=10).contributors == 45


def test_a_busy_server_is_asked_again_when_it_says(server: CountingServer, analyst: Analyst) -> None:
    server.refusals = [Refused(Refusal.BUSY, retry_after=0.3), Refused(Refusal.UNAVAILABLE)]
    begun = time.monotonic()
    assert analyst.terms().population == 60
    assert time.monotonic() - begun > 0.3
    assert server.calls == ["standing"] * 3


# Who may ask.


def test_only_analysts_are_let_in(server: CountingServer) -> None:
    with server.analyst("keys") as analyst, pytest.raises(Refused, match="NOT_PERMITTED"):
        analyst.terms()
    assert server.calls == []


def test_and_only_with_a_certificate_of_the_same_authority(server: CountingServer, tmp_path: Path) -> None:
    with CountingServer(tmp_path / "others") as other:
        certificate = Certificate.load(other.folder, "ann")
        with (
            Analyst(server.address, certificate, server.signer.public, patience=Patience(call=0.5)) as analyst,
            pytest.raises(Unreachable),
        ):
            analyst.terms()
    assert server.calls == []


def test_without_a_certificate_only_this_machine_is_spoken_to(server: CountingServer) -> None:
    with pytest.raises(ValueError, match=r"counts\.example:443 may be another machine"):
        Analyst("counts.example:443", None, server.signer.public)
    hasty = Patience(call=0.5)
    with Analyst(server.address, None, server.signer.public, patience=hasty) as analyst, pytest.raises(Unreachable):
        analyst.terms()  # it asks for one
    assert server.calls == []


@pytest.mark.parametrize("patience", [{"call": 0.0}, {"poll": 0.0}, {"poll": 5.0, "away": 4.0}])
def test_patience_fits_itself(patience: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="waiting takes a time"):
        Patience(**patience)


# What comes out is what a simulation gives.


def test_releases_are_distributed_as_those_of_a_simulation() -> None:
    """The same phones with fresh noise: means and variances of both agree, and would not if either were 30 % off."""
    counts, local = CountsOverTls(None, 0.0), LocalCounts()
    counters = [Counter(f"c{number}", 0, 1) for number in range(30)]
    queries = [asked(f"q{run}", counters=counters) for run in range(40)]
    served = np.array([counts.count(query, np.zeros((60, 30))).value for query in queries])
    simulated = np.array([local.count(query, np.zeros((60, 30))).value for query in queries])
    error = served.ravel() / np.sqrt(60 * asked().share_variance)
    assert stats.kstest(error, "norm").pvalue > FALSE_ALARM
    assert stats.ks_2samp(served.ravel(), simulated.ravel()).pvalue > FALSE_ALARM
    assert FALSE_ALARM < _of_squares(error) < 1 - FALSE_ALARM
    assert _of_squares(error / (1 - OFF)) > 1 - FALSE_ALARM
    assert _of_squares(error / (1 + OFF)) < FALSE_ALARM


def _of_squares(error: np.ndarray) -> float:
    """How likely independent unit normal errors have no larger sum of squares."""
    return float(stats.chi2.cdf((error**2).sum(), len(error)))


# What is refused, and what is lost.


def test_a_corrected_query_may_have_the_id_of_a_refused_one(server: CountingServer, analyst: Analyst) -> None:
    server.refuse(asked(), "fewest must be at least 0.5 of a cohort: got 0.357")
    with pytest.raises(Refused, match=r"got 0\.357"):
        analyst.find("gym")
    server.phones = lambda _: KNOWN
    assert analyst.count(asked(fewest=13)).contributors == 45


def test_refused_queries_are_listed_with_the_reason(server: CountingServer, analyst: Analyst) -> None:
    server.refuse(asked(), "too dear")
    server.collecting(asked("other"))
    other, gym = analyst.queries()
    assert (other.phase, other.refusal) == ("collecting", None)
    assert (gym.phase, gym.refusal, gym.outcomes) == ("refused", "BAD_QUERY: too dear", (None,) * 3)
    assert gym.to_json()["refusal"] == "BAD_QUERY: too dear"


def test_a_query_that_will_never_be_decided_is_not_waited_for(server: CountingServer, ledger: Ledger) -> None:
    with server.analyst(ledger=ledger) as analyst:
        handle = analyst.start(asked())
        server.lost(asked())
        with pytest.raises(NeverDecided, match="'gym' will never be decided: the key server was restored"):
            handle.result()
        assert analyst.queries()[0].phase == "lost"
        assert len(ledger.entries()) == 1  # phones may never know that it was not released


# What an analyst types.


def test_an_identity_is_bytes_or_digits_or_a_file(server: CountingServer, tmp_path: Path) -> None:
    digits = server.signer.public.hex()
    (tmp_path / "identity.pub").write_text(f"{digits}\n")
    server.phones = lambda _: KNOWN
    certificate = Certificate.load(server.folder, "ann")
    for identity in (server.signer.public, digits, tmp_path / "identity.pub", str(tmp_path / "identity.pub")):
        with Analyst(server.address, certificate, identity) as analyst:
            analyst.start(asked(f"q {identity!r}")).result()
    with pytest.raises(ValueError, match="an identity is 64 hexadecimal digits, or a file"):
        Analyst(server.address, certificate, tmp_path / "nowhere")


def test_what_is_shown_in_a_notebook_is_short(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(asked())
    server.collecting(asked(), 7)
    assert repr(handle.status()) == "Progress('gym', collecting, 21 of 60 phones, 0 of 3 cohorts decided)"
    assert repr(handle) == "Handle('gym', collecting)"
    assert repr(analyst) == f"Analyst('{server.address}')"


# Who is waited for.


def test_patience_is_not_exceeded(server: CountingServer) -> None:
    server.stop()
    begun = time.monotonic()
    hindered: list[str] = []
    patience = Patience(away=1.0, poll=1.0)
    with (
        server.analyst(patience=patience, hindered=hindered.append) as analyst,
        pytest.raises(Unreachable, match="has not answered for"),
    ):
        analyst.terms()
    assert time.monotonic() - begun < 1.5
    assert set(hindered) == {f"the aggregation server at {server.address}"}


def test_a_key_server_that_is_away_is_named(server: CountingServer) -> None:
    server.refusals = [Refused(Refusal.UNAVAILABLE, "the key server cannot be reached")] * 2
    hindered: list[str] = []
    with server.analyst(hindered=hindered.append) as analyst:
        assert analyst.terms().population == 60
    assert hindered == ["the key server"] * 2
    server.refusals = [Refused(Refusal.UNAVAILABLE, "the key server cannot be reached")] * 200
    with (
        server.analyst(patience=Patience(call=1.0, away=0.5, poll=0.1)) as analyst,
        pytest.raises(Unreachable, match="cannot do this, and could not for"),
    ):
        analyst.terms()
