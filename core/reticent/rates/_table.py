"""The table of estimated click-through rates, and its file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_not_negative, checked_text
from reticent.hierarchy import Hierarchy
from reticent.storage.arrays import ArrayFormat, Arrays
from reticent.storage.documents import DocumentFormat

__all__ = ["FORMAT", "RateTable"]

FORMAT = ArrayFormat(DocumentFormat("reticent-rates", 1, "a rate table"), dtypes=("<f8", "<i4"), max_bytes=2**30)

Numbers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_FINGERPRINT = re.compile("[0-9a-f]{64}")
_HEADER = ("hierarchy", "ads", "epsilon", "delta", "level", "seeded", "source")
_ARRAYS = ("frequency", "ad", "node", "rate", "low", "high", "views")
_SPARSE = _ARRAYS[1:]


@dataclass(frozen=True, eq=False)
class RateTable:
    """Estimated click-through rates of ads at nodes of a hierarchy. The entries are sorted by ad, then by node.

    Args:
        hierarchy: The fingerprint of the hierarchy.
        ads: The names of the ads; entries refer to them by number.
        frequency: (nodes,) the estimated probability of each node, and NaN where none was estimated.
        ad: (entries,) the number of the ad.
        node: (entries,) the number of the node.
        rate: (entries,) the estimated rate: clicks a view.
        low: (entries,) the lower end of the rate's interval.
        high: (entries,) the upper end.
        views: (entries,) the estimated number of views, with clicks and without.
        epsilon: The privacy that the estimate cost each user, with delta; infinite if it was made without noise.
        delta: See epsilon.
        level: The confidence of the intervals.
        seeded: Whether the noise came from a seed, as in a simulation.
        source: The name of the sequence of queries, or of the log.
    """

    hierarchy: str
    ads: tuple[str, ...]
    frequency: Floats
    ad: Numbers
    node: Numbers
    rate: Floats
    low: Floats
    high: Floats
    views: Floats
    epsilon: float
    delta: float
    level: float
    seeded: bool
    source: str

    def __post_init__(self) -> None:
        if not _FINGERPRINT.fullmatch(checked_text("hierarchy", self.hierarchy)):
            raise ValueError(f"hierarchy must be a fingerprint of 64 hexadecimal digits: got {self.hierarchy!r:.80}")
        object.__setattr__(self, "ads", _checked_ads(self.ads))
        arrays = {name: _array(name, getattr(self, name)) for name in _ARRAYS}
        _check(arrays, len(self.ads))
        order = np.lexsort((arrays["node"], arrays["ad"]))
        for name in _SPARSE:
            arrays[name] = arrays[name][order]
        _refuse_duplicates(arrays["ad"], arrays["node"], self.ads)
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        epsilon = math.inf if self.epsilon == math.inf else checked_not_negative("epsilon", self.epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        for name in ("delta", "level"):
            object.__setattr__(self, name, checked_not_negative(name, getattr(self, name)))
        if self.delta >= 1 or not 0 < self.level < 1:
            raise ValueError(f"delta must lie in [0, 1), level in (0, 1): got {self.delta!r} and {self.level!r}")
        if not isinstance(self.seeded, bool):
            raise ValueError(f"seeded must be true or false: got {self.seeded!r:.80}")
        checked_text("the source of rates", self.source)

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.rate)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 in hexadecimal, equal only for equal tables."""
        return FORMAT.fingerprint(*self._described())

    def check(self, hierarchy: Hierarchy) -> None:
        """Raise `ValueError` if these are the rates of another hierarchy."""
        if self.hierarchy != hierarchy.fingerprint:
            raise ValueError(
                f"these are rates of another hierarchy: its fingerprint begins with {self.hierarchy[:16]}, "
                f"not with {hierarchy.fingerprint[:16]}"
            )
        if len(self.frequency) != len(hierarchy.nodes):
            raise ValueError(f"the hierarchy has {len(hierarchy.nodes)} nodes, the rates {len(self.frequency)}")
        estimated = ~np.isnan(self.frequency)
        orphans = np.flatnonzero(estimated[1:] & ~estimated[hierarchy.parents[1:]])
        if orphans.size:
            raise ValueError(f"the node {hierarchy.nodes[orphans[0] + 1]} has a frequency, and its parent has none")

    def save(self, path: str | Path) -> None:
        """Write the table, whole or not at all."""
        FORMAT.write(path, *self._described())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a table that `save` wrote, bit for bit; `ValueError` for a damaged, foreign or newer file."""
        header, arrays = FORMAT.read(path)
        try:
            if header.keys() != set(_HEADER) or arrays.keys() != set(_ARRAYS):
                raise ValueError("it has not the entries that a rate table has")  # noqa: TRY301
            if header["epsilon"] is None:
                header["epsilon"] = math.inf
            parts: dict[str, Any] = header | arrays
            return cls(**parts)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: the rate table is damaged: {error}") from error

    def _described(self) -> tuple[dict[str, Any], Arrays]:
        header = {name: getattr(self, name) for name in _HEADER}
        if self.epsilon == math.inf:
            header["epsilon"] = None  # JSON has no infinity
        return header, {name: getattr(self, name) for name in _ARRAYS}


def _checked_ads(ads: object) -> tuple[str, ...]:
    if not isinstance(ads, list | tuple):
        raise ValueError(f"ads must be a list of names: got {ads!r:.80}")
    checked = tuple(checked_text(f"ad {number}", ad) for number, ad in enumerate(ads))
    if len(set(checked)) < len(checked):
        raise ValueError("two ads have the same name")
    return checked


def _array(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """A copy with one dimension, of whole numbers for `ad` and `node`."""
    array, dtype = np.asarray(values), np.int32 if name in {"ad", "node"} else np.float64
    if array.ndim != 1 or not (array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")):
        raise ValueError(f"{name} must be a list of {'whole ' if dtype is np.int32 else ''}numbers")
    return array.astype(dtype)


def _check(arrays: Mapping[str, npt.NDArray[Any]], ads: int) -> None:
    """Raise `ValueError` for numbers that no estimate gives."""
    frequency, ad, node = arrays["frequency"], arrays["ad"], arrays["node"]
    if len({len(arrays[name]) for name in _SPARSE}) > 1:
        raise ValueError(f"{', '.join(_SPARSE)} must be equally long")
    if not len(frequency) or np.isnan(frequency[0]):
        raise ValueError("the root needs a frequency")
    _refuse(~np.isnan(frequency) & ~((frequency >= 0) & (frequency <= 1)), "the frequency of node", frequency)
    for name, numbers, size in (("ad", ad, ads), ("node", node, len(frequency))):
        unknown = np.flatnonzero((numbers < 0) | (numbers >= size))
        if unknown.size:
            raise ValueError(f"entry {unknown[0]}: there is no {name} {numbers[unknown[0]]}, only 0 to {size - 1}")
    for name in ("low", "rate", "high"):
        _refuse(~((arrays[name] >= 0) & (arrays[name] <= 1)), f"the {name} of entry", arrays[name])
    _refuse(~np.isfinite(arrays["views"]), "the views of entry", arrays["views"])
    between = (arrays["low"] <= arrays["rate"]) & (arrays["rate"] <= arrays["high"])
    _refuse(~between, "the interval does not contain the rate of entry", arrays["rate"])
    unknown = np.flatnonzero(np.isnan(frequency[node]))
    if unknown.size:
        raise ValueError(f"entry {unknown[0]} is at node {node[unknown[0]]}, which has no frequency")


def _refuse(wrong: npt.NDArray[np.bool_], title: str, numbers: npt.NDArray[Any]) -> None:
    where = np.flatnonzero(wrong)
    if where.size:
        raise ValueError(f"{title} {where[0]} is impossible: {numbers[where[0]]}")


def _refuse_duplicates(ad: Numbers, node: Numbers, ads: tuple[str, ...]) -> None:
    """Of sorted entries."""
    again = np.flatnonzero((np.diff(ad) == 0) & (np.diff(node) == 0))
    if again.size:
        raise ValueError(f"the ad {ads[ad[again[0]]]!r:.80} has two rates at node {node[again[0]]}")
