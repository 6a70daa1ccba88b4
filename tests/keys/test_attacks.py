"""A malicious aggregation server: whatever it requests, it gets nothing but the one sum."""

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import gmpy2
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import Refusal, packing_of
from reticent.v1 import counting_pb2 as wire
from tests.parties.decision_requests import decide, expected, honest, request, summed, sums
from tests.parties.key_server import LocalKeyServer, refused
from tests.parties.phone import Contribution

COHORT = 0
COUNTERS = [Counter(f"counter {place}", 0, 2**14) for place in range(100)]  # more than one plaintext


@dataclass(frozen=True)
class Prepared:
    """A key server with a query that collects, and what the phones have sent: each test attacks a copy."""

    local: LocalKeyServer
    query: Query
    inputs: list[Contribution]
    others: dict[str, list[Contribution]]
    """Contributions to another query, and to another cohort."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    with LocalKeyServer(tmp_path_factory.mktemp("attacked") / "journal.db") as local:
        local.enrolled(20)
        query, other = (local.query(id=name, counters=COUNTERS, l1=2**14, l2_squared=2**28) for name in "ab")
        others = {"query": contributions(local, other, COHORT), "cohort": contributions(local, query, 1)}
        return Prepared(local, query, contributions(local, query, COHORT), others)


@pytest.fixture
def local(prepared: Prepared, tmp_path: Path) -> Iterator[LocalKeyServer]:
    made = prepared.local
    assert made.path is not None
    copy = Path(shutil.copy(made.path, tmp_path / "journal.db"))
    with LocalKeyServer(copy, identity=made.identity, pairs=made.pairs, query_keys=made.query_keys) as local:
        yield local


@pytest.fixture
def query(prepared: Prepared) -> Query:
    return prepared.query


@pytest.fixture
def inputs(prepared: Prepared) -> list[Contribution]:
    return prepared.inputs


def contributions(local: LocalKeyServer, query: Query, cohort: int) -> list[Contribution]:
    phones = [phone for phone, to in local.deal(query).items() if to == cohort]
    return [
        local.phones[phone].contribution(
            query, local.key, local.query_key(query), cohort, [1000 * place + n for n in range(100)]
        )
        for place, phone in enumerate(phones)
    ]


def receipts(inputs: list[Contribution]) -> list[wire.Receipt]:
    return [each.receipt for each in inputs]


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
    "one ciphertext as the sum": lambda inputs, _: inputs[0].ciphertexts,
    "all but one": lambda inputs, key: summed(key, inputs[1:]),
    "half of them": lambda inputs, key: summed(key, inputs[:5]),
    "one twice": lambda inputs, key: summed(key, [*inputs, inputs[0]]),
    "one twice in place of another": lambda inputs, key: summed(key, [*inputs[1:], inputs[1]]),
    "none": lambda inputs, _: [1] * len(inputs[0].ciphertexts),
    "all of them twice": lambda inputs, key: power(key, summed(key, inputs), 2),
    "the sum without one, by division": lambda inputs, key: product(
        key, summed(key, inputs), power(key, inputs[0].ciphertexts, -1)
    ),
    "one a thousand times beside the others": lambda inputs, key: product(
        key, summed(key, inputs), power(key, inputs[0].ciphertexts, 1000)
    ),
    "plaintexts that change places": lambda inputs, key: summed(key, inputs)[::-1],
    "one phone's plaintexts that change places": lambda inputs, key: product(
        key, summed(key, inputs[1:]), inputs[0].ciphertexts[::-1]
    ),
    "the first plaintext in all places": lambda inputs, key: [summed(key, inputs)[0]] * len(inputs[0].ciphertexts),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_the_sum_is_void(
    attack: str, local: LocalKeyServer, query: Query, inputs: list[Contribution]
) -> None:
    made = decide(
        local.server, *request(query, COHORT, local.key, ATTACKS[attack](inputs, local.key), receipts(inputs))
    )
    assert made.outcome == wire.VOID
    assert not made.sums
    refused(Refusal.ALREADY_DECIDED, lambda: decide(local.server, *honest(query, COHORT, local.key, inputs)))


def test_multiples_that_spare_the_tag_are_void(local: LocalKeyServer, query: Query, inputs: list[Contribution]) -> None:
    """Without pads they would have a phone's counters released beside the right tag."""
    key = local.key
    factors = short_multiples(query, key)
    assert factors
    factor = min(factors, key=abs)
    offset = packing_of(query, key.bits).tag_offset
    shift = factor * 2**offset % key.n
    assert min(shift, key.n - shift).bit_length() < offset
    weighted = product(key, summed(key, inputs), power(key, inputs[0].ciphertexts, factor))
    made = decide(local.server, *request(query, COHORT, key, weighted, receipts(inputs)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_a_multiple_of_one_phone_alone_is_void(local: LocalKeyServer, query: Query, inputs: list[Contribution]) -> None:
    key = local.key
    scaled = power(key, inputs[0].ciphertexts, 2 ** packing_of(query, key.bits).slots[0].width)
    made = decide(local.server, *request(query, COHORT, key, scaled, receipts(inputs)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_a_sum_with_a_phone_for_which_there_is_no_receipt_is_void(
    local: LocalKeyServer, query: Query, inputs: list[Contribution]
) -> None:
    made = decide(local.server, *request(query, COHORT, local.key, summed(local.key, inputs), receipts(inputs[1:])))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_one_receipt_for_one_ciphertext_is_burnt(
    local: LocalKeyServer, query: Query, inputs: list[Contribution]
) -> None:
    made = decide(local.server, *honest(query, COHORT, local.key, inputs[:1]))
    assert made.outcome == wire.BURNT
    assert not made.sums


@pytest.mark.parametrize("how_many", [1, 9, 10])
@pytest.mark.parametrize("which", ["query", "cohort"])
def test_contributions_to_something_else_are_worth_nothing(
    local: LocalKeyServer, prepared: Prepared, which: str, how_many: int
) -> None:
    key, query, inputs = local.key, prepared.query, prepared.inputs
    mixed = prepared.others[which][:how_many] + inputs[how_many:]
    foreign = request(query, COHORT, key, summed(key, mixed), receipts(mixed))
    refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, *foreign))
    made = decide(local.server, *request(query, COHORT, key, summed(key, mixed), receipts(inputs)))
    assert made.outcome == wire.VOID
    assert not made.sums


def test_who_adds_can_falsify_and_learns_nothing_more(
    local: LocalKeyServer, query: Query, inputs: list[Contribution]
) -> None:
    """Whoever adds may add a number of its own: the noise of all phones is still in what is released."""
    key = local.key
    shifted = product(key, summed(key, inputs), [1 + 41 * key.n, *[1] * (len(inputs[0].ciphertexts) - 1)])
    made = decide(local.server, *request(query, COHORT, key, shifted, receipts(inputs)))
    assert made.outcome == wire.RELEASED
    first, *rest = expected(inputs)
    assert sums(made) == [first + 41, *rest]
