"""Why a server refuses, by name: the same names on the wire, in logs and in exceptions.

ReticentError
├── Refused      a server understood, and refuses
└── Unreachable  no answer came
"""

from __future__ import annotations

from enum import Enum

from reticent.errors import ReticentError

__all__ = ["Refusal", "Refused", "Unreachable"]


class Refusal(Enum):
    """A reason, and what it means. What is refused has changed nothing."""

    MALFORMED = "the message cannot be read, or a part of it has not the size that it must have"
    OVERSIZED = "the message is larger than the method allows"
    BUSY = "too many calls, or too many answers that are not taken: come back after the stated delay"
    NOT_PERMITTED = "the certificate does not name the role that may ask this, or the query's owner"
    INVITATION = "there is no such invitation, or it is over, or another phone took it"
    UNKNOWN_PHONE = "no such phone is enrolled"
    REVOKED = "the phone was revoked, or has left"
    EXPIRED = "the phone's membership is over"
    BAD_SIGNATURE = "the signature is not that of who is named"
    UNKNOWN_QUERY = "there is no such query"
    NOT_ASKED = "the query was not dealt to this phone"
    WRONG_COHORT = "the phone is in another cohort"
    BAD_CIPHERTEXTS = "there are more or fewer ciphertexts than the query asks for, or some are none"
    CONFLICT = "something else was said before under the same name, and stands"
    LATE = "the query is closed"
    NOT_ENROLLED_ENOUGH = "fewer phones are enrolled than the query asks for"
    KEY_RETIRED = "the query names a key that is not in use"
    BAD_QUERY = "the query does not fit together, or the server's operator does not allow it"
    BAD_RECEIPTS = "some receipts are repeated, unsigned, or of phones that were not dealt to this cohort"
    ALREADY_DECIDED = "this cohort was decided, by another request"
    UNAVAILABLE = "the server cannot do this at present"


class Refused(ReticentError):
    """A server understood, and refuses.

    Args:
        refusal: Why.
        detail: A sentence for whoever asked.
        retry_after: In how many seconds to come back, where that helps.
    """

    def __init__(self, refusal: Refusal, detail: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(f"{refusal.name}: {detail or refusal.value}")
        self.refusal = refusal
        self.detail = detail or refusal.value
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[Refused], tuple[Refusal, str], dict[str, float | None]]:
        return type(self), (self.refusal, self.detail), {"retry_after": self.retry_after}


class Unreachable(ReticentError):
    """No answer came: nobody listens, the connection broke, or it took too long."""
