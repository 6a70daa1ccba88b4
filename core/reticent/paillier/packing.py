"""Many counters in one plaintext, and with them a tag for the key server.

A plaintext is a row of slots, a counter in each and the tag on top. Adding plaintexts adds slot by slot, as long as
every sum stays within its slot; how wide a slot must be is what this module works out, by whole numbers alone, so
that phones and servers on any machine come to the same layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from reticent.arguments import whole
from reticent.paillier.tags import TAG_BITS

__all__ = ["Packing", "Slot", "Sums", "noise_margin"]

OVERFLOW_BITS = 40
"""A release overflows with probability below 2 to the minus this, when nobody lies."""

SIGN_BITS = 2  # a plaintext stays below 2^(bits - 2), and so below n/2
LN_2 = Fraction(7, 10)  # a little more than it is


@dataclass(frozen=True)
class Slot:
    """Where a counter stands."""

    plaintext: int  # which of the plaintexts
    offset: int  # of its lowest bit
    width: int  # bits
    lowest: int  # the smallest sum it can hold

    @property
    def highest(self) -> int:
        """The largest sum it can hold."""
        return self.lowest + (1 << self.width) - 1


@dataclass(frozen=True)
class Sums:
    """What the plaintexts of a cohort held: the noisy sums of the counters, and the sum of the tags of each."""

    counters: list[int]
    tags: list[int]


class Packing:
    """The layout of a query's plaintexts, which follows from the arguments alone.

    Noise is what a phone adds to each of its counters: a Skellam share of the given variance, or a discrete Gaussian
    share with this square of its scale.

        >>> packing = Packing([(0, 1)] * 400, contributors=1000, share_variance=0.1, cohorts=1, key_bits=3072)
        >>> packing.slots[0]
        Slot(plaintext=0, offset=0, width=11, lowest=-523)
        >>> packing.plaintexts
        2

    Args:
        bounds: For each counter the least and the most that one user can add to it, without noise; 0 lies between
            them, which is what a phone adds that is absent.
        contributors: The most phones of a cohort that can answer.
        share_variance: The variance of one phone's noise, in steps of the grid, the same for each counter.
        cohorts: How many sums like this one a release consists of.
        key_bits: The length of the public key's n.
    """

    def __init__(
        self,
        bounds: Iterable[tuple[int, int]],
        *,
        contributors: int,
        share_variance: float,
        cohorts: int,
        key_bits: int,
    ) -> None:
        self.bounds = tuple((whole("a bound", least), whole("a bound", most)) for least, most in bounds)
        contributors, cohorts = whole("contributors", contributors), whole("cohorts", cohorts)
        key_bits = whole("key_bits", key_bits)
        self._check(contributors, share_variance, cohorts)
        self.tag_bits = TAG_BITS + (contributors - 1).bit_length()
        self.tag_offset = key_bits - SIGN_BITS - self.tag_bits
        margin = noise_margin(share_variance, contributors, len(self.bounds) * cohorts)
        self.slots = tuple(self._laid_out(contributors, margin))
        self.plaintexts = self.slots[-1].plaintext + 1

    def pack(self, values: Sequence[int], tags: Sequence[int]) -> list[int]:
        """Run by the phone. The plaintexts that hold its values, noise included.

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
        """Run by the key server. What the slots hold, for any whole numbers whatsoever.

        A contribution with lies in it may overflow its slots into those above, and into the tag: what comes out then
        means nothing, but something comes out.
        """
        if len(plaintexts) != self.plaintexts:
            raise ValueError(f"there must be {self.plaintexts} plaintexts: got {len(plaintexts)}")
        rest = [whole("a plaintext", plaintext) for plaintext in plaintexts]
        counters = []
        for slot in self.slots:
            left = rest[slot.plaintext]
            counter = slot.lowest + (left - slot.lowest) % (1 << slot.width)
            rest[slot.plaintext] = (left - counter) >> slot.width  # gives back what a negative counter borrowed
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
        return math.isfinite(number) and number >= 0  # type: ignore[arg-type,operator]  # what is no number raises
    except TypeError:
        return False


def noise_margin(share_variance: float, contributors: int, slots: int) -> int:
    """How far the noise of any of the slots strays from 0, but for a probability below 2^-40.

    All `contributors` may answer, so their shares count, and not only those of the fewest that may be decrypted. By
    Bernstein's inequality a sum of shares with variance V passes x with probability at most
    exp(-x² / (2V + 2x/3)). With L for minus the logarithm of what that may be, on each side of each slot, the margin
    is the smallest whole x with x² >= L · (2V + 2x/3).
    """
    variance = math.ceil(contributors * Fraction(share_variance))
    rarity = math.ceil(LN_2 * (OVERFLOW_BITS + 1 + (slots - 1).bit_length()))
    root = 1 + math.isqrt(rarity * rarity + 18 * rarity * variance - 1)  # rounded up
    return -(-(rarity + root) // 3)
