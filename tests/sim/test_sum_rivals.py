"""Shi et al. and Rastogi & Nath: real sums with the promised noise, and none if somebody is absent."""

import math
from collections.abc import Callable, Sequence

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import PaillierPrivateKey, PaillierPublicKey

from reticent.randomness import seeded
from reticent_sim.rivals import rastogi_nath, shi
from reticent_sim.rivals.errors import CannotDecrypt
from reticent_sim.rivals.phases import RASTOGI_NATH, SHI, Protocol, law

SMALL = shi.PrimeOrderGroup(2**64 - 1469, 4)
"""A group that is fast and not secure."""
BITS = 64
"""A length of n that is fast and not secure."""


def test_the_groups_have_prime_order() -> None:
    for group in (SMALL, shi.RFC_3526):
        assert gmpy2.is_prime(group.prime, 5)
        assert gmpy2.is_prime(group.order, 5)
        assert gmpy2.powmod(group.generator, group.order, group.prime) == 1
        assert gmpy2.powmod(group.hashed(7), group.order, group.prime) == 1
        assert group.hashed(7) != group.hashed(8)
    assert shi.RFC_3526.prime.bit_length() == 2048


@given(st.integers(0, 300), st.data())
@settings(max_examples=30, deadline=None)
def test_a_small_logarithm_is_found_and_no_other(bound: int, data: st.DataObject) -> None:
    x = data.draw(st.integers(-bound - 3, bound + 3))
    element = int(gmpy2.powmod(SMALL.generator, x, SMALL.prime))
    assert SMALL.logarithm(element, bound) == (x if abs(x) <= bound else None)


@pytest.mark.parametrize("group", [SMALL, shi.RFC_3526], ids=["small", "RFC 3526"])
def test_shi_sums_what_all_parties_send(group: shi.PrimeOrderGroup) -> None:
    rng = seeded(1, "shi")
    values = [int(value) for value in rng.integers(-50, 50, size=20)]
    keys = shi.deal(group, 20, rng)
    sent: list[int] = []
    assert (sum(keys.parties) + keys.aggregator) % group.order == 0
    for period in range(2):
        sent = [shi.encrypt(group, key, period, value) for key, value in zip(keys.parties, values, strict=True)]
        assert shi.decrypt(group, keys.aggregator, period, sent, 1000) == sum(values)
    assert len(set(sent)) == 20  # equal values of different parties differ
    for failing in (sent[1:], [*sent, sent[0]], [*sent[1:], sent[1]]):
        with pytest.raises(CannotDecrypt, match="a party is absent"):
            shi.decrypt(group, keys.aggregator, 1, failing, 1000)
    with pytest.raises(CannotDecrypt, match="out of range"):
        shi.decrypt(group, keys.aggregator, 1, sent, abs(sum(values)) - 1)
    with pytest.raises(CannotDecrypt):
        shi.decrypt(group, keys.aggregator, 0, sent, 1000)  # of another period
    with pytest.raises(CannotDecrypt):
        shi.decrypt(group, 0, 1, sent, 1000)  # by somebody without the aggregator's key


def variance_is(found: Sequence[float], promised: float) -> None:
    """Whether a sample has a mean of 0 and its variance; one that is 30 % off has not."""
    assert abs(np.mean(found)) < 4 * math.sqrt(promised / len(found))
    assert promised / 1.15 < np.var(found) < promised * 1.15


@pytest.mark.parametrize("noise", [shi.GeometricNoise(0.5, 0.01, 20), shi.GeometricNoise(1.0, 0.1, 4, honest=0.5)])
def test_shi_adds_noise_of_the_promised_variance(noise: shi.GeometricNoise) -> None:
    rng = seeded(2, "noise", noise.parties)
    found = [sum(noise.draw(rng) for _ in range(noise.parties)) for _ in range(6000)]
    variance_is(found, noise.variance)


def test_somebody_honest_adds_noise_but_with_probability_delta() -> None:
    """With beta, and with geometric probabilities whose ratio is exp(epsilon)."""
    noise = shi.GeometricNoise(epsilon=1.0, delta=0.01, parties=1000, honest=0.5)
    assert (1 - noise.beta) ** 500 == pytest.approx(0.01, rel=0.05)
    always = shi.GeometricNoise(epsilon=1.0, delta=0.01, parties=1)
    assert always.beta == 1
    rng = seeded(3)
    drawn = [always.draw(rng) for _ in range(4000)]
    one, two = (sum(abs(value) == size for value in drawn) for size in (1, 2))
    assert one / two == pytest.approx(math.e, rel=0.15)
    assert drawn.count(0) / 4000 == pytest.approx((math.e - 1) / (math.e + 1), rel=0.08)


def parts_of(parties: Sequence[rastogi_nath.Party], values: Sequence[int], scale: float) -> list[int]:
    """Both rounds: the partial decryptions of all parties."""
    key = parties[0].key
    sums = [
        rastogi_nath.product(key, parts)
        for parts in zip(*(party.noise(scale, len(parties)) for party in parties), strict=True)
    ]
    sent = [party.value(value, sums) for party, value in zip(parties, values, strict=True)]
    total = rastogi_nath.product(key, sent)
    return [party.partial_decryption(total) for party in parties]


@pytest.mark.parametrize("count", [1, 2, 20])
def test_rastogi_and_nath_sum_what_all_parties_send(count: int) -> None:
    rng = seeded(4, count)
    parties = rastogi_nath.deal(count, 256, rng)
    values = [int(value) for value in rng.integers(-50, 50, size=count)]
    parts = parts_of(parties, values, scale=1e-9)
    key = parties[0].key
    assert rastogi_nath.decrypt(key, parts) == pytest.approx(sum(values), abs=1e-3)
    for absent in range(count):
        with pytest.raises(CannotDecrypt, match="ask the absent party for it again"):
            rastogi_nath.decrypt(key, parts[:absent] + parts[absent + 1 :])


def test_a_party_decrypts_only_what_it_took_part_in() -> None:
    """The parties take their blindings off the sum alone: one value does not decrypt to anything near it."""
    parties = rastogi_nath.deal(3, BITS, seeded(5))
    with pytest.raises(ValueError, match="this party has sent no value"):
        parties[0].partial_decryption(1)
    sums = [1] * 4
    sent = [party.value(1, sums) if party.noise(1e-9, 3) else 0 for party in parties]
    key = parties[0].key
    opened = rastogi_nath.decrypt(key, [party.partial_decryption(sent[0]) for party in parties])
    assert abs(opened) > 1e6


def test_the_ciphertexts_are_paillier_s() -> None:
    """With the usual generator, another implementation decrypts them."""
    p, q = 2**61 - 1, 2**89 - 1
    key = rastogi_nath.SharedKey(p * q, p * q + 1, 0)
    reference = PaillierPrivateKey(PaillierPublicKey(p * q), p, q)
    rng = seeded(6)
    total = rastogi_nath.product(key, [int(key.encrypt(value, rng)) for value in (20, 22)])
    assert reference.raw_decrypt(total) == 42


def test_rastogi_and_nath_s_noise_is_laplace_s() -> None:
    """Its variance is 2b², and its mean absolute value b, which a normal variable's is not."""
    parties = rastogi_nath.deal(2, BITS, seeded(7))
    key, scale = parties[0].key, 10.0
    found = [rastogi_nath.decrypt(key, parts_of(parties, [1, 1], scale)) - 2 for _ in range(2000)]
    variance_is(found, 2 * scale**2)
    assert np.mean(np.abs(found)) == pytest.approx(scale, rel=0.08)


def shi_attempt(users: int, absent: float, rng: np.random.Generator) -> tuple[int, bool]:
    """One attempt: its phases, and whether there is a sum."""
    members = rng.binomial(users, 1 - absent)
    keys = shi.deal(SMALL, members, rng)
    sent = [shi.encrypt(SMALL, key, 1, 1) for key in keys.parties if rng.random() >= absent]
    try:
        return 2, shi.decrypt(SMALL, keys.aggregator, 1, sent, users) == members
    except CannotDecrypt:
        return 2, False


def rastogi_nath_attempt(users: int, absent: float, rng: np.random.Generator) -> tuple[int, bool]:
    """One attempt, which ends where somebody is absent; in the last phase, that shows in the decryption."""
    members = rng.binomial(users, 1 - absent)
    parties = rastogi_nath.deal(members, 64, rng)
    for phase in (2, 3):
        if (rng.random(members) < absent).any():
            return phase, False
    parts = [part for part in parts_of(parties, [1] * members, 1e-6) if rng.random() >= absent]
    try:
        return 4, round(rastogi_nath.decrypt(parties[0].key, parts)) == members
    except CannotDecrypt:
        return 4, False


@pytest.mark.parametrize(
    ("protocol", "attempt", "queries"),
    [(SHI, shi_attempt, 800), pytest.param(RASTOGI_NATH, rastogi_nath_attempt, 800, marks=pytest.mark.slow)],
    ids=["Shi", "Rastogi-Nath"],
)
def test_queries_of_the_protocols_themselves_take_the_phases_of_the_closed_form(
    protocol: Protocol, attempt: Callable[..., tuple[int, bool]], queries: int
) -> None:
    rng = seeded(8)
    found = []
    for _ in range(queries):
        phases, succeeded = attempt(8, 0.1, rng)
        while not succeeded:
            more, succeeded = attempt(8, 0.1, rng)
            phases += more
        found.append(phases)
    exact = law(protocol, 8, 0.1)
    assert abs(np.mean(found) - exact.mean) < 3 * math.sqrt(exact.variance / queries)
    assert exact.variance / 1.3 < np.var(found) < exact.variance * 1.3
