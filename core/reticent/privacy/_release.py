"""A release: the estimates of a query, their errors, and their cost.

The decrypted sums of the cohorts keep probabilistic differential privacy (definition 3 of Götz's dissertation). A
release is computed from them, and definition 3 does not survive that; it claims (epsilon, delta)-indistinguishability
(definition 4), which follows and does.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from reticent.privacy.mechanisms import NoiseKind, mechanism_of
from reticent.privacy.mechanisms.mechanism import normal_half_width
from reticent.storage.documents import DocumentFormat

Floats = npt.NDArray[np.float64]

FORMAT = DocumentFormat("reticent-release", 1, "a release")


@dataclass(frozen=True)
class Release:
    """Estimates of the totals over all phones that contributed.

    Args:
        query: The id of the query.
        counters: The names of the counters.
        value: The total of each counter.
        variance: The variance of each value around the true total, if nobody lied: from noise, from scaling to cohorts
            that were left out, and from taking a median over cohorts.
        noise: The mechanism, if its noise is the only error of the values; otherwise None.
        contributors: The number of phones that contributed, including those in cohorts that were left out.
        epsilon: The cost to each of them, together with delta.
        delta: See epsilon.
        scales: The scale of each counter: the released sums were so many times as large, with noise in whole steps.
        cohorts_left_out: The burnt cohorts.
        cohorts_outlying: For each counter, the outlying cohorts. If there are any, the value is the scaled median of
            the others instead of the sum.
        seeded: Whether anybody can replay the noise: then it protects nobody.

    >>> release = Release("gym", ("visits",), (1204.0,), (25.0,), "skellam", 9000, 1.0, 1e-6)
    >>> release.interval(0.95).tolist()
    [[1194.0, 1214.0]]
    """

    query: str
    counters: tuple[str, ...]
    value: tuple[float, ...]
    variance: tuple[float, ...]
    noise: NoiseKind | None
    contributors: int
    epsilon: float
    delta: float
    scales: tuple[int, ...] = ()
    cohorts_left_out: tuple[int, ...] = ()
    cohorts_outlying: tuple[tuple[int, ...], ...] = ()
    seeded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "cohorts_outlying", self.cohorts_outlying or ((),) * len(self.counters))
        object.__setattr__(self, "scales", self.scales or (1,) * len(self.counters))
        sizes = {
            *(len(self.counters), len(self.value), len(self.variance)),
            *(len(self.scales), len(self.cohorts_outlying)),
        }
        if len(sizes) != 1:
            raise ValueError(f"a release has one value and one variance for each counter: got {self}")
        if not all(map(math.isfinite, self.value)):
            raise ValueError(f"a released value is finite: got {self.value}")
        if not all(math.isfinite(variance) and variance >= 0 for variance in self.variance):
            raise ValueError(f"a variance is finite and at least 0: got {self.variance}")

    def interval(self, level: float) -> Floats:
        """Intervals that contain the true totals with this probability, each on its own, if nobody lied.

        Returns:
            Lower and upper ends, one row for each counter.  # (d, 2)
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1): got {level!r}")
        values = np.array(self.value)
        reach = np.array([self._reach(*each, level) for each in zip(self.variance, self.scales, strict=True)])
        return np.stack([values - reach, values + reach], axis=-1)

    def to_text(self) -> str:
        """The release as one line of JSON, from which `from_text` makes an equal one."""
        return FORMAT.text(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Release:
        """The release that `to_text` wrote.

        Raises:
            ValueError: The text is not a release, or has another version.
        """
        content = FORMAT.parse(text)
        try:
            content["cohorts_outlying"] = tuple(map(tuple, content["cohorts_outlying"]))
            for field in ("counters", "value", "variance", "scales", "cohorts_left_out"):
                content[field] = tuple(content[field])
            return cls(**content)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the release is damaged: {error}") from error

    def _reach(self, variance: float, scale: int, level: float) -> float:
        if variance == 0:
            return 0.0
        half_width = normal_half_width if self.noise is None else mechanism_of(self.noise).half_width
        return half_width(variance * scale**2, level) / scale
