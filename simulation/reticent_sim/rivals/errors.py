"""Errors of the rivals.

ReticentError
└── CannotDecrypt            the messages decrypt to no sum, as a party is absent
"""

from __future__ import annotations

from reticent.errors import ReticentError

__all__ = ["CannotDecrypt"]


class CannotDecrypt(ReticentError):
    """The messages decrypt to no sum, because a party is absent or the sum is out of range."""
