import gmpy2
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from reticent.paillier._fixed_base import POWERS_WITHOUT_TABLE, TABLE_BYTES, Comb, FixedBase
from tests.parties.key_pairs import pair

HALF = 512


@pytest.fixture(scope="module")
def powers() -> FixedBase:
    found = pair().public._powers
    found.prepare()
    return found


exponents = st.integers(0, 2**HALF - 1) | st.sampled_from([0, 1, 2**HALF - 1, 2 ** (HALF - 1)])


@given(exponent=exponents)
def test_powers_from_the_table_are_powers(powers: FixedBase, exponent: int) -> None:
    n = mpz(pair().public.n)
    base = pow(pair().public.base, pair().public.n, pair().public.n ** 2)
    [found] = powers.powers([exponent])
    assert found.factor * (1 + found.owed * n) % (n * n) == pow(base, exponent, pair().public.n ** 2)
    assert found.factor != 0


@given(st.sampled_from([1024, 2048, 3072, 4096]), st.data())
def test_digits_make_up_the_exponent(bits: int, data: st.DataObject) -> None:
    comb = Comb.for_key(bits)
    exponent = data.draw(st.integers(0, 2 ** (bits // 2) - 1))
    total = 0
    for k, row in enumerate(comb.rows(exponent)):
        for s, place in enumerate(row):
            block, digit = divmod(place, 1 << comb.teeth)
            assert block == s
            for tooth in range(comb.teeth):
                total += (digit >> tooth & 1) << (tooth * comb.blocks * comb.depth + s * comb.depth + k)
    assert total == exponent


@pytest.mark.parametrize("bits", [1024, 2048, 3072, 4096])
def test_the_comb_holds_every_exponent_in_a_table_of_its_size(bits: int) -> None:
    comb = Comb.for_key(bits)
    assert comb.bits >= bits // 2
    assert comb.blocks % 2 == 0
    assert comb.entries * 2 * (bits // 8) < TABLE_BYTES <= 16_000_000


def test_the_table_is_built_when_it_pays() -> None:
    n = mpz(pair().public.n)
    powers = FixedBase(n, gmpy2.powmod(4, n, n * n))
    powers.powers([3] * POWERS_WITHOUT_TABLE)
    assert powers._table is None
    powers.powers([3])
    assert powers._table is not None
