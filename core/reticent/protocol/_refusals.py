"""The refusals of servers, by name: the same names on the wire, in logs and in exceptions.

ReticentError
├── Refused      a server refused the call
└── Unreachable  no reply arrived
    └── BadCertificate  the server's certificate is not accepted
"""

from __future__ import annotations

from enum import Enum

from reticent.errors import ExitCode, ReticentError

__all__ = ["BadCertificate", "Refusal", "Refused", "Remedy", "Unreachable"]


class Remedy(Enum):
    """The change that lets a refused call succeed."""

    TIME = "nothing: retry later"
    MESSAGE = "the message"
    MEMBERSHIP = "the membership"
    PERMISSION = "what the operator permits"


class Refusal(Enum):
    """A reason, with its meaning, its gRPC status and its remedy. A refused call has changed nothing."""

    MALFORMED = "the message cannot be parsed, or a field has the wrong size", "INVALID_ARGUMENT"
    OVERSIZED = "the message is larger than the method allows", "RESOURCE_EXHAUSTED"
    BUSY = (
        "too many calls, or too many unread replies: retry after the stated delay",
        "RESOURCE_EXHAUSTED",
        Remedy.TIME,
    )
    NOT_PERMITTED = (
        "the certificate does not name a role that may call this method, or the query's owner",
        "PERMISSION_DENIED",
        Remedy.PERMISSION,
    )
    INVITATION = "the invitation is unknown, expired or taken by another phone", "PERMISSION_DENIED"
    UNKNOWN_PHONE = "no such phone is enrolled", "UNAUTHENTICATED", Remedy.MEMBERSHIP
    REVOKED = "the phone was revoked or has left", "PERMISSION_DENIED", Remedy.MEMBERSHIP
    EXPIRED = "the phone's membership has expired", "PERMISSION_DENIED", Remedy.MEMBERSHIP
    BAD_SIGNATURE = "the signature was not made with the key of the named party", "UNAUTHENTICATED"
    UNKNOWN_QUERY = "there is no such query", "NOT_FOUND"
    NOT_DEALT = "the query was not dealt to this phone", "PERMISSION_DENIED"
    WRONG_COHORT = "the phone is in another cohort", "INVALID_ARGUMENT"
    BAD_CIPHERTEXTS = (
        "the number of ciphertexts is not what the query asks for, or some are not ciphertexts",
        "INVALID_ARGUMENT",
    )
    CONFLICT = "a different message with this name was accepted earlier", "ALREADY_EXISTS"
    LATE = "the query is closed", "FAILED_PRECONDITION"
    TOO_FEW_ENROLLED = "fewer phones are enrolled than the query asks for", "FAILED_PRECONDITION"
    KEY_RETIRED = "the query names a key that is not in use", "FAILED_PRECONDITION"
    BAD_QUERY = (
        "the query is inconsistent, or the server's operator does not allow it",
        "INVALID_ARGUMENT",
    )
    BAD_RECEIPTS = (
        "some receipts are repeated, unsigned, or from phones that were not dealt to this cohort",
        "INVALID_ARGUMENT",
    )
    ALREADY_DECIDED = "this cohort was decided by another request", "ALREADY_EXISTS"
    OTHER_HIERARCHY = "the phone has another hierarchy than the ad service", "FAILED_PRECONDITION"
    UNAVAILABLE = "the server cannot do this at present", "UNAVAILABLE", Remedy.TIME

    def __init__(self, meaning: str, status: str, remedy: Remedy = Remedy.MESSAGE) -> None:
        self.meaning = meaning
        self.status = status
        """The name of the gRPC status; this module needs no gRPC."""
        self.remedy = remedy

    @property
    def retry(self) -> bool:
        """Whether the same message may succeed later, although nothing else changes."""
        return self.remedy is Remedy.TIME


class Refused(ReticentError):
    """A server refused a call.

    Args:
        refusal: The reason.
        detail: A sentence for the caller.
        retry_after: Seconds to wait before a retry, if that helps.
    """

    def __init__(self, refusal: Refusal, detail: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(f"{refusal.name}: {detail or refusal.meaning}")
        self.refusal = refusal
        self.detail = detail or refusal.meaning
        self.retry_after = retry_after
        if refusal.retry:
            self.exit_code = ExitCode.RETRY_LATER

    def __reduce__(self) -> tuple[type[Refused], tuple[Refusal, str], dict[str, float | None]]:
        return type(self), (self.refusal, self.detail), {"retry_after": self.retry_after}


class Unreachable(ReticentError):
    """No reply arrived: no server listens there, the connection broke, or the timeout passed."""

    exit_code = ExitCode.RETRY_LATER


class BadCertificate(Unreachable):
    """A server listens there, and its certificate is not accepted."""

    exit_code = ExitCode.REFUSED
