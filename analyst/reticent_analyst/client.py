"""Calls to the aggregation server's service for analysts, which are made again while it is away."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from reticent.address import is_local
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import failure_of
from reticent.protocol.channels import AGGREGATION_SERVER, KEY_SERVER, played_by
from reticent.protocol.phases import KEY_SERVER_AWAY
from reticent.retry import Attempts, Backoff
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CountingStub

__all__ = ["CountingClient", "Hindered", "Patience", "TimeOver", "Waiting"]

_FIRST_DELAY = 0.1  # seconds before the first retry
_REPLY_BYTES = 1 << 28  # a release of many counters, in many cohorts
_OPTIONS = (
    ("grpc.max_receive_message_length", _REPLY_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.enable_retries", 0),  # they are made here
)

Asked = TypeVar("Asked", bound=Message)
Answer = TypeVar("Answer", bound=Message)


class TimeOver(Exception):
    """The caller's time is over before an answer came."""


@dataclass(frozen=True)
class Patience:
    """How long an analyst waits, in seconds.

    Args:
        call: For the answer to one call, and for a server that has never answered; no longer than `away` says.
        away: For a server that has answered before, and is away.
        poll: Between two looks at a query, at most.
        monotonic: Says what time it is, in seconds since anything.
        sleep: Has as many seconds pass.
    """

    call: float = 10.0
    away: float = 600.0
    poll: float = 5.0
    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.poll <= self.away or self.call <= 0:
            raise ValueError(f"waiting takes a time, and a server may be away for longer than a poll: got {self}")

    @property
    def backoff(self) -> Backoff:
        """The delays between two looks, and between a failure and the next attempt."""
        return Backoff(min(_FIRST_DELAY, self.poll), self.poll, retry_after_limit=math.inf)


@dataclass(frozen=True)
class Waiting:
    """Until when to wait for one answer, and who is told of it.

    Args:
        until: When the caller's time is over, by the clock of the patience; None for never.
        away: Told for how many seconds the server has not answered.
    """

    until: float | None = None
    away: Callable[[float], None] | None = None

    def left(self, now: float) -> float:
        """The seconds that are left."""
        return float("inf") if self.until is None else self.until - now


_WITHOUT_END = Waiting()


Hindered = Callable[[str], None]
"""Told who is waited for, whenever a call has to be made again."""


class CountingClient:
    """The service `reticent.v1.Counting`, by mutual TLS.

    Args:
        address: host:port.
        certificate: The analyst's; None to speak in the clear, with a server on this machine.
        patience: How long to wait.
        hindered: Told who is waited for, whenever a call has to be made again.
    """

    def __init__(
        self, address: str, certificate: Certificate | None, patience: Patience, hindered: Hindered | None = None
    ) -> None:
        self.address = address
        self.patience = patience
        self._channel = _channel(address, certificate)
        self._server = CountingStub(self._channel)
        self._has_answered = False
        self._hindered = hindered or (lambda _: None)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def standing(self) -> wire.Terms:
        """What can be asked at present."""
        return self._ask(self._server.Standing, wire.StandingRequest())

    def announce(self, query: bytes) -> wire.QueryStatus:
        """Ask a query."""
        return self._ask(self._server.Announce, wire.AnnounceRequest(query=query))

    def status(self, name: str, waiting: Waiting = _WITHOUT_END) -> wire.QueryStatus:
        """How a query stands."""
        return self._ask(self._server.Status, wire.StatusRequest(id=name), waiting)

    def abort(self, name: str) -> wire.QueryStatus:
        """Close a query, and burn it."""
        return self._ask(self._server.Abort, wire.AbortRequest(id=name))

    def queries(self) -> wire.ListReply:
        """All queries, the latest first."""
        return self._ask(self._server.List, wire.ListRequest())

    def _ask(
        self,
        method: grpc.UnaryUnaryMultiCallable[Asked, Answer],
        message: Asked,
        waiting: Waiting = _WITHOUT_END,
    ) -> Answer:
        """A call, made again with longer and longer pauses while the server is away.

        Raises:
            Refused: The server says no.
            Unreachable: It was away for too long.
            TimeOver: There is no time left.
        """
        attempts = Attempts(self.patience.backoff, now=self.patience.monotonic)
        while True:
            attempts.timeout = self._timeout()
            left = min(waiting.left(self.patience.monotonic()), attempts.left)
            try:
                answer = method(message, timeout=min(self.patience.call, max(_FIRST_DELAY, left)))
            except grpc.RpcError as error:
                failure = failure_of(error)
            else:
                self._has_answered = True
                return answer
            if isinstance(failure, Refused):
                self._has_answered = True
                if not failure.refusal.retry:
                    raise failure
            attempts.timeout = self._timeout()
            delay = attempts.failed(failure.retry_after if isinstance(failure, Refused) else None)
            self._hindered(self._hindrance(failure))
            if delay is None:
                what = "has not answered" if isinstance(failure, Unreachable) else "cannot do this, and could not"
                raise Unreachable(f"{self.address} {what} for {attempts.elapsed:.0f} s: {failure}")
            if waiting.away is not None:
                waiting.away(attempts.elapsed)
            if delay > waiting.left(self.patience.monotonic()):
                raise TimeOver
            self.patience.sleep(delay)

    def _timeout(self) -> float:
        """For how long a server may be away."""
        patience = self.patience
        return patience.away if self._has_answered else min(patience.call, patience.away)

    def _hindrance(self, failure: Refused | Unreachable) -> str:
        if isinstance(failure, Unreachable):
            return f"the aggregation server at {self.address}"
        is_behind = failure.refusal is Refusal.UNAVAILABLE and failure.detail == KEY_SERVER_AWAY
        return f"the {KEY_SERVER}" if is_behind else f"the aggregation server ({failure})"


def _channel(address: str, certificate: Certificate | None) -> grpc.Channel:
    if certificate is not None:
        return grpc.secure_channel(
            address, certificate.channel_credentials(), options=(*_OPTIONS, played_by(AGGREGATION_SERVER))
        )
    if not is_local(address):
        raise ValueError(f"{address} may be another machine: an analyst shows a certificate there")
    return grpc.insecure_channel(address, options=_OPTIONS)
