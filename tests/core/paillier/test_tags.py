"""What a server that adds ciphertexts can do with them, and what tags and pads do against it."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.paillier import Packing, centred, pad, tag
from reticent.randomness import seeded
from tests.parties.key_pairs import pair

QUERY = bytes(range(32))
PHONES = 10
VICTIM = 3
WEIGHT = 100  # with which the victim's counter is to enter the sum
PACKING = Packing([(0, 1)], contributors=1000, share_variance=0.01, cohorts=1, key_bits=1024)
SECRETS = [seeded("secrets", phone).bytes(32) for phone in range(PHONES)]


def _contributions(bit: int, *, padded: bool) -> list[int]:
    """One ciphertext from each phone, all with the counter 0 but for the victim's."""
    public = pair().public
    plaintexts = []
    for phone, secret in enumerate(SECRETS):
        [plaintext] = PACKING.pack([bit if phone == VICTIM else 0], [tag(secret, QUERY, 0, 0)])
        hidden = pad(secret, QUERY, 0, 0, public.n) if padded else 0
        plaintexts.append(centred(plaintext + hidden, public.n))
    return public.encrypt(plaintexts, seeded("contributions", bit))


def _released(total: int, *, padded: bool) -> int | None:
    """What the key server makes of a sum: the counter, or nothing when the tag is not what it must be."""
    public = pair().public
    [plaintext] = pair().decrypt([total])
    if padded:
        plaintext = centred(plaintext - sum(pad(secret, QUERY, 0, 0, public.n) for secret in SECRETS), public.n)
    sums = PACKING.unpack([plaintext])
    return sums.counters[0] if sums.tags == [sum(tag(secret, QUERY, 0, 0) for secret in SECRETS)] else None


def _amplified(ciphertexts: list[int]) -> int:
    """The sum, with the victim's ciphertext once more to a power that leaves the tag as it is."""
    public = pair().public
    power = next(_factors(public.n, PACKING.tag_offset, PACKING.slots[0].width))
    return public.add([*ciphertexts, pow(ciphertexts[VICTIM], power, public.n**2)])


def _factors(n: int, tag_offset: int, width: int) -> Iterator[int]:
    """Numbers a, with a = WEIGHT modulo 2^width, for which a · 2^tag_offset modulo n is short and 0 modulo 2^width.

    They are the short vectors (a, b) of the lattice b · 2^width = a · 2^tag_offset modulo n: a · (counter + tag ·
    2^tag_offset) is then WEIGHT · counter in the lowest slot, and what else there is stays below the tag.
    """
    short, shorter = (0, n), (1, (1 << (tag_offset - width)) % n)
    while shorter[1] ** 2 > n:
        quotient = short[1] // shorter[1]
        short, shorter = shorter, (short[0] - quotient * shorter[0], short[1] - quotient * shorter[1])
    for one, other in product(range(1 << width), repeat=2):  # one of the two vectors is odd, so it ends
        factor = one * shorter[0] + other * short[0]
        if factor % (1 << width) == WEIGHT:
            yield factor


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("bit", [0, 1])
def test_the_right_sum_is_released(bit: int, padded: bool) -> None:
    assert _released(pair().public.add(_contributions(bit, padded=padded)), padded=padded) == bit


@pytest.mark.parametrize("bit", [0, 1])
def test_tags_alone_let_a_server_amplify_one_counter(bit: int) -> None:
    """The attack that pads are for: 0 or 101 comes out, under the right tag, and noise hides no such difference."""
    assert _released(_amplified(_contributions(bit, padded=False)), padded=False) == bit * (1 + WEIGHT)


@pytest.mark.parametrize("bit", [0, 1])
def test_pads_do_not(bit: int) -> None:
    assert _released(_amplified(_contributions(bit, padded=True)), padded=True) is None


@pytest.mark.parametrize("padded", [False, True])
def test_nothing_but_the_right_sum_is_released(padded: bool) -> None:
    public, good = pair().public, _contributions(1, padded=padded)
    other = good[:1] + public.encrypt([0], seeded("another"))
    for wrong in (good[:1], good[1:], [*good, good[0]], good[1:] + good[1:2], other, [], [*good[2:], good[0], good[0]]):
        assert _released(public.add(wrong), padded=padded) is None


@pytest.mark.parametrize("n", [126869, pair().public.n], ids=["small", "a key's"])
def test_pads_are_spread_over_all_remainders(n: int) -> None:
    """Of 4000 pads each sixteenth gets 160 to 350: outside once in 10^8."""
    pads = [pad(bytes(32), number.to_bytes(32, "big"), 0, 0, n) for number in range(4000)]
    counts = [sum(16 * each // n == part for each in pads) for part in range(16)]
    assert sum(counts) == 4000
    assert min(counts) > 160
    assert max(counts) < 350


def test_tags_and_pads_differ_by_everything_that_they_are_made_of() -> None:
    given = [(bytes([k]) * 32, bytes([j]) * 32, c, p) for k in (0, 1) for j in (0, 1) for c in (0, 1) for p in (0, 1)]
    assert len({tag(*each) for each in given}) == 16
    assert len({pad(*each, pair().public.n) for each in given}) == 16


@pytest.mark.parametrize("n", [0, -7, 1.0, "9", None, True])
def test_pads_are_modulo_a_positive_number(n: Any) -> None:
    with pytest.raises(ValueError, match=r"n must be (positive|a whole number): got"):
        pad(bytes(32), QUERY, 0, 0, n)


@pytest.mark.parametrize("wrong", ["a" * 32, None, 5, [0] * 32])
def test_tags_and_pads_are_made_of_bytes(wrong: Any) -> None:
    for secret, query in ((wrong, QUERY), (bytes(32), wrong)):
        with pytest.raises(ValueError, match="must be bytes"):
            tag(secret, query, 0, 0)
        with pytest.raises(ValueError, match="must be bytes"):
            pad(secret, query, 0, 0, 9)


@pytest.mark.parametrize("wrong", ["1", None, 1.0, True, -1, 2**32])
def test_places_are_whole_numbers_of_32_bits(wrong: Any) -> None:
    with pytest.raises(ValueError, match="the cohort must "):
        tag(bytes(32), QUERY, wrong, 0)
    with pytest.raises(ValueError, match="the plaintext must "):
        pad(bytes(32), QUERY, 0, wrong, 9)


def _weighted(ciphertexts: list[int], weights: list[int]) -> int:
    n_squared = pair().public.n ** 2
    powers = [pow(each, weight, n_squared) for each, weight in zip(ciphertexts, weights, strict=True)]
    return pair().public.add(powers)


HALF = (pair().public.n + 1) // 2  # what halves a plaintext, modulo n
WEIGHTS = {
    "twice one and never another": [2, 0],
    "one against another": [1, -1],
    "none": [0, 0],
    "halves": [HALF, HALF],
    "a multiple of the tag's slot": [1 + (1 << PACKING.tag_offset), 1],
    "the counter and no tag": [1 + (1 << 40), 1 - (1 << 40)],
    "minus one": [-1, -1],
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS)
def test_no_weights_are_released_but_ones(weights: list[int]) -> None:
    good, rest = _contributions(1, padded=True), [1] * (PHONES - 2)
    for order in (weights, weights[::-1]):
        assert _released(_weighted(good, [*rest[:2], *order, *rest[2:]]), padded=True) is None
    ones = [1 + pair().public.n, *[1] * (PHONES - 1)]  # modulo n they are ones
    assert _released(_weighted(good, ones), padded=True) == 1


@given(st.integers(), st.integers(1, 10**9).map(lambda half: 2 * half + 1))
def test_centred_numbers_are_the_nearest_to_zero(number: int, n: int) -> None:
    found = centred(number, n)
    assert (found - number) % n == 0
    assert abs(2 * found) < n
