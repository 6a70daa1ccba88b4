"""The messages of ads: requests to the ad service, its replies, and replies to apps. Those that leave have one size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reticent.arguments import checked_text
from reticent.v1 import ads_pb2, phone_pb2

__all__ = [
    "MAX_ID",
    "MAX_QUERY",
    "MAX_TEXT",
    "REPLY_SIZE",
    "OfferedAd",
    "OfferedRate",
    "ShownAd",
    "encode_request",
    "encode_shown",
    "read_reply",
]

MAX_QUERY, MAX_ID, MAX_TEXT = 256, 128, 640
"""The most bytes of an app's query, and of the id and the text of an ad that is shown."""

REPLY_SIZE = 1024
"""The size of every reply to an app, in bytes. The longest takes 811 without padding, and its padding 128 or more.

A padding of 128 bytes and more has a length of two bytes, so that each size can be reached exactly.
"""

MAX_REPLY = 2**18
"""The most bytes of a reply of the ad service, more than a service sends: the phone keeps many replies in memory."""

_PADDING_HEADER = 3


class OfferedRate(NamedTuple):
    """The click-through rate of an ad in the contexts below a node, with its interval."""

    node: int
    """The number of the node in the hierarchy."""
    rate: float
    low: float
    high: float
    payment: float
    """Paid for a click."""

    @property
    def revenue(self) -> float:
        """The expected payment for showing the ad."""
        return self.payment * self.rate


@dataclass(frozen=True)
class OfferedAd:
    """An ad that the service offers."""

    id: str
    text: str
    category: str
    cap: int
    """Most times a day that the user may see it; no limit if 0."""
    rates: tuple[OfferedRate, ...]


@dataclass(frozen=True)
class ShownAd:
    """An ad, as an app receives it."""

    showing: str
    """Names this showing, to report a click on it."""
    id: str
    text: str

    @classmethod
    def of(cls, reply: phone_pb2.ShowAdReply) -> ShownAd | None:
        """The ad of a reply, if it has one."""
        return cls(reply.ad.showing, reply.ad.id, reply.ad.text) if reply.HasField("ad") else None


def encode_shown(ad: ShownAd | None) -> bytes:
    """The reply to an app, padded to the one size.

    >>> {len(encode_shown(ad)) for ad in (None, ShownAd("x" * 32, "shoes", "New shoes!"))}
    {1024}
    """
    message = phone_pb2.ShowAdReply()
    if ad is not None:
        message.ad.CopyFrom(phone_pb2.ShownAd(showing=ad.showing, id=ad.id, text=ad.text))
    message.padding = bytes(REPLY_SIZE - message.ByteSize() - _PADDING_HEADER)
    return message.SerializeToString()


def encode_request(hierarchy: bytes, node: int, ads: int) -> bytes:
    """The request for ads in the contexts below a node.

    >>> {len(encode_request(bytes(32), node, 10)) for node in (0, 1, 100_000)}
    {44}
    """
    return ads_pb2.SelectRequest(hierarchy=hierarchy, node=node, ads=ads).SerializeToString()


def read_reply(payload: bytes, parents: Sequence[int], node: int, most: int) -> tuple[OfferedAd, ...]:
    """The ads of a reply of the service, which may be hostile.

    Args:
        payload: The reply.
        parents: The parent of each node of the hierarchy, -1 for the root.
        node: The node of the request.
        most: The number of ads that were requested.

    Raises:
        ValueError: The reply is invalid.
    """
    if len(payload) > MAX_REPLY:
        raise ValueError(f"the reply has {len(payload)} bytes: a phone reads at most {MAX_REPLY}")
    message = ads_pb2.SelectReply.FromString(payload)
    if len(message.ads) > most:
        raise ValueError(f"{len(message.ads)} ads were sent, and {most} requested")
    ads = tuple(
        OfferedAd(each.id, each.text, each.category, each.cap, tuple(_rate(rate) for rate in each.rates))
        for each in message.ads
    )
    if len({ad.id for ad in ads}) < len(ads):
        raise ValueError("each ad must have an id of its own")
    for ad in ads:
        for name, value in (("id", ad.id), ("text", ad.text), ("category", ad.category)):
            checked_text(f"an ad's {name}", value)  # apps may print it on a terminal
        for rate in ad.rates:
            _check_rate(ad, rate, parents, node)
        if len({rate.node for rate in ad.rates}) < len(ad.rates):
            raise ValueError(f"the ad {ad.id!r} has two rates for one node")
    return ads


def _rate(rate: ads_pb2.Rate) -> OfferedRate:
    return OfferedRate(rate.node, rate.rate, rate.low, rate.high, rate.payment)


def _check_rate(ad: OfferedAd, rate: OfferedRate, parents: Sequence[int], node: int) -> None:
    if not 0 <= rate.low <= rate.rate <= rate.high <= 1:  # nor if one is no number
        raise ValueError(f"the rate of {ad.id!r} must lie in its interval, within 0 and 1: got {rate}")
    if not 0 <= rate.payment < math.inf:
        raise ValueError(f"the payment for {ad.id!r} must be a number of at least 0: got {rate.payment}")
    if rate.node >= len(parents):
        raise ValueError(f"the hierarchy has no node {rate.node}")
    above = rate.node
    while above != node and above > 0:
        above = parents[above]
    if above != node:
        raise ValueError(f"the rate of {ad.id!r} is for node {rate.node}, which is not below node {node}")
