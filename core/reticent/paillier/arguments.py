"""What the numbers of this package may be; anything else is one `ValueError` with the value."""

from operator import index
from typing import Any

import numpy as np

__all__ = ["whole"]

SHOWN = 40  # characters of a value that is no number


def whole(name: str, value: Any) -> int:
    """A whole number of any size, as Python's own: also NumPy's or gmpy2's, and no truth value."""
    if not isinstance(value, bool | np.bool_):
        try:
            return index(value)
        except TypeError:
            pass
    raise ValueError(f"{name} must be a whole number: got {value!r:.{SHOWN}}")
