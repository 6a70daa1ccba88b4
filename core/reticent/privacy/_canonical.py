"""The canonical encoding: one string of bytes for each value, so that all parties sign the same bytes.

An integer is 8 bytes, two's complement, big-endian. A real number is IEEE 754 binary64, big-endian. Text is the length
of its UTF-8 encoding as an integer, then the encoding.
"""

from __future__ import annotations

import struct
from typing import Any

from reticent.arguments import checked_integer

INTEGER_BYTES = 8

MAX_INTEGER = 2**63 - 1
"""The largest integer of the encoding."""


def encodable_integer(name: str, value: Any, minimum: int) -> int:
    """A whole number that is at least `minimum`, and at most the largest integer of the encoding."""
    number = checked_integer(name, value, minimum)
    if number > MAX_INTEGER:
        raise ValueError(f"{name} must fit 64 bits: got {number!r:.40}")
    return number


def check_text(name: str, value: Any) -> None:
    """Refuse what is not text, is empty, or has no UTF-8 encoding."""
    try:
        good = isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        good = False
    if not good:
        raise ValueError(f"{name} must be text that is not empty: got {value!r}")


def integer(value: int) -> bytes:
    """The bytes of an integer of 64 bits."""
    return struct.pack(">q", value)


def real(value: float) -> bytes:
    """The bytes of a real number."""
    return struct.pack(">d", value)


def text(value: str) -> bytes:
    """The bytes of text."""
    content = value.encode()
    return integer(len(content)) + content


class CanonicalReader:
    """Reads canonical bytes from the beginning; truncated or damaged bytes raise `ValueError`.

    Args:
        content: The bytes.
        beginning: The format's prefix.
    """

    def __init__(self, content: bytes, beginning: bytes) -> None:
        if not content.startswith(beginning):
            raise ValueError(f"this begins with {content[: len(beginning)]!r}, and not with {beginning!r}")
        self._content = content
        self.position = len(beginning)

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._content) - self.position

    def integer(self) -> int:
        """The next integer."""
        return int(struct.unpack(">q", self._take(INTEGER_BYTES))[0])

    def real(self) -> float:
        """The next real number."""
        return float(struct.unpack(">d", self._take(INTEGER_BYTES))[0])

    def text(self) -> str:
        """The next text."""
        try:
            return self._take(self.count()).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the text that ends at byte {self.position} is not UTF-8") from error

    def count(self) -> int:
        """The next integer, as the number of items that follow; each has at least one byte."""
        number = self.integer()
        if not 0 <= number <= self.left:
            raise ValueError(f"at byte {self.position}, {number} is no number of things that follow")
        return number

    def _take(self, length: int) -> bytes:
        if self.position + length > len(self._content):
            raise ValueError(f"this is cut off after {len(self._content)} bytes")
        self.position += length
        return self._content[self.position - length : self.position]
