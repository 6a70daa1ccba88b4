import numpy as np
import pytest
from scipy import special, stats

from reticent.paillier import Packing
from reticent.randomness import seeded
from tests.parties.key_pairs import pair

FALSE_ALARM = 1e-6  # per test, of a right sum; on a fixed stream, so that each passes always or never
PHONES = 20
COUNTERS = 4000
VARIANCE = 30.0  # of a sum's noise
NUMBER = 2  # of ones that the phones put into each counter


def _decrypted_noise(scale: float) -> list[int]:
    """What decryption leaves of the noise when every phone's share has `scale` times the variance that it should."""
    packing = Packing(
        [(0, 1)] * COUNTERS, contributors=PHONES, share_variance=VARIANCE / PHONES, cohorts=1, key_bits=1024
    )
    public, rng = pair().public, seeded("noise", 1)
    mean = scale * VARIANCE / PHONES / 2
    contributions = []
    for phone in range(PHONES):
        noise = rng.poisson(mean, COUNTERS) - rng.poisson(mean, COUNTERS)
        values = noise + (phone < NUMBER)
        contributions.append(public.encrypt(packing.pack(values.tolist(), [phone] * packing.plaintexts), rng))
    totals = [public.add(list(column)) for column in zip(*contributions, strict=True)]
    return [counter - NUMBER for counter in packing.unpack(pair().decrypt(totals)).counters]


def _fits(noise: list[int]) -> bool:
    """Chi-square of the sums against the exact Skellam distribution of the promised variance."""
    edge = int(2 * VARIANCE**0.5)
    inner = np.arange(-edge, edge + 1)
    mass = special.ive(inner, VARIANCE)
    tail = (1 - mass.sum()) / 2
    expected = COUNTERS * np.array([tail, *mass, tail])
    places = np.clip(noise, -edge - 1, edge + 1) + edge + 1
    observed = np.bincount(places, minlength=expected.size)
    return bool(stats.chisquare(observed, expected).pvalue > FALSE_ALARM)


def test_decrypted_sums_carry_the_noise_that_was_put_in() -> None:
    assert _fits(_decrypted_noise(1.0))


@pytest.mark.parametrize("scale", [0.7, 1.3])
def test_noise_of_another_variance_is_told_from_it(scale: float) -> None:
    assert not _fits(_decrypted_noise(scale))
