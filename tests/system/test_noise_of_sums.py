"""The noise in sums that were decrypted: phones draw it, and both servers add, decrypt and release it.

Each check rejects the right noise once in 10^6. Where noise is wrong, there are enough releases that both checks
reject a deviation 30 % off on either side: they miss it less than once in 10^5. What is drawn comes from seeds, so
that each passes always or never.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from reticent.paillier import PublicKey
from reticent.privacy import Cost, Counter, Mechanism, Query, mechanism_of
from reticent.protocol import plaintext_count
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_client import Participant, Participation, PhoneStore
from tests.parties.aggregation import requests
from tests.parties.decision_requests import decide, sums
from tests.parties.key_server import LocalKeyServer

FALSE_ALARM = 1e-6
PHONES, RELEASES, COUNTERS = 500, 10, 64
FEWER = 40  # phones, where noise is wrong: it is a sum's noise that is looked at, whatever it is the sum of
MORE = 20  # releases, where noise is wrong: with these the bins see it as surely as the squares do
BINS = 20
BATCH = 250
WRONG = [0.7, 1.3]  # times the deviation

Noise = npt.NDArray[np.float64]


@dataclass
class Person:
    """A phone and its user, who is in one counter."""

    participant: Participant
    store: PhoneStore


def query(local: LocalKeyServer, number: int, phones: int, noise: str) -> Query:
    """One of the questions: their counters fit one plaintext."""
    return Query(
        id=f"release {number}",
        counters=[Counter(f"{each}", 0, 1) for each in range(COUNTERS)],
        epsilon=1.0,
        delta=1e-6,
        l2_squared=1,
        l1=1,
        noise=noise,  # type: ignore[arg-type]  # one of the two
        fraction_bits=0 if noise == "skellam" else 8,
        population=phones,
        cohorts=1,
        min_contributions=phones * 3 // 4,
        liars=phones // 20,
        key_id=local.key.key_id.hex(),
        closes_after=3600,
    )


def person(local: LocalKeyServer, number: int, token: bytes) -> Person:
    """A phone that has joined."""
    store = PhoneStore()
    participant = Participant(
        store,
        Cost(2.0 * MORE, 1e-4),
        rng=seeded("noise of sums", number),
        now=local.clock.now,
        policy=Participation(min_honest=2, min_liars_share=0.0),
        counters=lambda _: {f"{number % COUNTERS}": 1.0},
        simulation=True,
    )
    asked = participant.enrolment.join(Invitation(token, local.server.identity, "", "localhost:1", "localhost:2"))
    participant.enrolment.joined(local.server.members.join(asked))
    return Person(participant, store)


@contextlib.contextmanager
def people(local: LocalKeyServer, count: int) -> Iterator[list[Person]]:
    """Phones that have joined, closed in the end."""
    there: list[Person] = []
    try:
        for number, token in enumerate(local.tokens(count)):
            there.append(person(local, number, token))
        yield there
    finally:
        for each in there:
            each.store.close()


def answered(aggregation: AggregationServer, asked: Query, phone: Participant, key: PublicKey) -> wire.Contribution:
    """What a phone says to the one query that it is asked."""
    member = phone.enrolment.current
    assert member is not None
    [announcement] = aggregation.replies.announcements(wire.AnnouncementsRequest(phone=member.phone)).announcements
    return phone.contribute(announcement, asked.to_bytes(), key.to_bytes())


def batched(said: Sequence[wire.Contribution]) -> list[Sequence[wire.Contribution]]:
    """What is taken in together."""
    return [said[start : start + BATCH] for start in range(0, len(said), BATCH)]


def released(
    aggregation: AggregationServer, local: LocalKeyServer, asked: Query, phones: Sequence[Person], key: PublicKey
) -> list[int]:
    """One query from its announcement to its decision: the sums that come out."""
    aggregation.queries.learn(local.server.terms())
    aggregation.queries.announce(asked.to_bytes())
    aggregation.queries.countersign(asked, local.server.dealer.countersign(asked.to_bytes()))
    said = [answered(aggregation, asked, phone.participant, key) for phone in phones]
    outcomes = [each for batch in batched(said) for each in aggregation.collection.contribute(batch)]
    assert all(isinstance(each, wire.Acknowledgement) for each in outcomes)
    assert aggregation.closing.close_due() == [asked.id]
    [head] = requests(aggregation)
    receipts = (each for message in aggregation.closing.messages(head) for each in message.receipts.receipts)
    decision = decide(local.server, head, receipts)
    aggregation.closing.decide(decision)
    assert (decision.outcome, decision.contributors) == (wire.RELEASED, len(phones))
    return sums(decision)


def noise_of(kind: str, phones: int, releases: int) -> tuple[Noise, float]:
    """What releases have besides the true counters, in the counters' unit, and the variance that it must have."""
    local = LocalKeyServer()
    key = local.key
    aggregation = AggregationServer(
        SqlStore(None), identity=local.server.identity, now=local.clock.now, rng=seeded("disguise"), simulation=True
    )
    true = np.bincount(np.arange(phones) % COUNTERS, minlength=COUNTERS)
    found, variance = [], math.nan
    with contextlib.closing(local.server.journal), contextlib.closing(aggregation), people(local, phones) as there:
        for number in range(releases):
            asked = query(local, number, phones, kind)
            assert plaintext_count(asked, key.bits) == 1
            found.append(np.array(released(aggregation, local, asked, there, key)) * asked.unit - true)
            variance = phones * asked.share_variance
    return np.concatenate(found), variance


def squares_of_skellam(variance: float, count: int) -> tuple[float, float]:
    """Between what the sum of squares of so many Skellam variables lies, exactly, but once in 2 / FALSE_ALARM."""
    largest = math.ceil(12 * math.sqrt(variance) + 12)
    size = 1 << math.ceil(math.log2(3 * count * variance + largest**2))
    numbers = np.arange(-largest, largest + 1)
    one = np.bincount(numbers**2, stats.skellam.pmf(numbers, variance / 2, variance / 2), minlength=size)
    mass = np.fft.irfft(np.fft.rfft(one) ** count, size)
    assert abs(mass.sum() - 1) < 1e-9
    below = np.cumsum(mass)
    low, high = np.searchsorted(below, [FALSE_ALARM / 4, 1 - FALSE_ALARM / 4])
    return float(low), float(high)


def squares_of_normal(variance: float, count: int) -> tuple[float, float]:
    """The same of normal variables, from which those on a grid of many steps a deviation differ by less than 10^-30."""
    low, high = (float(stats.chi2.ppf(share, count)) for share in (FALSE_ALARM / 4, 1 - FALSE_ALARM / 4))
    return low * variance, high * variance


INTERVAL: dict[str, Callable[[float, int], tuple[float, float]]] = {
    "skellam": squares_of_skellam,
    "gaussian": squares_of_normal,
}


def has_variance(kind: str, noise: Noise, variance: float) -> bool:
    """Whether the squares add up to what they may. The right noise does not once in 2 / FALSE_ALARM."""
    low, high = INTERVAL[kind](variance, noise.size)
    return low <= float((noise**2).sum()) <= high


def has_distribution(kind: str, noise: Noise, variance: float) -> bool:
    """Chi-square against the exact distribution, in some twenty bins. As often wrong as the other."""
    law = stats.skellam(variance / 2, variance / 2) if kind == "skellam" else stats.norm(scale=math.sqrt(variance))
    edges = np.unique(law.ppf(np.arange(1, BINS) / BINS))
    observed = np.bincount(np.searchsorted(edges, noise), minlength=edges.size + 1)
    expected = noise.size * np.diff(law.cdf(edges), prepend=0.0, append=1.0)
    assert expected.min() > 5, expected
    return bool(stats.chisquare(observed, expected).pvalue > FALSE_ALARM / 2)


def scaled(mechanism: type[Mechanism], deviation: float) -> Callable[..., Any]:
    """A method `share` whose noise is off by this factor."""
    drawn = mechanism.share
    return lambda self, variance, *others: drawn(self, variance * deviation**2, *others)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "releases"), [("skellam", RELEASES), ("gaussian", 6)])
def test_what_five_hundred_phones_add_is_the_noise_that_the_query_says(kind: str, releases: int) -> None:
    noise, variance = noise_of(kind, PHONES, releases)
    assert noise.size == COUNTERS * releases
    assert has_variance(kind, noise, variance)
    assert has_distribution(kind, noise, variance)
    # The same numbers are no noise of another deviation.
    for factor in WRONG:
        assert not has_variance(kind, noise, variance / factor**2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["skellam", "gaussian"])
@pytest.mark.parametrize("factor", [1.0, *WRONG])
def test_noise_30_percent_off_is_seen_in_the_decrypted_sums(
    kind: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = type(mechanism_of(kind))
    monkeypatch.setattr(mechanism, "share", scaled(mechanism, factor))
    noise, variance = noise_of(kind, FEWER, MORE)
    right = factor == 1.0
    assert has_variance(kind, noise, variance) == right
    assert has_distribution(kind, noise, variance) == right


def test_the_interval_is_that_of_many_such_sums() -> None:
    """Of 4000 sums of squares a share lies beyond each quantile that is a matter of chance: outside once in 10^6."""
    variance, count = 9.0, 64
    rng = seeded("interval")
    drawn = rng.poisson(variance / 2, (4000, count)) - rng.poisson(variance / 2, (4000, count))
    low, high = squares_of_skellam(variance, count)
    total = (drawn**2).sum(1)
    assert low < total.min()
    assert total.max() < high
    middle = squares_of_normal(variance, count)
    assert low == pytest.approx(middle[0], rel=0.1)
    assert high == pytest.approx(middle[1], rel=0.1)
