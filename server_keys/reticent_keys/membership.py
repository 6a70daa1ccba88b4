"""Membership: which phones can be dealt to queries, from their invitation until they leave, are revoked or expire."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.invitation import RENEWED_AT, TOKEN_BYTES
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES, SIGNATURE_BYTES, has_small_order
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.identity import Identity
from reticent_keys.journal import Ending, EnrolledPhone, Journal
from reticent_keys.metrics import CLOCK_SKEW

__all__ = ["MEMBERSHIP", "SECOND", "Members", "end_membership", "invitation_hash"]

MEMBERSHIP = dt.timedelta(days=90)
"""The duration of a membership without renewal."""

SECOND = 1000
"""Of the journal's milliseconds."""


class Members:
    """Enrols phones, renews their memberships and ends them.

    Args:
        journal: Records the phones.
        identity: Signs memberships.
        now: The clock.
        lifetime: How long a membership lasts.
    """

    def __init__(self, journal: Journal, identity: Identity, now: Now, lifetime: dt.timedelta = MEMBERSHIP) -> None:
        if lifetime < dt.timedelta(seconds=1):
            raise ValueError(f"a membership lasts at least a second: got {lifetime}")
        self._journal = journal
        self._identity = identity
        self._now = now
        self._lifetime = lifetime

    def join(self, request: wire.JoinRequest) -> wire.Membership:
        """Enrol a phone. A phone that lost the reply repeats its request, and gets its current membership.

        Raises:
            Refused: MALFORMED, BAD_SIGNATURE, INVITATION; REVOKED or EXPIRED for a membership that has ended.
        """
        _check_size("invitation", request.invitation, TOKEN_BYTES)
        _check_size("verify_key", request.verify_key, KEY_BYTES)
        if has_small_order(request.verify_key):
            raise Refused(Refusal.MALFORMED, "anybody can sign under this verify key")
        statement = statements.joining(request.invitation, request.verify_key)
        _check_signature(request.verify_key, statement, request.signature)
        now = milliseconds(self._now())
        candidate = EnrolledPhone(secrets.token_bytes(PHONE_BYTES), request.verify_key, now, self._expiry(now))
        phone = self._journal.enrol(invitation_hash(request.invitation), candidate)
        _refuse_ended(phone, now)
        return self._membership(phone)

    def renew(self, request: wire.RenewRequest) -> wire.Membership:
        """Extend a membership that expires when the phone states. A repeated request gets the same reply.

        Raises:
            Refused: MALFORMED, UNKNOWN_PHONE, BAD_SIGNATURE, REVOKED, EXPIRED; CONFLICT if the membership expires at
                another time.
        """
        self._check_signed(request.phone, statements.renewal(request.phone, request.expires), request.signature)
        now = milliseconds(self._now())
        stated, extended = request.expires * SECOND, self._expiry(now)

        def renewed(phone: EnrolledPhone) -> EnrolledPhone:
            _refuse_ended(phone, now)
            # After a restore from a backup, the phone may know of a later renewal than the journal.
            is_later_than_journal = phone.expires < stated <= extended
            if stated not in {phone.expires, phone.renewed_from} and not is_later_than_journal:
                raise Refused(Refusal.CONFLICT, f"the membership expires at {phone.expires // SECOND}")
            if stated >= phone.expires and extended > phone.expires:
                skews.append(self._skew(stated, now))
                return phone._replace(renewed_from=stated, expires=extended)
            return phone

        skews: list[float] = []
        membership = self._membership(self._journal.change_phone(request.phone, renewed))
        for skew in skews[-1:]:  # of the attempt that counts, and none for a repeated request
            CLOCK_SKEW.observe(skew)
        return membership

    def leave(self, request: wire.LeaveRequest) -> wire.LeaveReply:
        """End a membership. Queries that were dealt earlier do not change.

        Raises:
            Refused: MALFORMED, UNKNOWN_PHONE, BAD_SIGNATURE.
        """
        self._check_signed(request.phone, statements.leaving(request.phone), request.signature)
        end_membership(self._journal, request.phone, "left")
        return wire.LeaveReply()

    def _expiry(self, now: int) -> int:
        """The expiry of a membership that begins or is renewed now: a whole second, since seconds are signed."""
        return (now + self._lifetime // dt.timedelta(milliseconds=1)) // SECOND * SECOND

    def _skew(self, expires: int, now: int) -> float:
        """The seconds by which a phone's clock is ahead that renews now, if it was never off and its clock runs evenly.

        Its clock was as much ahead when it stored the membership, of which its clock then showed less.
        """
        lifetime = self._lifetime // dt.timedelta(milliseconds=1)
        return (lifetime - (now - expires + lifetime) * RENEWED_AT / (RENEWED_AT - 1)) / SECOND

    def _membership(self, phone: EnrolledPhone) -> wire.Membership:
        expires = phone.expires // SECOND
        statement = statements.membership(phone.id, phone.verify_key, expires)
        return wire.Membership(phone=phone.id, expires=expires, signature=self._identity.signing.sign(statement))

    def _check_signed(self, phone_id: bytes, statement: bytes, signature: bytes) -> None:
        _check_size("phone", phone_id, PHONE_BYTES)
        _check_signature(self._journal.phone(phone_id).verify_key, statement, signature)


def end_membership(journal: Journal, phone_id: bytes, how: Ending) -> None:
    """End a membership. A phone that left can still be revoked; a phone that was revoked stays so.

    Raises:
        Refused: UNKNOWN_PHONE.
    """
    journal.change_phone(phone_id, lambda phone: phone if phone.ended == "revoked" else phone._replace(ended=how))


def invitation_hash(token: bytes) -> bytes:
    """The journal's name for an invitation."""
    return hashlib.sha256(token).digest()


def _check_size(name: str, content: bytes, size: int) -> None:
    """Check the length of a field of a message.

    Raises:
        Refused: MALFORMED.
    """
    if len(content) != size:
        raise Refused(Refusal.MALFORMED, f"{name} must have {size} bytes: got {len(content)}")


def _check_signature(verify_key: bytes, statement: bytes, signature: bytes) -> None:
    _check_size("signature", signature, SIGNATURE_BYTES)
    if not signed_by(verify_key, statement, signature):
        raise Refused(Refusal.BAD_SIGNATURE)


def _refuse_ended(phone: EnrolledPhone, now: int) -> None:
    if phone.ended is not None:
        raise Refused(Refusal.REVOKED, "the phone has left" if phone.ended == "left" else "the phone was revoked")
    if phone.expires <= now:
        raise Refused(Refusal.EXPIRED)
