"""Shared by the calibrations of all mechanisms: a search to the last bit, and the ranges of computable parameters."""

from collections.abc import Callable

from reticent.arguments import checked_positive

__all__ = ["MIN_PROBABILITY", "ULP", "bounded_epsilon", "smallest"]

MIN_PROBABILITY = 2.3e-308  # a probability that is never understated: the smallest normal number
ULP = 2.0**-52
MAX_EPSILON = 100.0  # of integer noise


def bounded_epsilon(value: float) -> float:
    """The epsilon, if integer noise can be calibrated for it.

    Raises:
        ValueError: It is not positive, or too large to promise anything.
    """
    epsilon = checked_positive("epsilon", value)
    if epsilon > MAX_EPSILON:
        raise ValueError(f"epsilon above {MAX_EPSILON:g} promises nothing: got {value!r}")
    return epsilon


def smallest(holds: Callable[[float], bool], guess: float) -> float:
    """The smallest positive number from which on `holds` is true, to the last bit.

    `holds` turns from false to true once. Rounding may move that place; `holds` is true of the result all the same.
    """
    above = guess
    while not holds(above):
        above *= 2
    below = above / 2
    while holds(below):
        above, below = below, below / 2
    while below < (middle := below + (above - below) / 2) < above:
        if holds(middle):
            above = middle
        else:
            below = middle
    return above
