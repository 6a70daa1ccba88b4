"""The replies of the ad service that a phone has: requested in the background, and used again for some time."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from reticent.clock import Clock
from reticent.protocol import Refused, Unreachable
from reticent.retry import Backoff
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.messages import OfferedAd, encode_request, read_reply
from reticent_client.ads.service import AdService

__all__ = ["CachedReply", "ReplyCache"]

KEPT = 64
"""Nodes whose last reply is kept."""


@dataclass(frozen=True)
class CachedReply:
    """The ads of a reply, and when they came."""

    ads: tuple[OfferedAd, ...]
    received: dt.datetime


class ReplyCache:
    """The last replies, by the node of the request.

    Args:
        service: Where they come from.
        contexts: The phone's hierarchy.
        clock: What time it is.
        ads: The number of ads of a request.
        cache_for: How long a reply is used.
    """

    def __init__(
        self, service: AdService, contexts: UserContexts, clock: Clock, *, ads: int, cache_for: dt.timedelta
    ) -> None:
        self._service = service
        self._contexts = contexts
        self._clock = clock
        self._ads = ads
        self._cache_for = cache_for
        self._replies: OrderedDict[int, CachedReply] = OrderedDict()
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._backoff = Backoff(limit=600.0)
        self._failures = 0
        self._failed_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._wait = dt.timedelta()
        self.problem: str | None = None
        """The reason why the last request failed; None if it did not."""

    def fresh(self, node: int) -> CachedReply | None:
        """The reply for a node, if there is one that is not too old; one from the future came by another clock."""
        reply = self._replies.get(node)
        if reply is None or not dt.timedelta() <= self._clock.now() - reply.received <= self._cache_for:
            return None
        return reply

    def request(self, node: int) -> asyncio.Task[None] | None:
        """Request ads for a node in the background, unless the phone has them, or must wait after a failure.

        Returns the request that is on its way.
        """
        if self.fresh(node) is not None or (node not in self._requests and self._must_wait):
            return None
        if node not in self._requests:
            self._requests[node] = asyncio.create_task(self._fetch(node))
            self._requests[node].add_done_callback(lambda _: self._requests.pop(node))
        return self._requests[node]

    @property
    def _must_wait(self) -> bool:
        """Whether the last failure was just now; one from the future came by another clock."""
        return dt.timedelta() <= self._clock.now() - self._failed_at < self._wait

    async def close(self) -> None:
        """Give up the requests on their way."""
        requests = list(self._requests.values())
        for each in requests:
            each.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _fetch(self, node: int) -> None:
        try:
            payload = await self._service.select(encode_request(self._contexts.fingerprint, node, self._ads))
            ads = read_reply(payload, self._contexts.parents, node, self._ads)
        except Refused as refused:
            self._failed(f"the ad service refuses: {refused}", refused.retry_after)
        except Unreachable as error:
            without = "" if self._service.is_encrypted else " (without TLS, because the settings name no authority)"
            self._failed(f"the ad service at {self._service.address} is unreachable{without}: {error}")
        except TimeoutError:
            self._failed(f"the ad service at {self._service.address} did not reply in time")
        except (DecodeError, ValueError) as error:
            self._failed(f"the reply of the ad service is invalid: {error}")
        else:
            self._failures, self.problem = 0, None
            self._replies[node] = CachedReply(ads, self._clock.now())
            self._replies.move_to_end(node)
            if len(self._replies) > KEPT:
                self._replies.popitem(last=False)

    def _failed(self, problem: str, retry_after: float | None = None) -> None:
        self.problem = problem
        self._failures += 1
        self._failed_at = self._clock.now()
        self._wait = dt.timedelta(seconds=self._backoff.delay(self._failures, retry_after))
