"""Calls over gRPC: how a refusal travels in the trailing metadata, and how a caller reads it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import grpc

from reticent.protocol._refusals import BadCertificate, Refusal, Refused, Unreachable

__all__ = ["REFUSAL", "RETRY_AFTER", "failure_of", "reply_of"]

REFUSAL = "refusal"
RETRY_AFTER = "retry-after-ms"
_TOO_LARGE = "larger than max"
_OTHER_AUTHORITY = "another authority issued it. Is this the right invitation, or the right certificates?"
_CERTIFICATE_FAULTS = {
    "unable to get local issuer certificate": _OTHER_AUTHORITY,
    "self signed certificate": _OTHER_AUTHORITY,
    "self-signed certificate": _OTHER_AUTHORITY,
    "certificate signature failure": _OTHER_AUTHORITY,
    "certificate is not yet valid": "it is not valid yet. Is the clock of this machine slow?",
    "certificate has expired": "it has expired, or the clock of this machine is fast",
    "Hostname Verification Check failed": "it is for another service. Is this the right address?",
}
"""The fault of a certificate, by the message of gRPC's TLS library."""
_MAX_DIGITS = 9  # of milliseconds: eleven days

Reply = TypeVar("Reply")


async def reply_of(call: Awaitable[Reply]) -> Reply:
    """The reply to a call.

    Raises:
        Refused: The server refused it.
        Unreachable: No reply arrived.
    """
    try:
        return await call
    except grpc.RpcError as error:
        raise failure_of(error) from error


def failure_of(error: grpc.RpcError) -> Refused | Unreachable:
    """A failed call as an exception of this project; never raises, whatever the server sent."""
    status = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    details = (error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None) or ""
    trailing = error.trailing_metadata() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else None
    found = {key: value for key, value in trailing or () if isinstance(value, str)}
    name = found.get(REFUSAL)
    if name is not None and name in Refusal.__members__:
        return Refused(Refusal[name], details, retry_after=_seconds(found.get(RETRY_AFTER, "")))
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED:  # by gRPC itself, or by a phone's broker: neither names a refusal
        if _TOO_LARGE in details:
            return Refused(Refusal.OVERSIZED, details)
        return Refused(Refusal.BUSY, details, retry_after=_seconds(found.get(RETRY_AFTER, "")) or 1.0)
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return Unreachable(f"{status.name}: {details} Is this the address of another service?")
    for words, fault in _CERTIFICATE_FAULTS.items():
        if status is grpc.StatusCode.UNAVAILABLE and words in details:
            return BadCertificate(f"its certificate is not accepted: {fault}")
    return Unreachable(f"{status.name if status else type(error).__name__}: {details}")


def _seconds(milliseconds: str) -> float | None:
    """The delay in the metadata of a refusal, if it is a number of milliseconds."""
    if not (milliseconds.isascii() and milliseconds.isdecimal() and len(milliseconds) <= _MAX_DIGITS):
        return None
    return int(milliseconds) / 1000
