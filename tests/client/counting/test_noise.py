"""The noise of many phones has the variance that the query promises, and the test would see if it had not."""

import math
from pathlib import Path

import numpy as np
import pytest

from reticent.privacy import Counter, Query, gaussian_share, skellam_share
from reticent.randomness import seeded
from tests.client.counting.world import device, query

PHONES, COUNTERS = 40, 100
FALSE_ALARM = 1e-6  # for each of the tests that accept, were they not seeded
DEVIATIONS = 4.8916  # of a normal variable, beyond which it lies with that probability, on either side


def _query(noise: str, number: int) -> Query:
    counters = [Counter(f"c{k}", 0, 1) for k in range(COUNTERS)]
    bits = 0 if noise == "skellam" else 6
    return query(id=f"q{number}", counters=counters, noise=noise, fraction_bits=bits, l1=2, l2_squared=2)


def _looks_right(shares: np.ndarray, variance: float, noise: str) -> bool:
    """Whether the second moment is that of shares of this variance.

    The fourth moment is 3 v² for Gaussian shares, and v more for Skellam ones.
    """
    moment = float(np.mean(np.square(shares.astype(float))))
    fourth = 3 * variance**2 + (variance if noise == "skellam" else 0.0)
    return abs(moment - variance) <= DEVIATIONS * math.sqrt((fourth - variance**2) / shares.size)


def _drawn(folder: Path, noise: str) -> tuple[np.ndarray, float]:
    """The shares of many phones, as they come out of their ciphertexts, in steps of the grid."""
    with device(folder, counted={"c0": 1}, rng=seeded(11, "noise", noise)) as phone:
        rows = []
        for number in range(PHONES):
            example = _query(noise, number)
            phone.limit = example.cost
            phone.begin()
            counters, _ = phone.servers.open(example, phone.ask(example))
            rows.append(np.array(counters) - example.fit([1] + [0] * (COUNTERS - 1)))
            with phone.store.transaction() as run:  # the next phone
                run("DELETE FROM contributions")
                run("DELETE FROM entries")
    first = _query(noise, 0)
    return np.array(rows), first.share_variance * 4.0**first.fraction_bits


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
def test_the_shares_of_many_phones_have_their_variance(tmp_path: Path, noise: str) -> None:
    shares, variance = _drawn(tmp_path, noise)
    assert shares.size == PHONES * COUNTERS
    assert _looks_right(shares, variance, noise)
    off = abs(float(shares.mean()))
    assert off <= DEVIATIONS * math.sqrt(variance / shares.size)


@pytest.mark.parametrize("noise", ["skellam", "gaussian"])
@pytest.mark.parametrize("deviation", [0.7, 1.3])
def test_noise_that_is_30_percent_off_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str, deviation: float
) -> None:
    def wrong(query: Query, rng: np.random.Generator) -> list[int]:
        variance = query.share_variance * deviation**2
        if query.noise == "skellam":
            return [int(each) for each in skellam_share(variance, query.size, rng)]
        return [int(each) for each in gaussian_share(variance, query.size, rng, query.fraction_bits)]

    monkeypatch.setattr(Query, "share", wrong)
    shares, variance = _drawn(tmp_path, noise)
    assert not _looks_right(shares, variance, noise)
