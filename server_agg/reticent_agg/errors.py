"""Errors of the aggregation server, as one family.

    ReticentError
    └── AggregationError
        ├── BadStore           a file that is damaged, foreign or of another version
        └── BadKeyServerReply  the key server's reply is invalid, or not signed by it

What the server refuses is `reticent.protocol.Refused`. Bad arguments raise `ValueError`.
"""

from reticent.errors import ExitCode, ReticentError

__all__ = ["AggregationError", "BadKeyServerReply", "BadStore"]


class AggregationError(ReticentError):
    """Something on the aggregation server's side went wrong."""


class BadStore(AggregationError):
    """The file does not hold what an aggregation server has written."""

    exit_code = ExitCode.BAD_INPUT


class BadKeyServerReply(AggregationError):
    """A reply that the key server cannot have meant: unsigned, or about something else."""
