"""The choice of malicious phones, and of the kind of each."""

from __future__ import annotations

from collections.abc import Mapping

from reticent.arguments import checked_integer
from reticent.randomness import seeded
from reticent_sim.engine.malice.attacks import malicious_kinds

__all__ = ["assign"]

WILD = "wild"
MAX_WILD = 2
"""The most wild phones of a share: each of them costs a cohort, and a query without half of its cohorts has no result.
A mix may have more."""


def assign(seed: int, phones: int, malicious: float | Mapping[str, int]) -> dict[int, str]:
    """The malicious phones with their kinds, by their numbers.

    Args:
        seed: Of the simulation.
        phones: The number of all phones.
        malicious: How many of each kind; or the share of phones that are malicious, of all kinds in equal parts, except
            that at most `MAX_WILD` are wild.

    Raises:
        ValueError: A kind is unknown, or there are fewer phones.

    >>> assign(7, 1000, {"wild": 2, "garbage": 1})
    {46: 'wild', 479: 'garbage', 919: 'wild'}
    """
    mix = malicious if isinstance(malicious, Mapping) else _mix_of(malicious, phones)
    for kind, number in mix.items():
        if kind not in malicious_kinds:
            raise ValueError(f"a malicious phone is one of {', '.join(malicious_kinds)}: got {kind!r}")
        checked_integer(f"the number of {kind} phones", number, 0)
    kinds = [kind for kind in malicious_kinds for _ in range(mix.get(kind, 0))]
    if len(kinds) > phones:
        raise ValueError(f"there are {phones} phones: {len(kinds)} cannot be malicious")
    if not kinds:
        return {}
    chosen = seeded(seed, "malice").permutation(phones)[: len(kinds)].tolist()
    return dict(sorted(zip(chosen, kinds, strict=True)))


def _mix_of(share: float, phones: int) -> dict[str, int]:
    if not 0 <= share <= 1:
        raise ValueError(f"the share of malicious phones must lie in [0, 1]: got {share!r}")
    number = round(share * phones)
    wild = min(MAX_WILD, -(-number // len(malicious_kinds)))
    others = [kind for kind in malicious_kinds if kind != WILD]
    part, more = divmod(number - wild, len(others))
    return {WILD: wild} | {kind: part + (place < more) for place, kind in enumerate(others)}
