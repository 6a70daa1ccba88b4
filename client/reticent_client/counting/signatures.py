"""The signatures of a key server that all phones of a process check: each is verified once."""

from __future__ import annotations

from functools import lru_cache

from reticent.protocol import signed_by

__all__ = ["is_signed"]

REMEMBERED = 64
MAX_REMEMBERED_BYTES = 1 << 16
"""A longer statement is verified anew each time: a server could fill the memory with such."""


def is_signed(identity: bytes, statement: bytes, signature: bytes) -> bool:
    """Whether this key server signed a statement that many phones get: an announcement or a decision."""
    verify = signed_by if len(statement) > MAX_REMEMBERED_BYTES else _remembered
    return verify(identity, statement, signature)


_remembered = lru_cache(maxsize=REMEMBERED)(signed_by)
