"""Numbers of a run as people read them; what is missing or not finite is a dash."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["SPACE", "bytes_of", "count", "decimal", "finite", "percent", "plural"]

SPACE = "\N{NO-BREAK SPACE}"
LARGE = 1e9
"""From here on, numbers are written with a power of ten."""
MISSING = "\N{EN DASH}"


def finite(value: Any) -> float | None:
    """The value as a float; None if it is missing, no number or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def decimal(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits, and thousands apart.

    >>> decimal(1234.5), decimal(0.08712), decimal(-3.0), decimal(2.5e9)
    ('1,234', '0.0871', '-3', '2.5e+09')
    """
    number = finite(value)
    if number is None:
        return MISSING
    if LARGE > abs(number) >= 10 ** (digits - 1):
        return f"{number:,.0f}"
    return f"{number:.{digits}g}"


def count(value: Any) -> str:
    """A whole number, with thousands apart.

    >>> count(24000)
    '24,000'
    """
    number = finite(value)
    return MISSING if number is None else f"{number:,.0f}" if abs(number) < LARGE else f"{number:.3g}"


def percent(share: Any) -> str:
    """A share as a percentage; only what is all is 100 %, only what is nothing is 0 %.

    >>> [percent(share).replace(SPACE, " ") for share in (0.123, 0.9996, 1, 0.0002, 0)]
    ['12.3 %', '99.9 %', '100 %', '0.1 %', '0 %']
    """
    number = finite(share)
    if number is None:
        return MISSING
    if 0 < number < 1:
        number = min(max(number, 0.001), 0.999)
    return f"{100 * number:.1f}".removesuffix(".0") + f"{SPACE}%"


def bytes_of(value: Any) -> str:
    """A size in the largest unit that it fills.

    >>> [bytes_of(size).replace(SPACE, " ") for size in (512, 18_300, 2_500_000)]
    ['512 B', '18.3 kB', '2.5 MB']
    """
    number = finite(value)
    if number is None:
        return MISSING
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= limit:
            return f"{decimal(number / limit)}{SPACE}{unit}"
    return f"{decimal(number)}{SPACE}B"


def plural(value: Any, noun: str, nouns: str = "") -> str:
    """A count with its noun.

    >>> [plural(size, "phone").replace(SPACE, " ") for size in (1, 2000)]
    ['1 phone', '2,000 phones']
    """
    return f"{count(value)}{SPACE}{noun if value == 1 else nouns or noun + 's'}"
