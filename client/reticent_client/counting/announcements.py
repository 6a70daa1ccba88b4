"""What a phone reads of an announcement: its countersignature, its query and the public key of the query."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import signed_by, statements
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.enrolment import Member

__all__ = ["digest_of", "is_countersigned", "read_key", "read_query"]


def is_countersigned(announcement: wire.Announcement, member: Member) -> bool:
    """Whether the key server of the phone has countersigned the query, which is not read yet.

    Reading takes time and memory, and only the key server may cause that.
    """
    statement = statements.countersigned(announcement.query, announcement.agreement_key)
    return signed_by(member.invitation.identity, statement, announcement.countersignature)


@lru_cache(maxsize=4)
def read_query(content: bytes) -> Query:
    """A query; the last ones are kept, because a phone reads each more than once."""
    return Query.from_bytes(content)


@lru_cache(maxsize=4)
def read_key(content: bytes, simulation: bool) -> PublicKey:
    """A public key; the last ones are kept, with their tables of powers."""
    return PublicKey.from_bytes(content, simulation=simulation)


def digest_of(announcement: wire.Announcement) -> bytes:
    """SHA-256 of an announcement without the time for which it is still open."""
    lasting = wire.Announcement()
    lasting.CopyFrom(announcement)
    lasting.ClearField("closes_in_ms")
    return hashlib.sha256(lasting.SerializeToString(deterministic=True)).digest()
