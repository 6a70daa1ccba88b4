"""Replies of the ad service: all replies for a number of ads have one size, whatever the context and the ads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.catalogue import MAX_CAP, MAX_CATEGORY, MAX_NAME, MAX_TEXT

__all__ = ["EncodedAds", "ReplyFormat"]

_AD, _PADDING = (
    bytes([number << 3 | 2]) for number in (wire.SelectReply.ADS_FIELD_NUMBER, wire.SelectReply.PADDING_FIELD_NUMBER)
)
"""The first byte of these fields: their number, and the type of fields with a length."""
_MIN_PADDING = 2
_LARGEST = 2**32 - 1


@dataclass(frozen=True)
class EncodedAds:
    """The ads for a node, the best first, as fields of a reply.

    Args:
        content: All fields.
        ends: The end of the first ads, by their number from 0 on.
    """

    content: bytes
    ends: tuple[int, ...]


class ReplyFormat:
    """Encodes replies.

    Args:
        rates: The digest of the rate table.
        rates_per_ad: The most rates of an ad in a reply.
    """

    def __init__(self, rates: bytes, rates_per_ad: int) -> None:
        self._rates = wire.SelectReply(rates=rates).SerializeToString()
        largest = wire.Ad(
            id="x" * MAX_NAME,
            text="x" * MAX_TEXT,
            category="x" * MAX_CATEGORY,
            cap=MAX_CAP,
            rates=[wire.Rate(node=_LARGEST, rate=1, low=1, high=1, payment=1)] * rates_per_ad,
        )
        self._ad_bytes = wire.SelectReply(ads=[largest]).ByteSize()

    def size(self, ads: int) -> int:
        """The size of every reply for this number of ads, in bytes."""
        return ads * self._ad_bytes + len(self._rates) + _MIN_PADDING

    @staticmethod
    def encode(ads: Iterable[bytes]) -> EncodedAds:
        """Encoded ads as fields of a reply."""
        fields = [b"".join((_AD, _varint(len(each)), each)) for each in ads]
        return EncodedAds(b"".join(fields), tuple(accumulate(map(len, fields), initial=0)))

    def reply(self, encoded: EncodedAds, ads: int) -> bytes:
        """The reply with the first ads; with all of them, if there are not so many."""
        end = encoded.ends[min(ads, len(encoded.ends) - 1)]
        room = self.size(ads) - end - len(self._rates)
        return b"".join((encoded.content[:end], self._rates, _padding(room)))


def _padding(size: int) -> bytes:
    """The field of padding, of this size.

    A field of one size may not exist, because its length takes one byte more than that of the next smaller one. An
    empty field then comes before it: the last field of a number counts.

    >>> [len(_padding(size)) for size in (2, 129, 130, 131, 16386, 16387, 16388)]
    [2, 129, 130, 131, 16386, 16387, 16388]
    """
    for width in range(1, 5):
        length = _varint(size - width - len(_PADDING))
        if len(length) == width:
            return b"".join((_PADDING, length, bytes(size - width - len(_PADDING))))
    return _PADDING + b"\0" + _padding(size - _MIN_PADDING)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
