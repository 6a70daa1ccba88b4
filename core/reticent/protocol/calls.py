"""How refusals travel in gRPC, and how a caller waits for an answer that may not come."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import grpc

from reticent.protocol.refusals import Refusal, Refused, Unreachable

__all__ = ["REFUSAL", "RETRY_AFTER", "STATUS", "answered", "failure_of"]

REFUSAL = "refusal"
RETRY_AFTER = "retry-after-ms"
_TOO_LARGE = "larger than max"
_MAX_WAIT = 9  # digits of milliseconds: eleven days

STATUS = {
    Refusal.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.OVERSIZED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refusal.NOT_PERMITTED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.INVITATION: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.UNKNOWN_PHONE: grpc.StatusCode.UNAUTHENTICATED,
    Refusal.REVOKED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.EXPIRED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.BAD_SIGNATURE: grpc.StatusCode.UNAUTHENTICATED,
    Refusal.UNKNOWN_QUERY: grpc.StatusCode.NOT_FOUND,
    Refusal.NOT_ASKED: grpc.StatusCode.PERMISSION_DENIED,
    Refusal.WRONG_COHORT: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.BAD_CIPHERTEXTS: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.LATE: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.NOT_ENROLLED_ENOUGH: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.KEY_RETIRED: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.BAD_QUERY: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.BAD_RECEIPTS: grpc.StatusCode.INVALID_ARGUMENT,
    Refusal.ALREADY_DECIDED: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
"""The gRPC status that goes with each refusal."""

Answer = TypeVar("Answer")


async def answered(call: Awaitable[Answer]) -> Answer:
    """What a call is answered with.

    Raises:
        Refused: The server refuses.
        Unreachable: No answer came.
    """
    try:
        return await call
    except grpc.RpcError as error:
        raise failure_of(error) from error


def failure_of(error: grpc.RpcError) -> Refused | Unreachable:
    """What went wrong with a call, in this project's own words; whatever a server says, this does not raise."""
    status = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    details = (error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None) or ""
    trailing = error.trailing_metadata() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    found = {key: value for key, value in trailing or () if isinstance(value, str)}
    name = found.get(REFUSAL)
    if name is not None and name in Refusal.__members__:
        return Refused(Refusal[name], details, retry_after=_wait(found.get(RETRY_AFTER, "")))
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:  # by gRPC itself, which has no metadata for it
        return Refused(Refusal.OVERSIZED if _TOO_LARGE in details else Refusal.BUSY, details, retry_after=1.0)
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return Unreachable(f"{status.name}: {details} Is this the address of another service?")
    return Unreachable(f"{status.name if status else type(error).__name__}: {details}")


def _wait(told: str) -> float | None:
    """The seconds after which to come back, if a server says so in a way that makes sense."""
    if not (told.isascii() and told.isdecimal() and len(told) <= _MAX_WAIT):
        return None
    return int(told) / 1000
