"""Which phones are counted: enrolled by invitations, until they leave, are revoked, or do not renew."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import NamedTuple

from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.invitation import TOKEN_BYTES
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES, SIGNATURE_BYTES, is_anybodys
from reticent.storage.database import Database, Execute
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.identity import Identity
from reticent_keys.journal import MEMBER

__all__ = ["LEFT", "MEMBERSHIP", "REVOKED", "SECOND", "Members", "Phone", "end", "invitation_hash"]

MEMBERSHIP = dt.timedelta(days=90)
"""How long a phone is a member without renewing."""

SECOND = 1000
"""Of the journal's milliseconds."""

LEFT, REVOKED = "left", "revoked"
_COLUMNS = "number, id, verify_key, enrolled, expires, previous, gone"


class Phone(NamedTuple):
    """What the journal says of a phone; times in milliseconds of Unix time."""

    number: int
    id: bytes
    verify_key: bytes
    enrolled: int
    expires: int
    previous: int | None
    gone: str | None


class Members:
    """The phones of a key server.

    Args:
        journal: Where they are written down.
        identity: Signs their memberships.
        now: Says what time it is.
        lifetime: How long a membership is good.
    """

    def __init__(self, journal: Database, identity: Identity, now: Now, lifetime: dt.timedelta = MEMBERSHIP) -> None:
        if lifetime < dt.timedelta(seconds=1):
            raise ValueError(f"a membership lasts at least a second: got {lifetime}")
        self._journal = journal
        self._identity = identity
        self._now = now
        self._lifetime = lifetime

    def join(self, asked: wire.JoinRequest) -> wire.Membership:
        """Enrol a phone. Whoever has lost the answer asks again, and gets the membership as it is now.

        Raises:
            Refused: MALFORMED, BAD_SIGNATURE, INVITATION, or what a phone that is over is refused with.
        """
        _sized("invitation", asked.invitation, TOKEN_BYTES)
        _sized("verify_key", asked.verify_key, KEY_BYTES)
        if is_anybodys(asked.verify_key):
            raise Refused(Refusal.MALFORMED, "the verify key is one under which anybody can sign")
        statement = statements.joining(asked.invitation, asked.verify_key)
        _check_signature(asked.verify_key, statement, asked.signature)
        now = milliseconds(self._now())
        with self._journal.transaction() as run:
            invitation = run(
                "SELECT expires, phone FROM invitations WHERE hash = ?", (invitation_hash(asked.invitation),)
            ).fetchone()
            if invitation is None:
                raise Refused(Refusal.INVITATION, "there is no such invitation")
            expires, number = invitation
            if number is None:
                if expires <= now:
                    raise Refused(Refusal.INVITATION, "the invitation is over")
                phone = self._enrolled(run, asked, now)
                run(
                    "UPDATE invitations SET phone = ? WHERE hash = ?", (phone.number, invitation_hash(asked.invitation))
                )
            else:
                phone = Phone(*run(f"SELECT {_COLUMNS} FROM phones WHERE number = ?", (number,)).fetchone())  # noqa: S608  # constants
                if phone.verify_key != asked.verify_key:
                    raise Refused(Refusal.INVITATION, "another phone took the invitation")
                _refuse_whoever_is_over(phone, now)
        return self._membership(phone)

    def renew(self, asked: wire.RenewRequest) -> wire.Membership:
        """Lengthen a membership that expires when the phone says. Said again, it gets the same answer.

        Raises:
            Refused: MALFORMED, UNKNOWN_PHONE, BAD_SIGNATURE, REVOKED, EXPIRED; CONFLICT where the membership expires
                at another time.
        """
        phone = self._signed(asked.phone, statements.renewal(asked.phone, asked.expires), asked.signature)
        now = milliseconds(self._now())
        with self._journal.transaction() as run:
            phone = self._phone(phone.id)
            _refuse_whoever_is_over(phone, now)
            said, longer = asked.expires * SECOND, self._until(now)
            known_later = phone.expires < said <= longer  # to the phone: the journal was put back from a backup
            if said not in (phone.expires, phone.previous) and not known_later:
                raise Refused(Refusal.CONFLICT, f"the membership expires at {phone.expires // SECOND}")
            if said >= phone.expires and longer > phone.expires:
                run("UPDATE phones SET previous = ?, expires = ? WHERE number = ?", (said, longer, phone.number))
                phone = self._phone(phone.id)
        return self._membership(phone)

    def leave(self, asked: wire.LeaveRequest) -> wire.LeaveReply:
        """Ask the phone no more. Queries that were dealt before are not changed.

        Raises:
            Refused: MALFORMED, UNKNOWN_PHONE, BAD_SIGNATURE.
        """
        phone = self._signed(asked.phone, statements.leaving(asked.phone), asked.signature)
        end(self._journal, phone.number, LEFT)
        return wire.LeaveReply()

    def population(self) -> int:
        """How many phones can be asked now."""
        with self._journal.reading() as run:
            (found,) = run(f"SELECT count(*) FROM phones WHERE {MEMBER}", (milliseconds(self._now()),)).fetchone()  # noqa: S608  # constants
        return int(found)

    def _enrolled(self, run: Execute, asked: wire.JoinRequest, now: int) -> Phone:
        phone = secrets.token_bytes(PHONE_BYTES)
        run(
            "INSERT INTO phones (id, verify_key, enrolled, expires) VALUES (?, ?, ?, ?)",
            (phone, asked.verify_key, now, self._until(now)),
        )
        return self._phone(phone)

    def _until(self, now: int) -> int:
        """When a membership that begins or is renewed now expires: at a whole second, which is what is signed."""
        return (now + self._lifetime // dt.timedelta(milliseconds=1)) // SECOND * SECOND

    def _membership(self, phone: Phone) -> wire.Membership:
        expires = phone.expires // SECOND
        statement = statements.membership(phone.id, phone.verify_key, expires)
        return wire.Membership(phone=phone.id, expires=expires, signature=self._identity.signing.sign(statement))

    def _signed(self, phone_id: bytes, statement: bytes, signature: bytes) -> Phone:
        _sized("phone", phone_id, PHONE_BYTES)
        phone = self._phone(phone_id)
        _check_signature(phone.verify_key, statement, signature)
        return phone

    def _phone(self, phone_id: bytes) -> Phone:
        with self._journal.reading() as run:
            row = run(f"SELECT {_COLUMNS} FROM phones WHERE id = ?", (phone_id,)).fetchone()  # noqa: S608  # constants
        if row is None:
            raise Refused(Refusal.UNKNOWN_PHONE)
        return Phone(*row)


def _sized(name: str, content: bytes, size: int) -> None:
    """Check the length of a part of a message.

    Raises:
        Refused: MALFORMED.
    """
    if len(content) != size:
        raise Refused(Refusal.MALFORMED, f"{name} must have {size} bytes: got {len(content)}")


def _check_signature(verify_key: bytes, statement: bytes, signature: bytes) -> None:
    _sized("signature", signature, SIGNATURE_BYTES)
    if not signed_by(verify_key, statement, signature):
        raise Refused(Refusal.BAD_SIGNATURE)


def _refuse_whoever_is_over(phone: Phone, now: int) -> None:
    if phone.gone is not None:
        raise Refused(Refusal.REVOKED, "the phone has left" if phone.gone == LEFT else "the phone was revoked")
    if phone.expires <= now:
        raise Refused(Refusal.EXPIRED)


def invitation_hash(token: bytes) -> bytes:
    """By what the journal knows an invitation."""
    return hashlib.sha256(token).digest()


def end(journal: Database, phone: int, how: str) -> None:
    """Have a phone be no member any more. What the operator says outweighs what the phone says."""
    with journal.transaction() as run:
        run("UPDATE phones SET gone = ? WHERE number = ? AND (gone IS NULL OR ? = ?)", (how, phone, how, REVOKED))
