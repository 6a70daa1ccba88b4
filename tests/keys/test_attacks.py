"""An aggregation server that does not keep to the protocol: whatever it asks, it is told nothing but the one sum."""

import math
from collections.abc import Callable, Iterator

import gmpy2
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import Refusal, packing_of
from reticent.v1 import counting_pb2 as wire
from tests.keys.phones import Contribution, House, expected, honest, refused, request, summed, sums

COHORT = 0
COUNTERS = [Counter(f"counter {place}", 0, 2**14) for place in range(100)]  # more than one plaintext


@pytest.fixture
def house() -> Iterator[House]:
    with House() as house:
        house.enrolled(20)
        yield house


@pytest.fixture
def query(house: House) -> Query:
    return house.query(counters=COUNTERS, l1=2**14, l2_squared=2**28)


@pytest.fixture
def given(house: House, query: Query) -> list[Contribution]:
    return contributions(house, query, COHORT)


def contributions(house: House, query: Query, cohort: int) -> list[Contribution]:
    phones = [phone for phone, to in house.deal(query).items() if to == cohort]
    return [
        house.phones[phone].contribution(
            query, house.key, house.query_key(query), cohort, [1000 * place + n for n in range(100)]
        )
        for place, phone in enumerate(phones)
    ]


def receipts(given: list[Contribution]) -> list[wire.Receipt]:
    return [each.receipt for each in given]


def product(key: PublicKey, *sums: list[int]) -> list[int]:
    """The ciphertexts of the sum of sums."""
    return [key.add(column) for column in zip(*sums, strict=True)]


def power(key: PublicKey, ciphertexts: list[int], factor: int) -> list[int]:
    """The ciphertexts of as many times that."""
    return [int(gmpy2.powmod(each, factor, key.n**2)) for each in ciphertexts]


def short_multiples(query: Query, key: PublicKey) -> list[int]:
    """Factors that leave both themselves and their multiple by the tag's place with half the bits of n."""
    found = []
    small, large = (key.n, 0), (pow(2, packing_of(query, key.bits).tag_offset, key.n), 1)
    while large[0] > math.isqrt(key.n):  # Euclid's algorithm, halfway
        quotient = small[0] // large[0]
        small, large = large, (small[0] - quotient * large[0], small[1] - quotient * large[1])
        if large[1].bit_length() > key.bits // 3:
            found.append(large[1])
    return found


Attack = Callable[[list[Contribution], PublicKey], list[int]]

ATTACKS: dict[str, Attack] = {
    "one ciphertext as the sum": lambda given, _: given[0].ciphertexts,
    "all but one": lambda given, key: summed(key, given[1:]),
    "half of them": lambda given, key: summed(key, given[:5]),
    "one twice": lambda given, key: summed(key, [*given, given[0]]),
    "one twice in place of another": lambda given, key: summed(key, [*given[1:], given[1]]),
    "none": lambda given, _: [1] * len(given[0].ciphertexts),
    "all of them twice": lambda given, key: power(key, summed(key, given), 2),
    "the sum without one, told from the other side": lambda given, key: product(
        key, summed(key, given), power(key, given[0].ciphertexts, -1)
    ),
    "one a thousand times beside the others": lambda given, key: product(
        key, summed(key, given), power(key, given[0].ciphertexts, 1000)
    ),
    "plaintexts that change places": lambda given, key: summed(key, given)[::-1],
    "one phone's plaintexts that change places": lambda given, key: product(
        key, summed(key, given[1:]), given[0].ciphertexts[::-1]
    ),
    "the first plaintext in all places": lambda given, key: [summed(key, given)[0]] * len(given[0].ciphertexts),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_the_sum_is_void(attack: str, house: House, query: Query, given: list[Contribution]) -> None:
    made = house.server.decider.decide(
        *request(query, COHORT, house.key, ATTACKS[attack](given, house.key), receipts(given))
    )
    assert made.outcome == wire.VOID
    assert not made.sums
    refused(Refusal.ALREADY_DECIDED, lambda: house.server.decider.decide(*honest(query, COHORT, house.key, given)))


def test_multiples_that_spare_the_tag_are_void(house: House, query: Query, given: list[Contribution]) -> None:
    """Without pads they would have a phone's counters released beside the right tag."""
    key = house.key
    factors = short_multiples(query, key)
    assert factors
    factor = min(factors, key=abs)
    offset = packing_of(query, key.bits).tag_offset
    shift = factor * 2**offset % key.n
    assert min(shift, key.n - shift).bit_length() < offset
    weighted = product(key, summed(key, given), power(key, given[0].ciphertexts, factor))
    made = house.server.decider.decide(*request(query, COHORT, key, weighted, receipts(given)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_a_multiple_of_one_phone_alone_is_void(house: House, query: Query, given: list[Contribution]) -> None:
    key = house.key
    scaled = power(key, given[0].ciphertexts, 2 ** packing_of(query, key.bits).slots[0].width)
    made = house.server.decider.decide(*request(query, COHORT, key, scaled, receipts(given)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_a_sum_with_a_phone_for_which_there_is_no_receipt_is_void(
    house: House, query: Query, given: list[Contribution]
) -> None:
    made = house.server.decider.decide(
        *request(query, COHORT, house.key, summed(house.key, given), receipts(given[1:]))
    )
    assert made.outcome == wire.VOID
    assert not made.sums


def test_one_receipt_for_one_ciphertext_is_burnt(house: House, query: Query, given: list[Contribution]) -> None:
    made = house.server.decider.decide(*honest(query, COHORT, house.key, given[:1]))
    assert made.outcome == wire.BURNT
    assert not made.sums


@pytest.mark.parametrize("how_many", [1, 9, 10])
@pytest.mark.parametrize("which", ["query", "cohort"])
def test_contributions_to_something_else_are_worth_nothing(
    house: House, query: Query, given: list[Contribution], which: str, how_many: int
) -> None:
    key = house.key
    if which == "query":
        others = contributions(house, house.query(id="b", counters=COUNTERS, l1=2**14, l2_squared=2**28), COHORT)
    else:
        others = contributions(house, query, 1)
    mixed = others[:how_many] + given[how_many:]
    foreign = request(query, COHORT, key, summed(key, mixed), receipts(mixed))
    refused(Refusal.BAD_RECEIPTS, lambda: house.server.decider.decide(*foreign))
    made = house.server.decider.decide(*request(query, COHORT, key, summed(key, mixed), receipts(given)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_who_adds_can_falsify_and_learns_nothing_more(house: House, query: Query, given: list[Contribution]) -> None:
    """Whoever adds may add a number of its own: the noise of all phones is still in what is released."""
    key = house.key
    shifted = product(key, summed(key, given), [1 + 41 * key.n, *[1] * (len(given[0].ciphertexts) - 1)])
    made = house.server.decider.decide(*request(query, COHORT, key, shifted, receipts(given)))
    assert made.outcome == wire.RELEASED
    first, *rest = expected(given)
    assert sums(made) == [first + 41, *rest]
