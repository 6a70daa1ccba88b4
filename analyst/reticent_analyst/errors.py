"""The exceptions of an analyst.

    ReticentError
    └── AnalystError
        ├── DeadlineExceeded  a deadline passed before a reply came; within this package only
        ├── NotConfirmed   the query was not confirmed, and not announced
        ├── BadReply       the aggregation server's reply is invalid, or not signed by the key server
        ├── NotDecided     the wait timed out; the query continues (also a CountError)
        ├── NeverDecided   the query is closed and can no longer be decided (also a CountError)
        └── LevelBurnt     an estimate of rates lacks the release of a level (also a CountError)

What a server refuses is `reticent.protocol.Refused`. Bad arguments raise `ValueError`.
"""

from reticent.errors import ExitCode, ReticentError
from reticent.privacy import CountError

__all__ = ["AnalystError", "BadReply", "DeadlineExceeded", "LevelBurnt", "NeverDecided", "NotConfirmed", "NotDecided"]


class AnalystError(ReticentError):
    """Something on the analyst's side went wrong."""


class DeadlineExceeded(AnalystError):
    """The caller's deadline passed before a reply came. Callers of this package get `NotDecided`."""

    exit_code = ExitCode.RETRY_LATER


class NotConfirmed(AnalystError):
    """The query was not confirmed, and so not announced."""


class BadReply(AnalystError):
    """The aggregation server's reply is invalid, or not signed by the key server."""


class NotDecided(AnalystError, CountError):
    """The wait timed out. The query continues."""

    exit_code = ExitCode.RETRY_LATER


class NeverDecided(AnalystError, CountError):
    """The query is closed and can no longer be decided: its phones' budget stays reserved."""

    exit_code = ExitCode.BAD_ANSWER


class LevelBurnt(AnalystError, CountError):
    """The query of a level of an estimate of rates has no release."""

    exit_code = ExitCode.BAD_ANSWER
