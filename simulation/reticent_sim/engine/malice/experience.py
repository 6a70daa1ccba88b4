"""The experience of a malicious phone as plain data: its attempts, and the replies of the servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ACKNOWLEDGED", "Experience", "QueryAttempts"]

ACKNOWLEDGED = "acknowledged"
"""The reply to an accepted message, among the names of refusals."""


@dataclass(frozen=True)
class QueryAttempts:
    """The attempts of one phone on one query.

    Args:
        query: The id of the query.
        cohort: The phone's cohort.
        replies: How often each reply came: names of refusals, and `ACKNOWLEDGED`. BUSY counts once, because the number
            of calls before it depends on the machine.
        contributed: Whether a contribution of the phone was accepted.
        noise: A colluder's share of the noise in each counter, which it discloses; empty for other kinds.
    """

    query: str
    cohort: int
    replies: Mapping[str, int]
    contributed: bool
    noise: tuple[int, ...] = ()


@dataclass(frozen=True)
class Experience:
    """All attempts of one malicious phone.

    Args:
        phone: Its number.
        kind: Its kind of malice.
        attempts: On each query, in the order of the queries.
    """

    phone: int
    kind: str
    attempts: tuple[QueryAttempts, ...]
