"""The mechanisms of noise, each in a file of its own. A new one is registered here, and nowhere else."""

from typing import Final, Literal, cast, get_args

from reticent.privacy.mechanisms.gaussian import Gaussian
from reticent.privacy.mechanisms.mechanism import Mechanism, Unit
from reticent.privacy.mechanisms.skellam import Skellam

__all__ = ["MECHANISMS", "Mechanism", "NoiseKind", "Unit", "mechanism_of"]

NoiseKind = Literal["skellam", "gaussian"]
"""The names that a query may give."""

MECHANISMS: Final[dict[NoiseKind, Mechanism]] = {
    "skellam": Skellam(),
    "gaussian": Gaussian(),
}
"""All mechanisms, by name."""


def mechanism_of(noise: str) -> Mechanism:
    """The mechanism of this name.

    Raises:
        ValueError: There is none.

    >>> mechanism_of("skellam").unit
    <Unit.USER: 'user'>
    """
    if noise not in get_args(NoiseKind):
        raise ValueError(f"noise is one of {', '.join(get_args(NoiseKind))}: got {noise!r}")
    return MECHANISMS[cast("NoiseKind", noise)]
