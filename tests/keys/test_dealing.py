import dataclasses
import itertools
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from reticent.privacy import Counter, QueryLimits
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_keys import administration
from reticent_keys.dealing import query_of
from tests.parties.key_server import DAY, LIMITS, QUERY, LocalKeyServer, dealt, refused
from tests.parties.phone import Phone

FALSE_ALARM = 1e-6
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def full() -> Iterator[LocalKeyServer]:
    """A server with forty phones, whom nobody revokes."""
    with LocalKeyServer() as local:
        local.enrolled(40)
        yield local


@pytest.fixture
def local() -> Iterator[LocalKeyServer]:
    with LocalKeyServer() as local:
        local.enrolled(25)
        yield local


def countersign(local: LocalKeyServer, content: bytes) -> list[wire.Deal]:
    return list(local.server.dealer.countersign(content))


@given(population=st.integers(4, 40), cohorts=st.integers(1, 5), data=st.data())
def test_cohorts_are_as_large_as_the_query_says_and_phones_are_enrolled_and_distinct(
    full: LocalKeyServer, population: int, cohorts: int, data: st.DataObject
) -> None:
    cohorts = min(cohorts, population // 3)
    min_contributions = data.draw(st.integers(3, population // cohorts))
    query = full.query(
        id=f"sizes {next(NUMBERS)}",
        population=population,
        cohorts=cohorts,
        min_contributions=min_contributions,
        liars=1,
    )
    query = dataclasses.replace(query, counters=query.counters[:1], l1=3, l2_squared=9)
    if min_contributions / (population // cohorts) < LIMITS.min_cohort_share:
        refused(Refusal.BAD_QUERY, lambda: dealt(full.server, query))
        return
    phones = dealt(full.server, query)
    assert len({each.phone for each in phones}) == len(phones) == population
    assert {each.phone for each in phones} <= set(full.phones)
    sizes = Tally(each.cohort for each in phones)
    assert tuple(sizes[cohort] for cohort in range(cohorts)) == query.cohort_populations
    assert all(each.verify_key == full.phones[each.phone].signing.public for each in phones)
    assert dealt(full.server, query) == phones


def test_phones_whose_membership_has_expired_are_not_dealt(local: LocalKeyServer) -> None:
    """Memberships last 90 days."""
    local.advance(45 * DAY)
    later = {phone.id for phone in local.enrolled(20)}
    local.advance(50 * DAY)
    assert {each.phone for each in dealt(local.server, local.query(population=20))} == later


def test_every_phone_is_as_likely_in_every_cohort_as_any_other(full: LocalKeyServer) -> None:
    """A chi-square test over 60 deals of 30 of 40 phones to 3 cohorts, seeded."""
    places = Tally[tuple[bytes, int | None]]()
    deals = 60
    for number in range(deals):
        cohorts = full.deal(full.query(id=f"fair {number}", population=30, cohorts=3, min_contributions=5))
        places.update((phone, cohorts.get(phone)) for phone in full.phones)
    expected = deals / 4  # in each of three cohorts, or left out
    statistic = sum(
        (places[phone, cohort] - expected) ** 2 / expected for phone in full.phones for cohort in (0, 1, 2, None)
    )
    freedom = 3 * 39
    assert chi2.ppf(FALSE_ALARM, freedom) < statistic < chi2.isf(FALSE_ALARM, freedom)


def test_the_countersignature_is_the_servers_and_comes_first(local: LocalKeyServer) -> None:
    query = local.query()
    first, *rest = countersign(local, query.to_bytes())
    assert signed_by(
        local.server.identity, statements.countersigned(query.digest, first.agreement_key), first.countersignature
    )
    assert not any(each.countersignature or each.agreement_key for each in rest)


def test_a_query_is_dealt_once_whatever_becomes_of_the_phones_and_of_the_server(tmp_path: Path) -> None:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        phones = local.enrolled(20)
        query = local.query()
        deals = countersign(local, query.to_bytes())
        local.enrolled(10)
        administration.revoke(local.server.journal, phones[0].id)
        local.server.members.leave(phones[1].leaving())
        local.restart()
        assert countersign(local, query.to_bytes()) == deals
        local.server.keyring.rotate()
        assert countersign(local, query.to_bytes()) == deals
        local.advance(1000 * DAY)
        assert countersign(local, query.to_bytes()) == deals


def test_large_deals_come_in_several_messages(local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_keys.dealing.PHONES_PER_MESSAGE", 7)
    deals = countersign(local, local.query().to_bytes())
    assert [len(each.phones) for each in deals] == [7, 7, 6]
    assert len({phone.phone for deal in deals for phone in deal.phones}) == 20


def test_what_is_said_of_later_queries_does_not_include_who_is_gone(local: LocalKeyServer) -> None:
    left, revoked = list(local.phones.values())[:2]
    local.server.members.leave(left.leaving())
    administration.revoke(local.server.journal, revoked.id)
    assert not {left.id, revoked.id} & set(local.deal(local.query(population=23)))
    refused(
        Refusal.TOO_FEW_ENROLLED,
        lambda: dealt(local.server, local.query(id="b", population=24)),
        "24 phones: 23 are",
    )
    local.advance(90 * DAY)
    refused(Refusal.TOO_FEW_ENROLLED, lambda: dealt(local.server, local.query(id="c")))


def test_another_query_of_the_same_id_is_refused(local: LocalKeyServer) -> None:
    dealt(local.server, local.query())
    refused(Refusal.CONFLICT, lambda: dealt(local.server, local.query(epsilon=0.5)))


def test_a_query_names_the_active_key(local: LocalKeyServer) -> None:
    former = local.query()
    refused(Refusal.KEY_RETIRED, lambda: dealt(local.server, dataclasses.replace(former, key_id="a key")))
    local.server.keyring.rotate()
    refused(Refusal.KEY_RETIRED, lambda: dealt(local.server, former))
    dealt(local.server, local.query())


@pytest.mark.parametrize("content", [b"", b"reticent.query.1\n", b"\xff" * 100, b"reticent.query.1\n" + bytes(200)])
def test_what_is_no_query_is_refused(local: LocalKeyServer, content: bytes) -> None:
    refused(Refusal.BAD_QUERY, lambda: countersign(local, content))


def test_a_query_has_one_form(local: LocalKeyServer) -> None:
    refused(Refusal.BAD_QUERY, lambda: countersign(local, local.query().to_bytes() + b"\0"))


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
def test_a_query_that_is_damaged_gets_a_refusal(full: LocalKeyServer, noise: bytes, place: int, byte: int) -> None:
    content = bytearray(full.query(id="damaged", population=10_000).to_bytes())
    content[place % len(content)] = byte
    for each in (bytes(content), noise, bytes(content) + noise):
        with pytest.raises(Refused) as caught:
            countersign(full, each)
        assert caught.value.refusal in {Refusal.BAD_QUERY, Refusal.TOO_FEW_ENROLLED, Refusal.KEY_RETIRED}


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (QueryLimits(max_epsilon=0.99, min_honest=2, min_cohort_share=0.3), "epsilon must be at most 0.99: got 1"),
        (QueryLimits(max_delta=9e-6, min_honest=2, min_cohort_share=0.3), "delta must be at most 9e-06: got 1e-05"),
        (QueryLimits(min_honest=5, min_cohort_share=0.3), "min_contributions must exceed liars by at least 5: got 4"),
        (
            QueryLimits(min_honest=2, min_cohort_share=0.51),
            "min_contributions must be at least 0.51 of the smallest cohort: got 0.5",
        ),
        (QueryLimits(min_honest=2, min_liars_share=0.21), "liars must be at least 2 of 5 contributions: got 1"),
        (QueryLimits(min_honest=2, max_ciphertexts=1), "a phone must send at most 1 ciphertexts: got "),
    ],
)
def test_the_operators_limits_are_kept(limits: QueryLimits, sentence: str) -> None:
    with LocalKeyServer(limits=limits) as local:
        local.enrolled(20)
        many = [Counter(f"counter {place}", 0, 500) for place in range(200)]
        query = local.query(counters=many if limits.max_ciphertexts == 1 else local.query().counters)
        refused(Refusal.BAD_QUERY, lambda: dealt(local.server, query), sentence)
        local.limits = LIMITS
        local.server = local.open(local.server.journal)
        dealt(local.server, query)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"liars": 0}, "liars must be at least 2 of 22 contributions: got 0"),
        ({"liars": 1}, "liars must be at least 2 of 22 contributions: got 1"),
        ({"liars": 3}, "min_contributions must exceed liars by at least 20: got 19"),
    ],
)
def test_an_operator_who_says_nothing_wants_twenty_honest_phones_and_some_liars(
    changes: dict[str, int], sentence: str
) -> None:
    query = dataclasses.replace(QUERY, population=40, cohorts=1, min_contributions=22, liars=2)
    other = dataclasses.replace(query, **changes)  # type: ignore[arg-type]  # all of these are numbers
    assert QueryLimits().violations(query, ciphertexts=1) == {}
    assert list(QueryLimits().violations(other, ciphertexts=1).values()) == [sentence]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_epsilon": 0.0},
        {"max_delta": 0.0},
        {"max_delta": 2.0},
        {"min_cohort_share": 1.5},
        {"min_honest": -1},
        {"max_ciphertexts": 0},
        {"min_liars_share": 1.0},
    ],
)
def test_limits_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"got"):
        QueryLimits(**wrong)  # type: ignore[arg-type]


def test_a_dealt_phone_takes_few_bytes(tmp_path: Path) -> None:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(2000)

        def size() -> int:
            with local.database.reading() as run:
                return int(run("PRAGMA page_count").fetchone()[0]) * int(run("PRAGMA page_size").fetchone()[0])

        before = size()
        for number in range(5):
            dealt(local.server, local.query(id=f"query {number}", population=2000, min_contributions=700))
        assert (size() - before) / 10_000 < 20
        assert before / 2000 < 300


def test_nothing_is_kept_of_a_query_that_is_refused(full: LocalKeyServer) -> None:
    """Analysts choose its bytes, of which some make a query of many megabytes."""
    query_of.cache_clear()
    refused(Refusal.BAD_QUERY, lambda: dealt(full.server, full.query(id="costly", epsilon=50.0)))
    refused(Refusal.KEY_RETIRED, lambda: dealt(full.server, dataclasses.replace(full.query(), key_id="none")))
    assert query_of.cache_info().currsize == 0


def test_with_a_seed_the_deal_depends_on_the_invitations_and_not_on_who_joins_first() -> None:
    def cohorts(order: int) -> list[int]:
        with LocalKeyServer() as local:
            phones = [Phone(token) for token in local.tokens(30)]
            for phone in phones[::order]:
                phone.membership = local.server.members.join(phone.joining())
            deal = local.deal(local.query(id="one", population=30, cohorts=3, min_contributions=10, liars=1))
            return [deal[phone.id] for phone in phones]

    assert cohorts(1) == cohorts(-1)
