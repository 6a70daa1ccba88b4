"""Packing: many counters in one plaintext, with a tag for the key server.

A plaintext consists of slots, with one counter each, and a tag in its highest bits. Adding plaintexts adds their slots,
if every sum fits its slot. This module computes the widths of the slots, in integers only, so that phones and servers
on any machine get the same layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from reticent.arguments import whole
from reticent.paillier._tags import TAG_BITS
from reticent.tail_bounds import TailBound, bernstein

__all__ = ["Packing", "Slot", "Sums", "noise_margin"]

OVERFLOW_BITS = 40
"""Without liars, a release overflows with probability below 2^-OVERFLOW_BITS."""

SIGN_BITS = 2  # a plaintext is below 2^(bits - 2), hence below n/2
LN_2 = Fraction(7, 10)  # rounded up


@dataclass(frozen=True)
class Slot:
    """The place of a counter."""

    plaintext: int  # index of the plaintext
    offset: int  # of its lowest bit
    width: int  # bits
    lowest: int  # the smallest sum that fits

    @property
    def highest(self) -> int:
        """The largest sum that fits."""
        return self.lowest + (1 << self.width) - 1


@dataclass(frozen=True)
class Sums:
    """The content of a cohort's plaintexts: the noisy sums of the counters, and the sum of tags of each plaintext."""

    counters: list[int]
    tags: list[int]


class Packing:
    """The layout of a query's plaintexts, which follows from the arguments alone.

    A phone adds a share of noise to each of its counters. By default this is a Skellam share of the given variance, or
    a discrete Gaussian share with that squared scale; other noise needs its own tail bound.

        >>> packing = Packing([(0, 1)] * 400, contributors=1000, share_variance=0.1, cohorts=1, key_bits=3072)
        >>> packing.slots[0]
        Slot(plaintext=0, offset=0, width=11, lowest=-523)
        >>> packing.plaintexts
        2

    Args:
        bounds: For each counter the least and the largest value of one user, without noise. The range must include 0,
            the value of an absent phone.
        contributors: The largest number of contributions to a cohort.
        share_variance: The variance of one phone's noise in each counter, in steps of the grid.
        cohorts: The number of cohorts, each with its own sums.
        key_bits: The length of the public key's n.
        tail_bound: How far the sum of the shares lies from 0, with which probability.
    """

    def __init__(
        self,
        bounds: Iterable[tuple[int, int]],
        *,
        contributors: int,
        share_variance: float,
        cohorts: int,
        key_bits: int,
        tail_bound: TailBound = bernstein,
    ) -> None:
        self.bounds = tuple((whole("a bound", least), whole("a bound", most)) for least, most in bounds)
        contributors, cohorts = whole("contributors", contributors), whole("cohorts", cohorts)
        key_bits = whole("key_bits", key_bits)
        self._check(contributors, share_variance, cohorts)
        self.tag_bits = TAG_BITS + (contributors - 1).bit_length()
        self.tag_offset = key_bits - SIGN_BITS - self.tag_bits
        margin = noise_margin(share_variance, contributors, len(self.bounds) * cohorts, tail_bound)
        self.slots = tuple(self._laid_out(contributors, margin))
        self.plaintexts = self.slots[-1].plaintext + 1

    def pack(self, values: Sequence[int], tags: Sequence[int]) -> list[int]:
        """Run by the phone. The plaintexts with its values, noise included.

        Args:
            values: One for each counter.
            tags: One for each plaintext.

        Raises:
            ValueError: A value does not fit its slot.
        """
        self._check_lengths(tags, len(values))
        plaintexts = [int(tag) << self.tag_offset for tag in tags]
        for place, (slot, number) in enumerate(zip(self.slots, values, strict=True)):
            value = whole(f"value {place}", number)
            if not slot.lowest <= value <= slot.highest:
                raise ValueError(f"value {place} must lie in [{slot.lowest}, {slot.highest}]: got {value}")
            plaintexts[slot.plaintext] += value << slot.offset  # a negative value borrows from the slots above
        return plaintexts

    def unpack(self, plaintexts: Sequence[int]) -> Sums:
        """Run by the key server. The content of the slots, for any integers.

        A false contribution may overflow its slots into those above, and into the tag. Then the result is meaningless,
        but there is one.
        """
        if len(plaintexts) != self.plaintexts:
            raise ValueError(f"there must be {self.plaintexts} plaintexts: got {len(plaintexts)}")
        rest = [whole("a plaintext", plaintext) for plaintext in plaintexts]
        counters = []
        for slot in self.slots:
            left = rest[slot.plaintext]
            counter = slot.lowest + (left - slot.lowest) % (1 << slot.width)
            rest[slot.plaintext] = (left - counter) >> slot.width  # undoes the borrow of a negative counter
            counters.append(counter)
        return Sums(counters, [left >> gap for left, gap in zip(rest, self._gaps(), strict=True)])

    def _laid_out(self, contributors: int, margin: int) -> Iterable[Slot]:
        plaintext = offset = 0
        for place, (least, most) in enumerate(self.bounds):
            lowest, highest = contributors * least - margin, contributors * most + margin
            width = (highest - lowest).bit_length()
            if width > self.tag_offset:
                raise ValueError(f"counter {place} needs {width} bits, of {self.tag_offset} in a plaintext")
            if offset + width > self.tag_offset:
                plaintext, offset = plaintext + 1, 0
            spare = (1 << width) - 1 - (highest - lowest)
            yield Slot(plaintext, offset, width, lowest - spare // 2)
            offset += width

    def _gaps(self) -> list[int]:
        """The bits between the last slot of each plaintext and its tag."""
        ends = {slot.plaintext: slot.offset + slot.width for slot in self.slots}
        return [self.tag_offset - ends[plaintext] for plaintext in range(self.plaintexts)]

    def _check(self, contributors: int, share_variance: float, cohorts: int) -> None:
        if not self.bounds:
            raise ValueError("a query must have counters: got none")
        for place, (least, most) in enumerate(self.bounds):
            if least > most:
                raise ValueError(f"the bounds of counter {place} must be in order: got ({least}, {most})")
            if not least <= 0 <= most:
                raise ValueError(f"the bounds of counter {place} must enclose 0: got ({least}, {most})")
        if contributors < 1:
            raise ValueError(f"contributors must be positive: got {contributors}")
        if cohorts < 1:
            raise ValueError(f"cohorts must be positive: got {cohorts}")
        if not _is_variance(share_variance):
            raise ValueError(f"share_variance must be finite and not negative: got {share_variance!r}")

    def _check_lengths(self, tags: Sequence[int], values: int) -> None:
        if values != len(self.slots):
            raise ValueError(f"there must be {len(self.slots)} values: got {values}")
        if len(tags) != self.plaintexts:
            raise ValueError(f"there must be {self.plaintexts} tags: got {len(tags)}")
        for place, tag in enumerate(tags):
            if not 0 <= whole(f"tag {place}", tag) < 1 << TAG_BITS:
                raise ValueError(f"tag {place} must lie in [0, 2^{TAG_BITS})")


def _is_variance(number: object) -> bool:
    try:
        return math.isfinite(number) and number >= 0  # type: ignore[arg-type,operator]  # other types raise
    except TypeError:
        return False


def noise_margin(share_variance: float, contributors: int, slots: int, tail_bound: TailBound = bernstein) -> int:
    """A bound on the absolute noise in all slots, which holds except with probability below 2^-40.

    The bound covers the shares of all `contributors`, not only of the fewest that may be decrypted. Each side of each
    slot is allowed an equal part of the probability.
    """
    nats = math.ceil(LN_2 * (OVERFLOW_BITS + 1 + (slots - 1).bit_length()))
    return tail_bound(contributors * Fraction(share_variance), nats)
