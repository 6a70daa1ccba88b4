"""What can go wrong on the aggregation server, as one family.

    ReticentError
    └── AggregationError
        ├── BadStore     a file that is damaged, foreign or of another version
        └── BadAnswer    the key server says what it cannot mean, or somebody says it in its name

What the server says no to is `reticent.protocol.Refused`. Bad arguments raise `ValueError`.
"""

from reticent.errors import ReticentError

__all__ = ["AggregationError", "BadAnswer", "BadStore"]


class AggregationError(ReticentError):
    """Something on the aggregation server's side went wrong."""


class BadStore(AggregationError):
    """The file does not hold what an aggregation server has written."""


class BadAnswer(AggregationError):
    """An answer that the key server cannot have meant: unsigned, or about something else."""
