"""The parts of an announcement that a phone checks: the countersignature, the query and the query's public key."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import statements
from reticent.protocol.layout import MAX_CONTRIBUTION_BYTES, contribution_bytes
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.enrolment import Member
from reticent_client.counting.signatures import is_signed
from reticent_client.errors import Declined, Reason

__all__ = ["check_query", "checked_key", "digest_of", "is_countersigned", "read_query"]


def is_countersigned(announcement: wire.Announcement, member: Member) -> bool:
    """Whether the key server of the phone has countersigned the query, which is not read yet.

    Reading takes time and memory, and only the key server may cause that.
    """
    statement = statements.countersigned(announcement.query, announcement.agreement_key)
    return is_signed(member.invitation.identity, statement, announcement.countersignature)


@lru_cache(maxsize=4)
def read_query(content: bytes) -> Query:
    """A query; the last ones are kept, because a phone reads each more than once."""
    return Query.from_bytes(content)


@lru_cache(maxsize=4)
def read_key(content: bytes, simulation: bool) -> PublicKey:
    """A public key; the last ones are kept, with their tables of powers."""
    return PublicKey.from_bytes(content, simulation=simulation)


def check_query(announcement: wire.Announcement, query: Query) -> None:
    """Decline a query that does not fit its announcement, or that is closed."""
    if announcement.cohort >= query.cohorts:
        raise Declined(
            Reason.MALFORMED, f"{query.id!r} has {query.cohorts} cohorts: got {announcement.cohort}", query.id
        )
    if announcement.closes_in_ms == 0:
        raise Declined(Reason.CLOSED, f"{query.id!r} is closed", query.id)


def checked_key(query: Query, content: bytes, *, simulation: bool) -> tuple[PublicKey, int]:
    """The key that a query names, and the bytes of a contribution under it; declines a key that does not fit."""
    try:
        key = read_key(content, simulation)
    except ValueError as error:
        raise Declined(Reason.BAD_KEY, f"the public key for {query.id!r} is none: {error}", query.id) from error
    if key.key_id.hex() != query.key_id:
        raise Declined(Reason.WRONG_KEY, f"the public key is not the one that {query.id!r} names", query.id)
    try:
        size = contribution_bytes(query, key.bits)
    except ValueError as error:
        raise Declined(Reason.MALFORMED, f"{query.id!r} allows no contribution: {error}", query.id) from error
    if size > MAX_CONTRIBUTION_BYTES:
        raise Declined(Reason.TOO_LARGE, f"a contribution to {query.id!r} would have {size} bytes", query.id)
    return key, size


def digest_of(announcement: wire.Announcement) -> bytes:
    """SHA-256 of an announcement without the time for which it is still open."""
    lasting = wire.Announcement()
    lasting.CopyFrom(announcement)
    lasting.ClearField("closes_in_ms")
    return hashlib.sha256(lasting.SerializeToString(deterministic=True)).digest()
