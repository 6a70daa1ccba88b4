import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from reticent.paillier import TAG_BITS, Packing, tag
from reticent.paillier._packing import LN_2, OVERFLOW_BITS, noise_margin
from reticent.randomness import seeded
from tests.parties.key_pairs import pair

bounds = st.tuples(st.integers(-(10**6), 0), st.integers(0, 10**6))
parameters = st.fixed_dictionaries(
    {
        "bounds": st.lists(bounds, min_size=1, max_size=60),
        "contributors": st.integers(1, 10**7),
        "share_variance": st.floats(0, 1e6),
        "cohorts": st.integers(1, 500),
        "key_bits": st.sampled_from([1024, 2048, 3072]),
    }
)
tags = st.integers(0, 2**TAG_BITS - 1)


@given(parameters)
def test_slots_lie_side_by_side_below_the_tag(given_: dict[str, Any]) -> None:
    packing = Packing(**given_)
    ends = dict.fromkeys(range(packing.plaintexts), 0)
    for slot in packing.slots:
        assert slot.offset == ends[slot.plaintext]
        ends[slot.plaintext] += slot.width
    assert max(ends.values()) <= packing.tag_offset
    assert packing.tag_offset + packing.tag_bits == given_["key_bits"] - 2
    assert given_["contributors"] * (2**TAG_BITS - 1) < 2**packing.tag_bits


@given(parameters)
def test_a_slot_holds_what_honest_phones_add_up_to_and_wastes_no_bit(given_: dict[str, Any]) -> None:
    packing = Packing(**given_)
    slots = len(given_["bounds"]) * given_["cohorts"]
    margin = noise_margin(given_["share_variance"], given_["contributors"], slots)
    for slot, (least, most) in zip(packing.slots, given_["bounds"], strict=True):
        lowest, highest = given_["contributors"] * least - margin, given_["contributors"] * most + margin
        assert slot.lowest <= lowest
        assert highest <= slot.highest
        assert highest - lowest + 1 > 2 ** (slot.width - 1)


@given(parameters, st.data())
def test_sums_come_back_as_long_as_they_fit(given_: dict[str, Any], data: st.DataObject) -> None:
    """Each phone anywhere in its slot, and the sum anywhere in it as well: negative, zero, at the very ends."""
    packing = Packing(**given_)
    sums = [
        data.draw(st.sampled_from([slot.lowest, slot.highest, 0]) | st.integers(slot.lowest, slot.highest))
        for slot in packing.slots
    ]
    sums = [min(max(total, slot.lowest), slot.highest) for total, slot in zip(sums, packing.slots, strict=True)]
    first = [data.draw(st.integers(min(0, total), max(0, total))) for total in sums]
    first = [min(max(one, slot.lowest), slot.highest) for one, slot in zip(first, packing.slots, strict=True)]
    second = [total - one for total, one in zip(sums, first, strict=True)]
    halves = [[data.draw(tags) for _ in range(packing.plaintexts)] for _ in range(2)]
    packed = _packed(packing, first, halves[0])
    added = [one + other for one, other in zip(packed, _packed(packing, second, halves[1]), strict=True)]
    found = packing.unpack(added)
    assert found.counters == sums
    assert found.tags == [sum(both) for both in zip(*halves, strict=True)]


def _packed(packing: Packing, values: list[int], tags: list[int]) -> list[int]:
    """Slot by slot, as the definition has it: also for values that one phone could not send."""
    plaintexts = [each << packing.tag_offset for each in tags]
    for slot, value in zip(packing.slots, values, strict=True):
        plaintexts[slot.plaintext] += value * 2**slot.offset
    return plaintexts


@given(parameters, st.data())
def test_packing_is_by_definition(given_: dict[str, Any], data: st.DataObject) -> None:
    packing = Packing(**given_)
    values = [data.draw(st.integers(slot.lowest, slot.highest)) for slot in packing.slots]
    chosen = [data.draw(tags) for _ in range(packing.plaintexts)]
    packed = packing.pack(values, chosen)
    assert packed == _packed(packing, values, chosen)
    assert all(abs(2 * plaintext) < 2 ** (given_["key_bits"] - 1) for plaintext in packed)


@given(parameters, st.data())
def test_unpacking_never_fails(given_: dict[str, Any], data: st.DataObject) -> None:
    packing = Packing(**given_)
    anything = st.integers() | st.integers(-(2**3072), 2**3072)
    plaintexts = [data.draw(anything) for _ in range(packing.plaintexts)]
    found = packing.unpack(plaintexts)
    assert _packed(packing, found.counters, found.tags)[0] <= plaintexts[0]
    for slot, counter in zip(packing.slots, found.counters, strict=True):
        assert slot.lowest <= counter <= slot.highest
    assert [type(each) for each in found.tags] == [int] * packing.plaintexts


def exact(*widths: int) -> Packing:
    """A packing of one contribution, with slots of these widths."""
    margin = noise_margin(0.0, 1, len(widths))
    bounds_ = [(0, 2**width - 1 - 2 * margin) for width in widths]
    return Packing(bounds_, contributors=1, share_variance=0.0, cohorts=1, key_bits=1024)


def test_slots_may_fill_a_plaintext_to_its_last_bit() -> None:
    """One alone, or two together; a bit more takes another plaintext, or is refused."""
    room = exact(9).tag_offset
    for widths, plaintexts in [
        ((room,), 1),
        ((room // 2, room - room // 2), 1),
        ((room // 2, room - room // 2 + 1), 2),
        ((room - 9, 9), 1),
        ((room - 9, 9, 9), 2),
    ]:
        packing = exact(*widths)
        assert [slot.width for slot in packing.slots] == list(widths)
        assert packing.plaintexts == plaintexts
        ends = [slot.highest for slot in packing.slots]
        tags_ = [2**TAG_BITS - 1] * plaintexts
        found = packing.unpack(packing.pack(ends, tags_))
        assert (found.counters, found.tags) == (ends, tags_)
    with pytest.raises(ValueError, match=f"counter 0 needs {room + 1} bits, of {room} in a plaintext"):
        exact(room + 1)


def test_a_lie_in_one_counter_through_encryption_and_back() -> None:
    packing = Packing([(0, 1)] * 5, contributors=100, share_variance=1.0, cohorts=1, key_bits=1024)
    honest = packing.pack([1, 0, 1, 0, 1], [7])
    lie = [10**9 << packing.slots[2].offset]
    public = pair().public
    total = public.add(public.encrypt(honest + lie, seeded("lie")))
    found = packing.unpack(pair().decrypt([total]))
    assert found.counters[:2] == [1, 0]  # below the lie nothing changes
    assert found.counters[2:] != [1, 0, 1]


def test_a_thousand_phones_through_encryption_and_back() -> None:
    packing = Packing([(-2, 2)] * 100, contributors=1000, share_variance=0.5, cohorts=3, key_bits=1024)
    assert packing.plaintexts > 1
    rng, public = seeded("phones"), pair().public
    values = rng.integers(-2, 3, (1000, 100)) + rng.poisson(0.25, (1000, 100)) - rng.poisson(0.25, (1000, 100))
    values[:, 7] = -3  # a sum far below zero
    secrets = [rng.bytes(32) for _ in range(1000)]
    owed = [[tag(secret, bytes(32), 0, place) for place in range(packing.plaintexts)] for secret in secrets]
    contributions = [
        public.encrypt(packing.pack(row.tolist(), mine), rng) for row, mine in zip(values, owed, strict=True)
    ]
    totals = [public.add(list(column)) for column in zip(*contributions, strict=True)]
    found = packing.unpack(pair().decrypt(public.rerandomise(totals, rng)))
    assert found.counters == values.sum(axis=0).tolist()
    assert found.tags == [sum(column) for column in zip(*owed, strict=True)]


@given(st.floats(0, 1e9), st.integers(1, 10**7), st.integers(1, 10**6))
def test_the_margin_is_the_smallest_that_the_inequality_allows(variance: float, contributors: int, slots: int) -> None:
    margin = noise_margin(variance, contributors, slots)
    whole = math.ceil(contributors * Fraction(variance))
    rarity = math.ceil(LN_2 * (OVERFLOW_BITS + 1 + math.ceil(math.log2(slots))))
    assert 3 * margin**2 >= rarity * (6 * whole + 2 * margin)
    assert 3 * (margin - 1) ** 2 < rarity * (6 * whole + 2 * (margin - 1))


def test_the_slots_of_all_cohorts_count_for_the_margin() -> None:
    """A release overflows if any of its cohorts does; slots that do for one cohort are too narrow for a thousand."""
    one, many = (
        Packing([(0, 1)] * 8, contributors=240, share_variance=1.0, cohorts=cohorts, key_bits=1024)
        for cohorts in (1, 1000)
    )
    margin = noise_margin(1.0, 240, slots=8 * 1000)
    assert all(slot.lowest <= -margin and 240 + margin <= slot.highest for slot in many.slots)
    assert not any(slot.lowest <= -margin and 240 + margin <= slot.highest for slot in one.slots)


@pytest.mark.parametrize("slots", [1, 1000])
@pytest.mark.parametrize("contributors", [1, 50, 100_000])
@pytest.mark.parametrize("variance", [1e-4, 0.1, 3.0, 1e4])
def test_noise_passes_the_margin_less_often_than_promised(variance: float, contributors: int, slots: int) -> None:
    """Exact Skellam tails, on both sides of all slots; and the margin is no more than half too wide for large noise."""
    margin = noise_margin(variance, contributors, slots)
    total = variance * contributors
    promised = 2.0**-OVERFLOW_BITS / slots
    assert 2 * _skellam_tail(total, margin) <= promised
    if total > 10_000:
        assert 2 * _skellam_tail(total, margin / 1.5) > promised


@pytest.mark.parametrize("contributors", [1, 3, 10])
@pytest.mark.parametrize("deviation", [0.5, 4.0, 11.3])
def test_discrete_gaussian_shares_pass_it_no_more_often(deviation: float, contributors: int) -> None:
    """The exact distribution of a sum of shares, by convolution."""
    margin = noise_margin(deviation**2, contributors, slots=1)
    reach = int(40 * deviation) + 40
    steps = np.arange(-reach, reach + 1)
    share = np.exp(-((steps / deviation) ** 2) / 2)
    share /= share.sum()
    total = share
    for _ in range(contributors - 1):
        total = np.convolve(total, share)
    assert margin < total.size // 2
    beyond = total[total.size // 2 + margin + 1 :].sum()
    assert 2 * beyond <= 2.0**-OVERFLOW_BITS


def test_all_who_may_answer_count_for_the_margin() -> None:
    """Of 1000 phones 200 are enough for the noise, and all may answer: exact tails, at margins for all and 200."""
    share = 50.0 / (200 - 1)
    margin = noise_margin(share, 1000, slots=1)
    assert 2 * _skellam_tail(1000 * share, margin) <= 2.0**-OVERFLOW_BITS
    assert 2 * _skellam_tail(1000 * share, noise_margin(share, 200, slots=1)) > 2.0**-OVERFLOW_BITS


@pytest.mark.parametrize("bounds", [(3, 5), (-5, -3)])
def test_bounds_without_zero_are_refused(bounds: tuple[int, int]) -> None:
    """A phone that is absent adds 0: with slots for all phones only, an honest sum of some would not fit."""
    with pytest.raises(ValueError, match=r"the bounds of counter 1 must enclose 0: got \("):
        Packing([(0, 1), bounds], contributors=1000, share_variance=0.01, cohorts=1, key_bits=1024)


@given(parameters, st.data())
def test_what_some_of_the_phones_add_up_to_fits(given_: dict[str, Any], data: st.DataObject) -> None:
    packing = Packing(**given_)
    some = data.draw(st.integers(0, given_["contributors"]))
    for slot, (least, most) in zip(packing.slots, given_["bounds"], strict=True):
        assert slot.lowest <= some * least
        assert some * most <= slot.highest


WRONG: list[Any] = [None, "1", 1.5, math.nan, True]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_whole_number_is_refused_by_name(wrong: Any) -> None:
    given_: dict[str, Any] = {"contributors": 10, "share_variance": 1.0, "cohorts": 1, "key_bits": 1024}
    for name in ("contributors", "cohorts", "key_bits"):
        with pytest.raises(ValueError, match=f"{name} must be a whole number: got {wrong!r}"):
            Packing([(0, 1)], **{**given_, name: wrong})
    with pytest.raises(ValueError, match="a bound must be a whole number"):
        Packing([(0, wrong)], **given_)
    packing = Packing([(0, 1)], **given_)
    with pytest.raises(ValueError, match="value 0 must be a whole number"):
        packing.pack([wrong], [0])
    with pytest.raises(ValueError, match="tag 0 must be a whole number"):
        packing.pack([0], [wrong])
    with pytest.raises(ValueError, match="a plaintext must be a whole number"):
        packing.unpack([wrong])


def _skellam_tail(variance: float, beyond: float) -> float:
    """P(X > beyond) of a Skellam variable, from its mass exp(-V) I_k(V)."""
    start = math.floor(beyond) + 1
    steps = np.arange(start, start + 400 + int(4 * math.sqrt(variance)))
    return float(special.ive(steps, variance).sum())


def test_a_layout_is_the_same_wherever_it_is_computed() -> None:
    arguments = {"contributors": 10**6, "share_variance": 0.1, "cohorts": 15, "key_bits": 3072}
    one = Packing([(0, 1), (-5, 5)], **arguments)  # type: ignore[arg-type]  # a dictionary of two types
    other = Packing(np.array([(0, 1), (-5, 5)]), **arguments)  # type: ignore[arg-type]
    assert one.slots == other.slots


def test_values_of_numpy_are_values() -> None:
    packing = Packing([(0, 1)] * 3, contributors=10, share_variance=1.0, cohorts=1, key_bits=1024)
    values = np.array([1, -3, 2])
    assert packing.pack(list(values), [0]) == packing.pack(values.tolist(), [0])


def test_a_plaintext_that_is_missing_is_noticed() -> None:
    packing = Packing([(0, 1)], contributors=10, share_variance=1.0, cohorts=1, key_bits=1024)
    with pytest.raises(ValueError, match="there must be 1 plaintexts: got 0"):
        packing.unpack([])
