import dataclasses
import json
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reticent.privacy import Counter, Query
from reticent.privacy._cost import Noise
from reticent.privacy._fitting import Norms
from reticent.privacy._query import FORMAT
from reticent.privacy.mechanisms import NoiseKind
from reticent.privacy.mechanisms.gaussian import fixed_point_delta, gaussian_delta, sequence_sigma
from reticent.privacy.mechanisms.skellam import skellam_variance
from reticent.randomness import seeded

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "query.json").read_text(encoding="utf-8"))
FIELDS: dict[str, Any] = VECTORS["queries"][0]["fields"]

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def make_query(**changes: Any) -> Query:
    """The first query of the vectors, but for what is changed."""
    fields = {**FIELDS, **changes}
    return Query(**{**fields, "counters": [Counter(*counter) for counter in fields["counters"]]})


@st.composite
def queries(draw: st.DrawFn, noise: NoiseKind | None = None) -> Query:
    """Queries of all kinds whose parts fit each other."""
    low, high = st.integers(-1000, 0), st.integers(0, 1000)
    scales = st.integers(1, 3)  # more would not fit 64 bits with the finest grid
    bounds = draw(st.lists(st.tuples(low, high).filter(lambda pair: pair[0] < pair[1]), min_size=1, max_size=6))
    labels = draw(st.lists(names, min_size=len(bounds), max_size=len(bounds), unique=True))
    kind = noise or draw(st.sampled_from(["skellam", "gaussian"]))
    l2_squared = draw(st.integers(1, 10_000))
    least, most = math.isqrt(l2_squared - 1) + 1, math.isqrt(len(bounds) * l2_squared)
    l1 = draw(st.integers(least, max(least, min(most, l2_squared) if kind == "skellam" else most)))
    cohorts = draw(st.integers(1, 20))
    size = draw(st.integers(2, 10_000))
    min_contributions = draw(st.integers(2, size))
    return Query(
        id=draw(names),
        counters=[Counter(label, *pair, scale=draw(scales)) for label, pair in zip(labels, bounds, strict=True)],
        epsilon=draw(st.floats(0.1, 10)),  # at less the noise of few phones is more than they can draw
        delta=draw(st.floats(1e-12, 0.1)),
        l2_squared=l2_squared,
        l1=l1,
        noise=cast("NoiseKind", kind),
        fraction_bits=0 if kind == "skellam" else draw(st.integers(14, 18)),
        population=size * cohorts + draw(st.integers(0, cohorts - 1)),
        cohorts=cohorts,
        min_contributions=min_contributions,
        liars=draw(st.integers(0, min_contributions - 2)),
        key_id=draw(names),
        closes_after=draw(st.integers(1, 10**6)),
        enough=draw(st.none() | st.integers(min_contributions, size)),
        sequence=draw(st.none() | names),
    )


# Bytes.


@pytest.mark.parametrize("vector", VECTORS["queries"], ids=lambda vector: ascii(vector["fields"]["id"]))
def test_the_bytes_of_a_query_never_change(vector: dict[str, Any]) -> None:
    ours = make_query(**vector["fields"])
    assert ours.to_bytes().hex() == vector["bytes"]
    assert ours.digest.hex() == vector["digest"]
    assert Query.from_bytes(bytes.fromhex(vector["bytes"])) == ours


@pytest.mark.parametrize("vector", VECTORS["refused_bytes"], ids=lambda vector: vector["what"])
def test_bytes_that_are_no_query_are_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=vector["why"]):
        Query.from_bytes(bytes.fromhex(vector["bytes"]))


@given(queries())
def test_a_query_comes_back_from_its_bytes_as_it_was(original: Query) -> None:
    again = Query.from_bytes(original.to_bytes())
    assert again == original
    assert again.digest == original.digest


def test_the_bytes_of_many_counters_take_time_in_proportion() -> None:
    """Tens of thousands of counters of one level took minutes, when each looked at all others."""
    counters = [Counter(f"{number}", 0, 1) for number in range(20_000)]
    many = make_query(counters=counters, l1=2, l2_squared=2)
    begun = time.process_time()
    many.to_bytes()
    assert time.process_time() - begun < 0.5


@given(queries(), queries())
def test_different_queries_have_different_bytes(one: Query, other: Query) -> None:
    assert (one.to_bytes() == other.to_bytes()) == (one == other)
    assert (one.digest == other.digest) == (one == other)


@given(queries(), st.data())
def test_bytes_that_are_damaged_are_another_query_or_none(original: Query, data: st.DataObject) -> None:
    content = bytearray(original.to_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        damaged = Query.from_bytes(bytes(content))
    except ValueError:
        return
    assert damaged != original
    assert damaged.to_bytes() == bytes(content)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_query_or_one_value_error(content: bytes) -> None:
    for candidate in (content, FORMAT + content):
        try:
            assert Query.from_bytes(candidate).to_bytes() == candidate
        except ValueError:
            continue


CHANGES: dict[str, Any] = {
    "id": "gyms",
    "counters": [("visits", 0, 3), ("hours", 0, 24)],
    "epsilon": math.nextafter(1.0, 2),
    "delta": 2e-6,
    "l2_squared": 17,
    "l1": 6,
    "noise": "skellam",
    "fraction_bits": 1,
    "population": 10_001,
    "cohorts": 2,
    "min_contributions": 6,
    "liars": 2,
    "sequence": "levels",
    "key_id": "k2",
    "closes_after": 3601,
    "enough": 5_000,
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Query)])
def test_every_field_is_in_the_bytes(field: str) -> None:
    base = make_query(
        counters=[("visits", 0, 2), ("hours", 0, 24)],
        noise="gaussian",
        l2_squared=16,
        l1=5,
        min_contributions=5,
        liars=3,
    )
    changed = dataclasses.replace(base, **{field: CHANGES[field]})
    assert changed != base
    assert changed.to_bytes() != base.to_bytes()
    assert changed.digest != base.digest


# Parts that do not fit each other.


@pytest.mark.parametrize("vector", VECTORS["refused_fields"], ids=lambda vector: ascii(vector["change"]))
def test_what_does_not_fit_is_refused_with_a_sentence(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=vector["why"]):
        make_query(**vector["change"])


EDGES = [
    ({"noise": "skellam", "counters": [("a", 0, 1)], "l2_squared": 1, "l1": 1}, 2.0**-39, 2.0**31),
    ({"noise": "gaussian", "fraction_bits": 10}, 2.0**-16, 2.0**60),
]


@pytest.mark.parametrize(("changes", "least", "most"), EDGES)
def test_a_query_is_refused_exactly_where_phones_cannot_draw_their_noise(
    changes: dict[str, Any], least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a query says, its phones can do: at the edges, and not beyond."""
    for share, fits in [(least, True), (most, True), (least * 0.99, False), (most * 1.01, False)]:
        monkeypatch.setattr(Query, "variance", share * (FIELDS["min_contributions"] - FIELDS["liars"] - 1))
        if fits:
            assert make_query(**changes).share(seeded(1)).shape == (1,)
        else:
            with pytest.raises(ValueError, match=r"each phone would add|shares of deviation"):
                make_query(**changes)


def test_metres_of_a_hundred_phones_are_refused_and_kilometres_are_not() -> None:
    few = {"population": 100, "min_contributions": 80, "liars": 0}
    for high, noise, fits in [(100_000, "skellam", False), (100, "skellam", True), (100_000, "gaussian", True)]:
        changes = {"counters": [("walked", 0, high)], "l2_squared": high**2, "l1": high, "noise": noise, **few}
        if fits:
            make_query(**changes).share(seeded(1))
        else:
            with pytest.raises(ValueError, match="count in larger steps, ask more phones, or take noise = 'gaussian'"):
                make_query(**changes)


def test_a_query_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_query().epsilon = 2.0  # type: ignore[misc]


# What follows from a query.


def test_the_shares_of_the_fewest_honest_phones_are_enough_for_one_who_knows_its_own() -> None:
    ours = make_query(noise="gaussian", fraction_bits=10)
    assert ours.share_variance * (ours.min_contributions - ours.liars - 1) == pytest.approx(ours.variance)
    assert fixed_point_delta(math.sqrt(ours.variance), ours.epsilon, 2.0, l1=2, fraction_bits=10) <= ours.delta
    assert gaussian_delta(math.sqrt(ours.variance * 0.99), ours.epsilon, 2.0) > ours.delta


def test_skellam_noise_is_no_less_than_gaussian() -> None:
    assert make_query().variance > make_query(noise="gaussian", fraction_bits=10).variance


def test_a_query_costs_what_it_says_and_says_its_noise() -> None:
    ours = make_query()
    assert (ours.cost.epsilon, ours.cost.delta) == (ours.epsilon, ours.delta)
    assert ours.cost.noise == Noise("skellam", ours.variance, 2.0, 2.0)


@given(queries())
def test_cohorts_differ_by_one_phone_at_most(ours: Query) -> None:
    sizes = ours.cohort_populations
    assert sum(sizes) == ours.population
    assert len(sizes) == ours.cohorts
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= ours.min_contributions


# What a phone contributes.


@pytest.mark.parametrize("vector", VECTORS["contributions"], ids=lambda vector: str(vector["values"]))
def test_contributions_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    assert make_query(**vector["query"]).fit(vector["values"]).tolist() == vector["steps"]


@pytest.mark.parametrize("vector", VECTORS["refused_contributions"], ids=lambda vector: str(vector["values"]))
def test_what_is_no_contribution_is_refused(vector: dict[str, Any]) -> None:
    values = vector["values"]
    if isinstance(values, list):
        values = [float(value) for value in values]
    with pytest.raises(ValueError, match=r"from each phone: got|takes finite numbers: got"):
        make_query(**vector["query"]).fit(values)


@pytest.mark.parametrize("values", [["1"], [None], [1j], [10**400], [[1], [1, 2]], [b"1"]])
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises(ValueError, match=r"from each phone: got|inhomogeneous shape"):
        make_query().fit(values)


def _within(ours: Query, steps: np.ndarray) -> bool:
    """Whether a contribution keeps all bounds, in exact arithmetic and in real units."""
    values = [int(step) * Fraction(1, 2**ours.fraction_bits) for step in steps]
    bounds = (counter.scaled for counter in ours.counters)
    inside = all(low <= value <= high for (low, high), value in zip(bounds, values, strict=True))
    return inside and sum(map(abs, values)) <= ours.l1 and sum(value**2 for value in values) <= ours.l2_squared


def _scales(ours: Query) -> np.ndarray:
    return np.array([counter.scale for counter in ours.counters])


@given(queries(), st.data())
def test_a_contribution_keeps_every_bound_after_rounding(ours: Query, data: st.DataObject) -> None:
    numbers = st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1100, 1100) | st.integers(-(2**60), 2**60)
    values = data.draw(st.lists(numbers, min_size=ours.size, max_size=ours.size))
    steps = ours.fit(values)
    assert steps.dtype == np.int64
    assert _within(ours, steps)
    assert np.array_equal(ours.fit(steps * ours.unit / _scales(ours)), steps)  # what fits is left alone
    assert all(step * value >= 0 for step, value in zip(steps.tolist(), values, strict=True))


@given(queries(), st.data())
def test_a_contribution_that_fits_is_only_rounded(ours: Query, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(-3, 3), min_size=ours.size, max_size=ours.size))
    rounded = np.rint(np.array(values) * _scales(ours) / ours.unit)
    assume(_within(ours, rounded))
    assert np.array_equal(ours.fit(values), rounded)


@given(queries(), st.data())
def test_a_contribution_is_scaled_down_no_further_than_it_must(ours: Query, data: st.DataObject) -> None:
    """What does not fit keeps its direction but for a step in each counter, and one more step would be too much."""
    values = np.array(data.draw(st.lists(st.floats(-1000, 1000), min_size=ours.size, max_size=ours.size)))
    low, high, scale = np.array([counter[1:] for counter in ours.counters], dtype=np.float64).T
    clipped = np.rint(np.clip(values, low, high) * scale / ours.unit)
    assume(not _within(ours, clipped))
    steps = ours.fit(values)
    sizes = np.abs(clipped)
    to_l1 = ours.l1 / ours.unit / sizes.sum()
    to_l2 = math.sqrt(ours.l2_squared) / ours.unit / math.sqrt(float(np.square(sizes).sum()))
    assert np.abs(np.abs(steps) - sizes * min(to_l1, to_l2)).max() < 1 + 1e-6
    first = int(np.argmax(sizes * min(to_l1, to_l2) - np.abs(steps)))
    steps[first] += int(np.sign(clipped[first]))
    left_over = sizes[first] * min(to_l1, to_l2) - np.abs(steps[first])
    assert left_over < 1e-6 or not _within(ours, steps)


@given(queries(), st.integers(0, 5), st.data())
def test_many_phones_at_once_are_each_as_on_their_own(ours: Query, rows: int, data: st.DataObject) -> None:
    values = data.draw(arrays.arrays(np.float64, (rows, ours.size), elements=st.floats(-2000, 2000)))
    assert ours.fit(values).tolist() == [ours.fit(row).tolist() for row in values]
    given_before = values.copy()
    ours.fit(values)
    assert np.array_equal(values, given_before)


def test_a_step_too_many_does_not_silence_a_phone() -> None:
    """Scaling 17 ones to 16 and cutting off would leave none of them."""
    ours = make_query(counters=[(f"c{number}", 0, 1) for number in range(64)], l2_squared=16, l1=16)
    assert ours.fit([1] * 17 + [0] * 47).tolist() == [1] * 16 + [0] * 48


@pytest.mark.parametrize("largest", [2**29, 2**29 + 1, 2**30 - 3])
def test_bounds_hold_where_floats_round(largest: int) -> None:
    """The root of one less than a square is that number again, as a float."""
    assert math.sqrt(largest**2 - 1) == largest
    ours = make_query(
        counters=[("a", 0, 2**30)], l2_squared=largest**2 - 1, l1=largest, noise="gaussian", fraction_bits=0
    )
    assert ours.fit([2**30]).tolist() == [largest - 1]


# Sequences.


@given(queries(), st.data())
def test_what_one_user_adds_to_a_sequence_stays_within_its_bounds(one: Query, data: st.DataObject) -> None:
    query = dataclasses.replace(one, sequence="levels")
    used = Norms(0, 0)
    for _ in range(data.draw(st.integers(1, 6))):
        values = data.draw(st.lists(st.floats(-2000, 2000), min_size=query.size, max_size=query.size))
        steps = query.fit(values, used=used)
        if used == Norms(0, 0):
            assert steps.tolist() == query.fit(values).tolist()
        used += Norms.of(steps)
        assert used.l1 <= query.l1 << query.fraction_bits
        assert used.l2_squared <= query.l2_squared << 2 * query.fraction_bits


def test_many_phones_of_a_sequence_are_fitted_at_once() -> None:
    query = make_query(counters=[("a", 0, 2), ("b", 0, 2)], l2_squared=4, l1=4, sequence="levels")
    used = np.array([0, 2, 4]), np.array([0, 2, 4])
    assert query.fit([[1, 1], [2, 1], [1, 1]], used=used).tolist() == [[1, 1], [1, 1], [0, 0]]


def test_a_sequence_costs_once_and_no_query_can_take_its_account() -> None:
    one, other = (make_query(id=name, sequence="levels") for name in ("one", "two"))
    assert one.account == other.account == "sequence levels"
    assert make_query(id="one").account == "one"
    with pytest.raises(ValueError, match="ids that begin with 'sequence ' are those of sequences"):
        make_query(id="sequence levels")


def test_a_sequence_has_the_noise_that_it_needs_together() -> None:
    gaussian = make_query(noise="gaussian", fraction_bits=16, l2_squared=16, l1=16, sequence="levels")
    assert gaussian.variance == sequence_sigma(gaussian.epsilon, gaussian.delta, 4) ** 2
    whole = make_query(l2_squared=16, l1=16, sequence="levels")
    assert whole.variance == skellam_variance(whole.epsilon, whole.delta, 4, l1=16)
