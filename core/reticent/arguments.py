"""Checks of numbers and texts that callers give; each failure is one `ValueError` with the value."""

import math
import re
from operator import index
from typing import Any

import numpy as np

__all__ = ["checked_delta", "checked_integer", "checked_not_negative", "checked_positive", "checked_text", "whole"]

MIN_DELTA = 1e-307
"""A smaller probability cannot be told from what rounding may hide: floats below 2.3e-308 have fewer digits."""

_SHOWN = 40  # characters shown of a value that is refused
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # controls, line ends, lone surrogates
_MAX_LENGTH = 1000


def checked_positive(name: str, value: Any) -> float:
    """A positive, finite number as a float."""
    number = _number(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite: got {value!r}")
    return number


def checked_not_negative(name: str, value: Any) -> float:
    """A finite number of at least 0 as a float, without the sign of -0.0."""
    number = _number(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0: got {value!r}")
    return number + 0.0


def checked_delta(value: Any) -> float:
    """A probability strictly between 0 and 1 as a float, and not too small to be computed with."""
    number = _number(value)
    if not 0 < number < 1:
        raise ValueError(f"delta must lie in (0, 1): got {value!r}")
    if number < MIN_DELTA:
        raise ValueError(f"delta must be at least {MIN_DELTA:g}, as floats are no finer: got {value!r}")
    return number


def whole(name: str, value: Any) -> int:
    """A whole number as `int`, of any size, also from NumPy or gmpy2; a bool is refused."""
    if not isinstance(value, bool | np.bool_):
        try:
            return index(value)
        except TypeError:
            pass
    raise ValueError(f"{name} must be a whole number: got {value!r:.{_SHOWN}}")


def checked_integer(name: str, value: Any, minimum: int) -> int:
    """A whole number that is at least `minimum`."""
    number = whole(name, value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}: got {value!r:.{_SHOWN}}")
    return number


def checked_text(name: str, value: Any, *, without: str = "") -> str:
    """Text of 1 to 1,000 characters, without control characters and those of `without`."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be text that is not empty: got {value!r:.{_SHOWN}}")
    if len(value) > _MAX_LENGTH:
        raise ValueError(f"{name} must have at most {_MAX_LENGTH} characters: got {len(value)}")
    if found := _REFUSED.findall(value) or [each for each in without if each in value]:
        raise ValueError(f"{name} must not contain {found[0]!r}: got {value!r:.{_SHOWN}}")
    return value


def _number(value: Any) -> float:
    """The value as a float, or NaN if it is not a number; text is not."""
    if isinstance(value, str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
