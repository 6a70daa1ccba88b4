"""Errors of the aggregation server and of the ad service, as one family.

    ReticentError
    └── AggregationError
        ├── BadStore           a file that is damaged, foreign or of another version
        ├── BadKeyServerReply  the key server's reply is invalid, or not signed by it
        ├── WrongClock         the clocks of this machine and of the database differ
        ├── BadAdFolder        the same as BadStore, in the folder of an ad service
        └── NotServed          the ad service does not serve a new version, or not in time

What the server refuses is `reticent.protocol.Refused`. Bad arguments raise `ValueError`.
"""

from reticent.errors import ExitCode, ReticentError

__all__ = ["AggregationError", "BadAdFolder", "BadKeyServerReply", "BadStore", "NotServed", "WrongClock"]


class AggregationError(ReticentError):
    """Something on the aggregation server's side went wrong."""


class BadStore(AggregationError):
    """The file does not hold what an aggregation server has written."""

    exit_code = ExitCode.BAD_INPUT


class BadKeyServerReply(AggregationError):
    """A reply that the key server cannot have meant: unsigned, or about something else."""


class WrongClock(AggregationError):
    """The clocks of this machine and of the one with the database are too far apart."""

    exit_code = ExitCode.SYSTEM


class BadAdFolder(AggregationError):
    """A file in the folder of an ad service does not hold what the service has written."""

    exit_code = ExitCode.BAD_INPUT


class NotServed(AggregationError):
    """The ad service does not serve a new version, or not in time."""

    exit_code = ExitCode.RETRY_LATER
