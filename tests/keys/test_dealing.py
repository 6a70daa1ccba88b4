import dataclasses
import itertools
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from reticent.privacy import Counter
from reticent.privacy.limits import QueryLimits
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_keys import administration
from reticent_keys.dealing import query_of
from tests.keys.phones import DAY, LIMITS, QUERY, House, dealt, refused

FALSE_ALARM = 1e-6
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def full() -> Iterator[House]:
    """A server with forty phones, whom nobody revokes."""
    with House() as house:
        house.enrolled(40)
        yield house


@pytest.fixture
def house() -> Iterator[House]:
    with House() as house:
        house.enrolled(25)
        yield house


def countersign(house: House, content: bytes) -> list[wire.Deal]:
    return list(house.server.dealer.countersign(content))


@given(population=st.integers(4, 40), cohorts=st.integers(1, 5), data=st.data())
def test_cohorts_are_as_large_as_the_query_says_and_phones_are_enrolled_and_distinct(
    full: House, population: int, cohorts: int, data: st.DataObject
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


def test_every_phone_is_as_likely_in_every_cohort_as_any_other(full: House) -> None:
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


def test_the_countersignature_is_the_servers_and_comes_first(house: House) -> None:
    query = house.query()
    first, *rest = countersign(house, query.to_bytes())
    assert signed_by(
        house.server.identity, statements.countersigned(query.digest, first.agreement_key), first.countersignature
    )
    assert not any(each.countersignature or each.agreement_key for each in rest)


def test_a_query_is_dealt_once_whatever_becomes_of_the_phones_and_of_the_server(tmp_path: Path) -> None:
    with House(tmp_path / "journal.db") as house:
        phones = house.enrolled(20)
        query = house.query()
        deals = countersign(house, query.to_bytes())
        house.enrolled(10)
        administration.revoke(house.server.journal, phones[0].id)
        house.server.members.leave(phones[1].leaving())
        house.restart()
        assert countersign(house, query.to_bytes()) == deals
        house.server.keyring.rotate()
        assert countersign(house, query.to_bytes()) == deals
        house.advance(1000 * DAY)
        assert countersign(house, query.to_bytes()) == deals


def test_large_deals_come_in_several_messages(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent_keys.dealing.PHONES_PER_MESSAGE", 7)
    deals = countersign(house, house.query().to_bytes())
    assert [len(each.phones) for each in deals] == [7, 7, 6]
    assert len({phone.phone for deal in deals for phone in deal.phones}) == 20


def test_what_is_said_of_later_queries_does_not_include_who_is_gone(house: House) -> None:
    left, revoked = list(house.phones.values())[:2]
    house.server.members.leave(left.leaving())
    administration.revoke(house.server.journal, revoked.id)
    assert not {left.id, revoked.id} & set(house.deal(house.query(population=23)))
    refused(
        Refusal.NOT_ENROLLED_ENOUGH,
        lambda: dealt(house.server, house.query(id="b", population=24)),
        "24 phones, and 23 are",
    )
    house.advance(90 * DAY)
    refused(Refusal.NOT_ENROLLED_ENOUGH, lambda: dealt(house.server, house.query(id="c")))


def test_another_query_of_the_same_id_is_refused(house: House) -> None:
    dealt(house.server, house.query())
    refused(Refusal.CONFLICT, lambda: dealt(house.server, house.query(epsilon=0.5)))


def test_a_query_names_the_active_key(house: House) -> None:
    former = house.query()
    refused(Refusal.KEY_RETIRED, lambda: dealt(house.server, dataclasses.replace(former, key_id="a key")))
    house.server.keyring.rotate()
    refused(Refusal.KEY_RETIRED, lambda: dealt(house.server, former))
    dealt(house.server, house.query())


@pytest.mark.parametrize("content", [b"", b"reticent.query.1\n", b"\xff" * 100, b"reticent.query.1\n" + bytes(200)])
def test_what_is_no_query_is_refused(house: House, content: bytes) -> None:
    refused(Refusal.BAD_QUERY, lambda: countersign(house, content))


def test_a_query_has_one_form(house: House) -> None:
    refused(Refusal.BAD_QUERY, lambda: countersign(house, house.query().to_bytes() + b"\0"))


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
def test_a_query_that_is_damaged_gets_a_refusal(full: House, noise: bytes, place: int, byte: int) -> None:
    content = bytearray(full.query(id="damaged", population=10_000).to_bytes())
    content[place % len(content)] = byte
    for each in (bytes(content), noise, bytes(content) + noise):
        with pytest.raises(Refused) as caught:
            countersign(full, each)
        assert caught.value.refusal in {Refusal.BAD_QUERY, Refusal.NOT_ENROLLED_ENOUGH, Refusal.KEY_RETIRED}


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
    with House(limits=limits) as house:
        house.enrolled(20)
        many = [Counter(f"counter {place}", 0, 500) for place in range(200)]
        query = house.query(counters=many if limits.max_ciphertexts == 1 else house.query().counters)
        refused(Refusal.BAD_QUERY, lambda: dealt(house.server, query), sentence)
        house.limits = LIMITS
        house.server = house.open(house.server.journal)
        dealt(house.server, query)


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
    with House(tmp_path / "journal.db") as house:
        house.enrolled(2000)

        def size() -> int:
            with house.database.reading() as run:
                return int(run("PRAGMA page_count").fetchone()[0]) * int(run("PRAGMA page_size").fetchone()[0])

        before = size()
        for number in range(5):
            dealt(house.server, house.query(id=f"query {number}", population=2000, min_contributions=700))
        assert (size() - before) / 10_000 < 20
        assert before / 2000 < 300


def test_nothing_is_kept_of_a_query_that_is_refused(full: House) -> None:
    """Analysts choose its bytes, of which some make a query of many megabytes."""
    query_of.cache_clear()
    refused(Refusal.BAD_QUERY, lambda: dealt(full.server, full.query(id="costly", epsilon=50.0)))
    refused(Refusal.KEY_RETIRED, lambda: dealt(full.server, dataclasses.replace(full.query(), key_id="none")))
    assert query_of.cache_info().currsize == 0
