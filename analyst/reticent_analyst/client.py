"""The analyst's calls to the aggregation server, with retries while it is unavailable."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from reticent.protocol import BadCertificate, Refusal, Refused, Unreachable
from reticent.protocol.calls import failure_of
from reticent.protocol.channels import AGGREGATION_SERVER, KEY_SERVER, blocking_channel, connection_options
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent.retry import Attempts, Backoff
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CountingStub
from reticent_analyst.errors import BadReply, DeadlineExceeded

__all__ = ["CountingClient", "OnOutage", "Timeouts"]

_FIRST_DELAY = 0.1  # seconds before the first retry
_REPLY_BYTES = 1 << 28  # a release of many counters, in many cohorts
_OPTIONS = (
    *connection_options(Backoff(_FIRST_DELAY, 2.0)),
    ("grpc.min_reconnect_backoff_ms", 1000),  # for one attempt to connect
    ("grpc.max_receive_message_length", _REPLY_BYTES),
    ("grpc.enable_retries", 0),  # this client retries
)

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)

OnOutage = Callable[[str, float], None]
"""Called before each retry, with the unavailable server and the seconds since the first attempt."""


@dataclass(frozen=True)
class Timeouts:
    """The timeouts of an analyst, in seconds.

    Args:
        call: For the reply to one call, and for a server that has never replied; at most `max_outage`.
        max_outage: For a server that has replied before and is unavailable.
        poll: Between two status calls, at most.
        monotonic: The time in seconds, from any origin.
        sleep: Sleeps for a number of seconds.
        random: Draws the jitter of delays from [0, 1].
    """

    call: float = 10.0
    max_outage: float = 600.0
    poll: float = 5.0
    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    random: Callable[[], float] = field(default=Backoff.random, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.poll <= self.max_outage or self.call <= 0:
            raise ValueError(f"timeouts must be positive, and max_outage at least poll: got {self}")

    @property
    def backoff(self) -> Backoff:
        """The delays between two status calls, and between a failure and the next attempt."""
        return Backoff(min(_FIRST_DELAY, self.poll), self.poll, retry_after_limit=math.inf, random=self.random)


class CountingClient:
    """A client of the service `reticent.v1.Counting`, by mutual TLS.

    Args:
        address: The server's host:port.
        certificate: The analyst's certificate; None for plain text, with a server on this machine.
        timeouts: How long to wait.
        on_outage: Called before each retry.
    """

    def __init__(
        self, address: str, certificate: Certificate | None, timeouts: Timeouts, on_outage: OnOutage | None = None
    ) -> None:
        self.address = address
        self.timeouts = timeouts
        credentials = None if certificate is None else certificate.channel_credentials()
        self._channel = blocking_channel(address, credentials, AGGREGATION_SERVER, _OPTIONS)
        self._server = CountingStub(self._channel)
        self._has_replied = False
        self._on_outage = on_outage or (lambda *_: None)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def terms(self) -> wire.Terms:
        """The enrolled phones and the active key."""
        return self._call(self._server.GetTerms, wire.TermsRequest())

    def announce(self, query: bytes) -> wire.QueryStatus:
        """Announce a query."""
        return self._call(self._server.Announce, wire.AnnounceRequest(query=query))

    def status(self, name: str, deadline: float = math.inf) -> wire.QueryStatus:
        """The status of a query.

        Args:
            name: The query's id.
            deadline: The latest instant of `timeouts.monotonic` for a reply.

        Raises:
            DeadlineExceeded: No reply came by then.
        """
        return self._call(self._server.Status, wire.StatusRequest(id=name), deadline)

    def abort(self, name: str) -> wire.QueryStatus:
        """Close a query, and burn its undecided cohorts."""
        return self._call(self._server.Abort, wire.AbortRequest(id=name))

    def queries(self) -> list[wire.QueryStatus]:
        """All queries, the latest first, page by page.

        Raises:
            BadReply: The pages are out of order.
            Unreachable: As for other calls, or pages still follow after `timeouts.max_outage`.
        """
        deadline = self.timeouts.monotonic() + self.timeouts.max_outage
        request, found = wire.ListRequest(), list[wire.QueryStatus]()
        while True:
            reply = self._call(self._server.List, request)
            found += reply.queries
            if not reply.next:
                return found
            if request.after and reply.next >= request.after:
                raise BadReply("the aggregation server sent pages of the list of queries out of order")
            if self.timeouts.monotonic() > deadline:
                raise Unreachable(f"{self.address} did not send all queries within {self.timeouts.max_outage:g} s")
            request.after = reply.next

    def _call(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Reply], request: Request, deadline: float = math.inf
    ) -> Reply:
        """Call a method, with retries while the server is unavailable.

        Raises:
            Refused: The server refuses.
            Unreachable: The server was unavailable for too long.
            DeadlineExceeded: The next attempt would be after the deadline.
        """
        now = self.timeouts.monotonic
        attempts = Attempts(self.timeouts.backoff, now=now)
        while True:
            attempts.timeout = self._max_outage()
            left = min(deadline - now(), attempts.left)
            try:
                reply = method(request, timeout=min(self.timeouts.call, max(_FIRST_DELAY, left)))
            except grpc.RpcError as error:
                failure = failure_of(error)
            else:
                self._has_replied = True
                return reply
            if isinstance(failure, BadCertificate) and not self._has_replied:  # waiting does not help
                raise BadCertificate(f"the aggregation server at {self.address} replies, but {failure}")
            if isinstance(failure, Refused):
                self._has_replied = True
                if not failure.refusal.retry:
                    raise failure
            attempts.timeout = self._max_outage()
            delay = attempts.failed(failure.retry_after if isinstance(failure, Refused) else None)
            self._on_outage(self._unavailable_server(failure), attempts.elapsed)
            if delay is None:
                what = "did not reply" if isinstance(failure, Unreachable) else "was unavailable"
                raise Unreachable(f"{self.address} {what} for {attempts.elapsed:.0f} s: {failure}")
            if delay > deadline - now():
                raise DeadlineExceeded
            self.timeouts.sleep(delay)

    def _max_outage(self) -> float:
        timeouts = self.timeouts
        return timeouts.max_outage if self._has_replied else min(timeouts.call, timeouts.max_outage)

    def _unavailable_server(self, failure: Refused | Unreachable) -> str:
        if isinstance(failure, Unreachable):
            return f"the aggregation server at {self.address}"
        if failure.refusal is Refusal.UNAVAILABLE and failure.detail == KEY_SERVER_UNAVAILABLE:
            return f"the {KEY_SERVER}"
        return f"the aggregation server ({failure})"
