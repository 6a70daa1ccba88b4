"""The exceptions of a phone.

    ReticentError
    └── ClientError
        ├── StepError          a reading for a step that is over, repeated or not of this day
        ├── FileError          a chain, policy, store or state file that is damaged, foreign or too new
        ├── ImpossibleOutput   a released stream that the chain and the policy cannot produce
        ├── TooFewDays         too few days are known to learn habits from (also a ValueError)
        ├── TooLarge           an exact search that would not end on a chain of this size
        ├── UnknownApp         there is no app of this name
        ├── AppRefused         the phone refuses an app, or its request
        │   ├── AdsNotAllowed       the user does not let the app show ads
        │   ├── CounterNotAllowed   the user does not let the app report this counter
        │   ├── CounterOutOfBounds  a reported number is outside its bounds
        │   └── TooManyReports      the app reports more often than the user allows
        ├── LeftBehind, Closed  a stream cannot be read on
        ├── Declined           a phone does not take part in a query, for a `Reason`
        ├── NotJoined, AlreadyJoined, BadMembership  enrolment at a key server
        └── ForeignReply       a server's reply that is not about this phone

Bad arguments raise `ValueError`; these are about facts that arise while running.
"""

from __future__ import annotations

import datetime as dt
from enum import Enum

from reticent.errors import ExitCode, ReticentError


class ClientError(ReticentError):
    """Something on the phone's side went wrong."""


class StepError(ClientError):
    """A reading came for a step that is over, was seen before, or lies outside the day."""


class FileError(ClientError):
    """A file does not hold what its reader can trust."""

    exit_code = ExitCode.BAD_INPUT


class ImpossibleOutput(ClientError):
    """An adversary was asked about outputs that cannot occur."""


class TooFewDays(ClientError, ValueError):
    """Too few days are known to learn habits from. Until there are more, a phone is to release nothing."""

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, known: int, needed: int) -> None:
        super().__init__(
            f"{known} days are too few to learn from, {needed} are needed: collect more, train on more of them, "
            "or start from a population's chain; until then let the phone release nothing"
        )
        self.known = known
        self.needed = needed


class TooLarge(ClientError):
    """An exact search was asked for on a chain that is too large for it."""


class UnknownApp(ClientError):
    """There is no app of this name."""


class AppRefused(ClientError):
    """The phone refuses this app, or its request."""


class AdsNotAllowed(AppRefused):
    """The user does not let an app show ads."""


class CounterNotAllowed(AppRefused):
    """The user does not let an app report a counter of this name."""


class CounterOutOfBounds(AppRefused):
    """A reported number is outside the bounds that the user has set."""


class TooManyReports(AppRefused):
    """An app reports more often than the user allows.

    Args:
        message: How often it may.
        retry_after: When the next report is allowed.
    """

    def __init__(self, message: str, retry_after: dt.timedelta) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[TooManyReports], tuple[str, dt.timedelta]]:
        return type(self), (str(self), self.retry_after)


class LeftBehind(ClientError):
    """Somebody asked for steps that are no longer held, or read more slowly than they are dropped."""


class Closed(ClientError):
    """The phone shuts down."""


class Reason(Enum):
    """The reason of a phone for declining a query."""

    NOT_A_MEMBER = "the phone is not enrolled"
    MALFORMED = "the announcement or its query is invalid"
    NOT_COUNTERSIGNED = "the key server has not countersigned this query"
    QUERY_MISSING = "the aggregation server does not send the announced query"
    WRONG_KEY = "the public key is not the one that the query names"
    BAD_KEY = "the public key is invalid"
    CLOSED = "the query is closed"
    CONTRIBUTED = "the phone has contributed to it before"
    NAME_TAKEN = "another query has had this name"
    OTHER_TERMS = "other queries of the same sequence name other bounds, cost or noise"
    EPSILON = "it costs a larger epsilon than is allowed"
    DELTA = "it costs a larger delta than is allowed"
    SHARE_OF_BUDGET = "it takes a larger share of the budget than is allowed"
    NOT_ALLOWED = "its name, or a counter's name, is not allowed"
    FEW_HONEST = "it may be decrypted with too few honest contributions"
    FEW_LIARS = "it tolerates too few liars"
    TOO_LARGE = "the contribution would be larger than is allowed"
    BUDGET = "it costs more than is left of the budget"
    NO_COUNTERS = "no app has counters for it"
    BAD_COUNTERS = "a counter of the app is not a number"
    NOT_CHARGING = "the phone contributes only while it is charging"
    METERED = "the phone contributes only over unmetered networks"
    QUERIES_PER_DAY = "the phone has reached its limit of queries per day"
    BYTES_PER_DAY = "the phone has reached its limit of bytes per day"

    @property
    def passing(self) -> bool:
        """Whether the phone may contribute later, under the same policy."""
        return self in _PASSING


_PASSING = {
    Reason.NOT_A_MEMBER,
    Reason.QUERY_MISSING,
    Reason.WRONG_KEY,  # whoever brings keys may bring another one
    Reason.BAD_KEY,
    Reason.CLOSED,
    Reason.BUDGET,  # what is burnt gives some of it back
    Reason.NO_COUNTERS,
    Reason.BAD_COUNTERS,
    Reason.NOT_CHARGING,
    Reason.METERED,
    Reason.QUERIES_PER_DAY,
    Reason.BYTES_PER_DAY,
}


class Declined(ClientError):
    """A phone does not take part in a query.

    Args:
        reason: Why.
        sentence: The same for the user, with the values.
        query: The query's id, where it could be read.
    """

    def __init__(self, reason: Reason, sentence: str = "", query: str | None = None) -> None:
        super().__init__(sentence or reason.value)
        self.reason = reason
        self.sentence = sentence or reason.value
        self.query = query

    def __reduce__(self) -> tuple[type[Declined], tuple[Reason, str, str | None]]:
        return type(self), (self.reason, self.sentence, self.query)


class NotJoined(ClientError):
    """The phone is no member: it has not joined, or has left."""


class AlreadyJoined(ClientError):
    """The phone is a member, by another invitation."""


class BadMembership(ClientError):
    """The reply is not a membership of this phone, or not signed by the key server."""


class ForeignReply(ClientError):
    """An acknowledgement or a decision that is not of this phone's queries, or not signed by its key server."""
