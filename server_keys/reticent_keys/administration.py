"""An operator's changes to a journal, while the server runs or not; none of them needs a secret key."""

from __future__ import annotations

import datetime as dt
import secrets

from reticent.protocol import Refusal, Refused
from reticent.protocol.invitation import TOKEN_BYTES
from reticent.protocol.keys import PHONE_BYTES
from reticent.times import milliseconds
from reticent_keys.journal import Journal
from reticent_keys.membership import end_membership, invitation_hash

__all__ = ["find_phone", "invite", "revoke"]

MIN_PREFIX = 16
"""The number of digits of a phone's id that suffice to name it, if they name no other phone."""


def invite(journal: Journal, count: int, *, expires: dt.datetime) -> list[bytes]:
    """Make invitations, each for one phone; their tokens."""
    if count < 1:
        raise ValueError(f"count must be at least 1: got {count}")
    tokens = [secrets.token_bytes(TOKEN_BYTES) for _ in range(count)]
    journal.add_invitations([invitation_hash(token) for token in tokens], milliseconds(expires))
    return tokens


def find_phone(journal: Journal, digits: str) -> bytes:
    """The id of the phone whose id has these hexadecimal digits, or begins with them.

    Raises:
        ValueError: There are too few digits, or several such phones.
        Refused: UNKNOWN_PHONE.
    """
    size = 2 * PHONE_BYTES
    try:
        first, last = (bytes.fromhex(digits.ljust(size, fill)) for fill in "0f")
    except ValueError:
        first = last = b""
    if not MIN_PREFIX <= len(digits) <= size or len(first) != PHONE_BYTES:
        raise ValueError(
            f"give the {size} hexadecimal digits of a phone's id, or at least {MIN_PREFIX} of them: got {digits!r}"
        )
    found = journal.phone_ids(first, last)
    if not found:
        raise Refused(Refusal.UNKNOWN_PHONE, f"no phone has the id {digits}")
    if len(found) > 1:
        raise ValueError(f"several phones have an id that begins with {digits}: give all {size} digits")
    return found[0]


def revoke(journal: Journal, phone_id: bytes) -> bool:
    """End a membership against the phone's will. Queries that were dealt earlier do not change.

    Returns:
        Whether the phone was not revoked before.

    Raises:
        Refused: UNKNOWN_PHONE.
    """
    before = journal.phone(phone_id)
    end_membership(journal, phone_id, "revoked")
    return before.ended != "revoked"
