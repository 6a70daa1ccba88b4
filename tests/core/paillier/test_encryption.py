import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from reticent.paillier import BadCiphertexts, Packing, PublicKey
from reticent.randomness import secure, seeded
from tests.core.paillier.keys import as_phe
from tests.parties.key_pairs import pair, primes

BATCH = 256
ENOUGH_FOR_A_TABLE = 20


@pytest.mark.parametrize("bits", [1024, 2048, pytest.param(3072, marks=pytest.mark.slow)])
class TestBesidePhe:
    def test_phe_decrypts_what_we_encrypt(self, bits: int) -> None:
        ours, (_, private) = pair(bits), as_phe(pair(bits))
        half = ours.public.n // 2
        plaintexts = [0, 1, 10100, half, -1, -half, *range(ENOUGH_FOR_A_TABLE)]
        found = [private.raw_decrypt(ciphertext) for ciphertext in ours.public.encrypt(plaintexts, secure())]
        assert found == [plaintext % ours.public.n for plaintext in plaintexts]

    def test_we_decrypt_what_phe_encrypts(self, bits: int) -> None:
        ours, (public, _) = pair(bits), as_phe(pair(bits))
        plaintexts = [0, 1, 10100, ours.public.n // 2, -1, -(ours.public.n // 2)]
        ciphertexts = [public.raw_encrypt(plaintext % ours.public.n) for plaintext in plaintexts]
        assert ours.decrypt(ciphertexts) == plaintexts

    def test_sums_of_both_are_sums(self, bits: int) -> None:
        ours, (public, private) = pair(bits), as_phe(pair(bits))
        total = ours.public.add([*ours.public.encrypt([5, -9], secure()), public.raw_encrypt(7)])
        assert ours.decrypt([total]) == [3]
        assert private.raw_decrypt(total) == 3


@given(st.lists(st.integers(-(2**900), 2**900), max_size=12), st.integers(0, 2**32))
def test_sums_decrypt_to_sums(plaintexts: list[int], seed: int) -> None:
    public = pair().public
    ciphertexts = public.encrypt(plaintexts, seeded(seed))
    assert pair().decrypt([*ciphertexts, public.add(ciphertexts)]) == [*plaintexts, sum(plaintexts)]
    sums = public.add_pairs(ciphertexts, list(reversed(ciphertexts)))
    assert pair().decrypt(sums) == [one + other for one, other in zip(plaintexts, reversed(plaintexts), strict=True)]


def test_ciphertexts_differ_every_time() -> None:
    public, rng = pair().public, secure()
    found = public.encrypt([1] * 100, rng) + public.encrypt([1] * 100, rng) + public.encrypt([1] * 100, secure())
    assert len(set(found)) == len(found)


def test_a_seed_replays_them_with_the_table_and_without() -> None:
    public = pair(number=1).public
    once = public.encrypt([1, -2, 3], seeded(7, "phone", 12))
    public.prepare()
    assert public.encrypt([1, -2, 3], seeded(7, "phone", 12)) == once
    assert public.encrypt([1, -2, 3], seeded(7, "phone", 13)) != once


def test_every_bit_of_the_exponents_is_drawn() -> None:
    """Each bit of 400 exponents is 1 in 120 to 280 of them: a fair bit is outside once in 10^15."""
    public = pair().public
    exponents = public._exponents(400, seeded("exponents"))
    bits = np.array([[exponent >> place & 1 for place in range(512)] for exponent in exponents])
    assert max(exponents).bit_length() <= 512
    assert bits.sum(axis=0).min() > 120
    assert bits.sum(axis=0).max() < 280


def test_rerandomised_ciphertexts_are_others_of_the_same_plaintexts() -> None:
    public = pair().public
    before = public.encrypt([3, -4], secure())
    after, again = public.rerandomise(before, secure()), public.rerandomise(before, secure())
    assert pair().decrypt(after) == pair().decrypt(again) == [3, -4]
    assert len({*before, *after, *again}) == 6
    with pytest.raises(BadCiphertexts, match="ciphertext 1 of 2 is not positive"):
        public.rerandomise([before[0], 0], secure())


def test_no_plaintexts_are_no_ciphertexts() -> None:
    public = pair().public
    assert public.encrypt([], secure()) == public.rerandomise([], secure()) == []
    assert pair().decrypt([public.add([])]) == [0]


@pytest.mark.parametrize("excess", [1, 2**1024])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_plaintext_beyond_half_of_n_is_refused(sign: int, excess: int) -> None:
    public = pair().public
    with pytest.raises(ValueError, match="plaintext 1 of 2 is not between -n/2 and n/2"):
        public.encrypt([0, sign * (public.n // 2 + excess)], secure())


def test_numbers_of_numpy_are_numbers() -> None:
    plaintexts = np.array([2**62, -(2**62)])
    assert pair().decrypt(pair().public.encrypt(plaintexts.tolist(), secure())) == plaintexts.tolist()
    assert pair().decrypt(pair().public.encrypt(list(plaintexts), secure())) == plaintexts.tolist()


def _shares_p(n: int, p: int) -> int:
    return p * (n - 2)


def _shares_n(n: int, p: int) -> int:
    del p
    return n * (n - 1)


def _is_zero(n: int, p: int) -> int:
    del n, p
    return 0


def _is_too_large(n: int, p: int) -> int:
    del p
    return n * n


BAD = [_shares_p, _shares_n, _is_zero, _is_too_large]


@pytest.mark.parametrize("second", BAD)
@pytest.mark.parametrize("first", BAD)
def test_two_bad_ones_in_a_batch_are_the_two_that_err(
    first: Callable[[int, int], int], second: Callable[[int, int], int]
) -> None:
    public, (p, _) = pair().public, primes(pair())
    batch = public.encrypt([1] * BATCH, seeded("batch"))
    assert pair().decrypt([public.add(batch)]) == [BATCH]
    one, other = random.Random(first.__name__ + second.__name__).sample(range(BATCH), 2)  # noqa: S311  # which ones is no secret
    batch[one], batch[other] = first(public.n, p), second(public.n, p)
    with pytest.raises(BadCiphertexts, match=f"of {BATCH} .*, and 1 more") as refusal:
        public.add(batch)
    assert sorted(refusal.value.faults) == sorted([one, other])


@pytest.mark.parametrize("wrong", [None, "5", b"5", 5.0, np.float64(5.0), float("nan"), 1j, True, [5]])
def test_what_is_no_whole_number_errs_alone(wrong: Any) -> None:
    public = pair().public
    batch: list[Any] = [*public.encrypt([1, 2], seeded("wrong")), wrong, 0]
    for refusing in (public.add, public.check, lambda batch: public.rerandomise(batch, secure()), pair().decrypt):
        with pytest.raises(BadCiphertexts, match="ciphertext 2 of 4 is no whole number, and 1 more") as refusal:
            refusing(batch)
        assert refusal.value.faults == {2: "is no whole number", 3: "is not positive"}


@pytest.mark.parametrize("bits", [10**5, 10**7])
def test_huge_numbers_are_refused_at_once(bits: int) -> None:
    public = pair().public
    with pytest.raises(BadCiphertexts, match="ciphertext 0 of 2 is not below n²"):
        public.check([1 << bits, 4])
    with pytest.raises(ValueError, match="n must have 3072 or 4096 bits"):
        PublicKey((1 << bits) + 1, 4)
    with pytest.raises(ValueError, match="strictly between"):
        PublicKey(public.n, 1 << bits, simulation=True)


def test_numbers_of_gmpy2_are_numbers() -> None:
    """Whoever computed with them need not convert them first."""
    made = pair()
    [ciphertext] = made.public.encrypt([mpz(-7)], secure())  # type: ignore[list-item]
    assert made.decrypt([mpz(ciphertext)]) == [-7]  # type: ignore[list-item]
    assert made.public.add([mpz(ciphertext)]) == ciphertext  # type: ignore[list-item]
    key = PublicKey(mpz(made.public.n), mpz(made.public.base), simulation=True)  # type: ignore[arg-type]
    assert key == made.public
    assert type(key.n) is type(key.base) is int


@pytest.mark.parametrize("wrong", [None, "5", 5.0, float("nan"), True])
def test_a_key_of_what_is_no_whole_number(wrong: Any) -> None:
    public = pair().public
    with pytest.raises(ValueError, match="n must be a whole number: got"):
        PublicKey(wrong, public.base, simulation=True)
    with pytest.raises(ValueError, match="base must be a whole number: got"):
        PublicKey(public.n, wrong, simulation=True)
    with pytest.raises(ValueError, match="plaintext 1 must be a whole number: got"):
        public.encrypt([0, wrong], secure())


def test_factors_that_only_the_product_makes_up_to_n_are_found() -> None:
    """One has p and another q: their product is a multiple of n."""
    public, (p, q) = pair().public, primes(pair())
    with pytest.raises(BadCiphertexts) as refusal:
        public.check([2, p, 3, q])
    assert refusal.value.faults == dict.fromkeys([1, 3], "has a factor in common with n")


def test_a_ciphertext_of_another_key_is_refused_or_means_nothing() -> None:
    ours, theirs = sorted((pair(), pair(number=1)), key=lambda each: each.public.n)
    packing = Packing([(0, 1)] * 3, contributors=10, share_variance=1.0, cohorts=1, key_bits=1024)
    strange = theirs.public.encrypt(packing.pack([1, 0, 1], [12345]) * 64, seeded("another key"))
    with pytest.raises(BadCiphertexts, match="is not below n²"):
        ours.public.check([theirs.public.n**2 - 1])
    for ciphertext in strange:
        if ciphertext < ours.public.n**2:
            assert packing.unpack(ours.decrypt([ciphertext])).tags != [12345]


def test_threads_share_a_key() -> None:
    """All of them meet at the point at which the table is built."""
    public = PublicKey.from_bytes(pair(number=2).public.to_bytes(), simulation=True)
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda thread: public.encrypt(range(thread, thread + 20), secure()), range(32)))
    assert [pair(number=2).decrypt(run) for run in runs] == [list(range(start, start + 20)) for start in range(32)]


def test_equal_keys_share_one_table() -> None:
    data = pair().public.to_bytes()
    one, other = (PublicKey.from_bytes(data, simulation=True) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one._powers is other._powers
    assert pair(number=1).public._powers is not one._powers


def test_a_key_travels_without_its_table() -> None:
    public = pair().public
    public.prepare()
    sent = pickle.dumps(public)
    assert len(sent) < 1000
    assert pickle.loads(sent) == public  # noqa: S301  # our own bytes


def test_a_key_prints_its_id_and_not_its_numbers() -> None:
    public = pair().public
    assert repr(public) == f"PublicKey(1024 bits, id {public.key_id.hex()[:16]}…)"


def test_lengths_for_simulation_are_accepted_by_name_only() -> None:
    for bits in (1024, 2048):
        public = pair(bits).public
        with pytest.raises(ValueError, match=f"n must have 3072 or 4096 bits: got {bits}"):
            PublicKey(public.n, public.base)
    assert PublicKey(pair(3072).public.n, pair(3072).public.base).bits == 3072


def test_other_lengths_are_never_accepted() -> None:
    n = int(gmpy2.next_prime(mpz(2) ** 1032)) * int(gmpy2.next_prime(mpz(3) << 1031))
    with pytest.raises(ValueError, match="n must have 1024, 2048, 3072 or 4096 bits"):
        PublicKey(n, 4, simulation=True)


@pytest.mark.parametrize("n", [-1, 0, 1, 2, -(2**3071) - 3])
def test_numbers_that_are_no_modulus(n: int) -> None:
    with pytest.raises(ValueError, match="n must "):
        PublicKey(n, 4)
