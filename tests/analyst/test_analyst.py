"""What an analyst asks, and is given: over TLS, from those who may ask."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reticent.privacy import AlreadyDecided, Counter, QueryBurnt, estimate
from reticent.protocol import BadCertificate, Refused, Unreachable
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.client import Timeouts
from reticent_analyst.errors import BadReply
from reticent_analyst.question import Question
from reticent_sim.local_counts import LocalCounts
from tests.analyst.odds import FALSE_ALARM, OFF
from tests.analyst.queries import BURNT, KNOWN, gym_query
from tests.parties.counting_server import LISTED_AT_ONCE, CountingServer, CountsOverTls

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_terms_are_the_population_and_the_key(server: CountingServer, analyst: Analyst) -> None:
    terms = analyst.terms()
    assert (terms.population, terms.public_key, terms.key_id) == (60, server.key, server.key.key_id.hex())


def test_a_question_becomes_a_query_to_the_enrolled_phones(server: CountingServer, analyst: Analyst) -> None:
    server.population = 5000
    query = analyst.query(Question(id="q", counters=[Counter("a", 0, 1)], epsilon=1.0, delta=1e-6, absent=0.2))
    assert (query.population, query.key_id) == (5000, server.key.key_id.hex())


def test_a_release_is_estimated_from_the_decisions(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: KNOWN
    release = analyst.count(gym_query())
    assert release == estimate(gym_query(), KNOWN, seeded=False)
    assert (release.value, release.contributors) == ((63.0, -1.0), 45)


def test_seeded_noise_of_any_cohort_marks_the_release(server: CountingServer, analyst: Analyst) -> None:
    analyst.start(gym_query())
    server.decided(gym_query(), KNOWN, seeded=True)
    assert analyst.find("gym").result().seeded


def test_short_cohorts_are_left_out(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: [KNOWN[0], BURNT, KNOWN[2]]
    release = analyst.count(gym_query())
    assert (release.cohorts_left_out, release.contributors) == ((1,), 32)


# Once, and again.


def test_a_query_is_announced_once_and_its_result_read_many_times(server: CountingServer, analyst: Analyst) -> None:
    server.phones = lambda _: KNOWN
    handle = analyst.start(gym_query())
    first = handle.result()
    assert handle.result() is first
    assert analyst.find("gym").result() == first
    for again in (gym_query(), gym_query(epsilon=0.5)):
        with pytest.raises(AlreadyDecided, match="'gym'"):
            analyst.count(again)
    assert server.calls.count("announce") == 1


def test_a_query_that_is_not_decided_yet_is_waited_for(server: CountingServer, analyst: Analyst) -> None:
    analyst.start(gym_query())
    with server.analyst() as again:  # after a restart of the notebook
        handle = again.start(gym_query())
        server.decided(gym_query(), KNOWN)
        assert handle.result().contributors == 45
    server.collecting(gym_query())
    with pytest.raises(Refused, match="CONFLICT"):
        analyst.start(gym_query(epsilon=0.5))


def test_queries_are_listed(server: CountingServer, analyst: Analyst) -> None:
    server.decided(gym_query("one"), KNOWN)
    server.collecting(gym_query("two"), 7)
    found = analyst.queries()
    assert [(each.query.id, each.phase, each.decided) for each in found] == [
        ("two", "collecting", 0),
        ("one", "decided", 3),
    ]
    assert found[0].contributors == (7, 7, 7)


def test_all_pages_of_the_list_are_fetched_within_a_time(server: CountingServer) -> None:
    names = [f"query {number}" for number in range(2 * LISTED_AT_ONCE + 1)]
    for name in names:
        server.collecting(gym_query(name))
    with server.analyst() as analyst:
        assert [each.query.id for each in analyst.queries()] == names[::-1]
        assert server.calls.count("list") == 3
        server.next_page = 7
        with pytest.raises(BadReply, match="out of order"):
            analyst.queries()
    slow = Timeouts(max_outage=600.0, monotonic=itertools.count(step=300.0).__next__)
    with (
        server.analyst(timeouts=slow) as analyst,
        pytest.raises(Unreachable, match="did not send all queries within 600 s"),
    ):
        analyst.queries()


def test_an_abort_burns_what_is_not_decided(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(gym_query())
    assert server.statuses["gym"].phase == wire.COLLECTING
    assert handle.abort().outcomes == ("burnt",) * 3
    with pytest.raises(QueryBurnt):
        handle.result()


def test_real_phones_have_their_own_counters(analyst: Analyst) -> None:
    with pytest.raises(ValueError, match="real phones have their own"):
        analyst.count(gym_query(), np.ones((60, 2)))


def test_an_identity_has_32_bytes(server: CountingServer) -> None:
    with pytest.raises(ValueError, match="32 bytes: got 31"):
        Analyst(server.address, Certificate.load(server.folder, "ann"), bytes(31))


# Who may ask.


def test_only_analysts_are_admitted(server: CountingServer) -> None:
    with server.analyst("keys") as analyst, pytest.raises(Refused, match="NOT_PERMITTED"):
        analyst.terms()
    assert server.calls == []


def test_an_analyst_needs_a_certificate_of_the_same_authority(server: CountingServer, tmp_path: Path) -> None:
    with CountingServer(tmp_path / "others") as other:
        certificate = Certificate.load(other.folder, "ann")
        with (
            Analyst(server.address, certificate, server.signer.public) as analyst,
            pytest.raises(BadCertificate, match="replies, but its certificate is not accepted: another authority"),
        ):
            analyst.terms()
    assert server.calls == []


def test_without_a_certificate_the_server_is_on_this_machine(server: CountingServer) -> None:
    with pytest.raises(ValueError, match=r"counts\.example:443 may be another machine: it needs certificates"):
        Analyst("counts.example:443", None, server.signer.public)
    hasty = Timeouts(call=0.5)
    with Analyst(server.address, None, server.signer.public, timeouts=hasty) as analyst, pytest.raises(Unreachable):
        analyst.terms()  # it asks for one
    assert server.calls == []


# Noise on its way to the analyst.


def test_noise_arrives_as_it_was_made() -> None:
    """Of phones that a simulation plays: neither more nor less of it, which would be seen if it were 30 % off."""
    counts, local = CountsOverTls(None, 0.0), LocalCounts()
    counters = [Counter(f"c{number}", 0, 1) for number in range(30)]
    queries = [gym_query(f"q{run}", counters=counters) for run in range(40)]
    served = np.array([counts.count(query, np.zeros((60, 30))).value for query in queries])
    simulated = np.array([local.count(query, np.zeros((60, 30))).value for query in queries])
    error = served.ravel() / np.sqrt(60 * gym_query().share_variance)
    assert stats.kstest(error, "norm").pvalue > FALSE_ALARM
    assert stats.ks_2samp(served.ravel(), simulated.ravel()).pvalue > FALSE_ALARM
    assert FALSE_ALARM < _of_squares(error) < 1 - FALSE_ALARM
    assert _of_squares(error / (1 - OFF)) > 1 - FALSE_ALARM
    assert _of_squares(error / (1 + OFF)) < FALSE_ALARM


def _of_squares(error: np.ndarray) -> float:
    """How likely independent unit normal errors have no larger sum of squares."""
    return float(stats.chi2.cdf((error**2).sum(), len(error)))


# What an analyst types.


def test_an_identity_is_bytes_or_digits_or_a_file(server: CountingServer, tmp_path: Path) -> None:
    digits = server.signer.public.hex()
    (tmp_path / "identity.pub").write_text(f"{digits}\n")
    server.phones = lambda _: KNOWN
    certificate = Certificate.load(server.folder, "ann")
    for identity in (server.signer.public, digits, tmp_path / "identity.pub", str(tmp_path / "identity.pub")):
        with Analyst(server.address, certificate, identity) as analyst:
            analyst.start(gym_query(f"q {identity!r}")).result()
    with pytest.raises(ValueError, match="an identity is 64 hexadecimal digits, or a file"):
        Analyst(server.address, certificate, tmp_path / "nowhere")


def test_representations_are_short(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(gym_query())
    server.collecting(gym_query(), 7)
    assert repr(handle.status()) == "Progress('gym', collecting, 21 of 60 phones, 0 of 3 cohorts decided)"
    assert repr(handle) == "Handle('gym', collecting)"
    assert repr(analyst) == f"Analyst('{server.address}')"
