"""The content of a journal in numbers, as the operator's commands print it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

__all__ = ["KeyServerSummary", "KeySummary", "PhoneSummary"]


@dataclass(frozen=True)
class PhoneSummary:
    """A phone, as `reticent keys phones` lists it.

    Args:
        phone: Its id, in hexadecimal.
        state: member, expired, left or revoked.
        enrolled: When it joined.
        expires: When its membership expires or expired.
    """

    phone: str
    state: str
    enrolled: dt.datetime
    expires: dt.datetime


@dataclass(frozen=True)
class KeySummary:
    """A key pair, as `reticent keys status` lists it.

    Args:
        id: Its id.
        state: The name of its `KeyState`.
        bits: Its length.
        made: When it was made.
        activated: When it became active; None if it did not.
        queries: How many queries were countersigned under it.
        undecided: How many of their cohorts are undecided, and can still be decrypted.
        overdue: How many of their cohorts were not decided in time.
    """

    id: str
    state: str
    bits: int
    made: dt.datetime
    activated: dt.datetime | None
    queries: int
    undecided: int
    overdue: int


@dataclass(frozen=True)
class KeyServerSummary:
    """The content of a journal in numbers, for `reticent keys status`.

    Args:
        identity: The server's public key, in hexadecimal.
        members: How many phones can be dealt to queries.
        phones: How many phones were ever enrolled.
        invitations: How many invitations are open.
        queries: How many queries were countersigned.
        decided: How many cohorts were decided.
        keys: The key pairs, the latest first.
        copied: When this journal was copied from another one; None if it was not.
    """

    identity: str
    members: int
    phones: int
    invitations: int
    queries: int
    decided: int
    keys: tuple[KeySummary, ...]
    copied: dt.datetime | None
