"""The membership of a phone: it enrols with a key server, renews and leaves."""

from __future__ import annotations

import base64
import sys
from dataclasses import dataclass, replace
from enum import Enum

from reticent.protocol import SigningKey, signed_by, statements
from reticent.protocol.invitation import RENEWED_AT, Invitation
from reticent.protocol.keys import PHONE_BYTES
from reticent.storage.documents import DocumentFormat
from reticent.times import Now
from reticent.v1 import counting_pb2 as wire
from reticent_client.errors import AlreadyJoined, BadMembership, FileError, NotJoined
from reticent_client.store import StoreSlot

__all__ = ["MEMBERSHIP", "Enrolment", "Member", "MembershipState"]

FORMAT = DocumentFormat("reticent-membership", 1, "a membership")
MEMBERSHIP = "counting/membership"
"""The slot of the keys and of the membership."""


class MembershipState(Enum):
    """The state of a phone's membership."""

    JOINING = "has asked to join"
    MEMBER = "is a member"
    LEAVING = "is leaving"
    LEFT = "has left"
    EXPELLED = "was removed by the key server"
    REFUSED = "was refused: it needs another invitation"


@dataclass(frozen=True)
class Member:
    """The membership of a phone. Its repr has no secret.

    Args:
        invitation: By which it joined.
        signing: Its key to sign with.
        state: How far it has come.
        phone: Its id; empty before it has joined, as are the next two.
        since: When the membership came, in seconds of Unix time.
        expires: When it ends.
    """

    invitation: Invitation
    signing: SigningKey
    state: MembershipState = MembershipState.JOINING
    phone: bytes = b""
    since: int = 0
    expires: int = 0

    def to_text(self) -> str:
        """All of it as text, secrets too."""
        return FORMAT.text(
            {
                "invitation": self.invitation.to_text(),
                "signing": _text(self.signing.to_bytes()),
                "state": self.state.name,
                "phone": _text(self.phone),
                "since": self.since,
                "expires": self.expires,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Member:
        """Parse the output of `to_text`.

        Raises:
            FileError: The text is damaged.
        """
        try:
            content = FORMAT.parse(text)
            return cls(
                _shared(Invitation.from_text(content["invitation"])),
                SigningKey(_bytes(content["signing"])),
                MembershipState[content["state"]],
                _bytes(content["phone"]),
                int(content["since"]),
                int(content["expires"]),
            )
        except (ValueError, TypeError, KeyError) as error:  # whatever it is, it may quote a key
            raise FileError(f"the store is damaged: its membership cannot be read ({type(error).__name__})") from None


class Enrolment:
    """The membership of one phone, in a slot of its store.

    A request is signed in the same bytes each time, so that it can be repeated when its reply was lost.

    Args:
        slot: Where it is kept.
        now: What time it is.
    """

    def __init__(self, slot: StoreSlot, now: Now) -> None:
        self._slot = slot
        self._now = now
        self.member: Member | None = None
        self._hash = hash(None)  # of the text that was read last: most often it is the same
        self.refresh()

    def refresh(self) -> None:
        """Read the membership from the store again: another process may have changed it."""
        text = self._slot.read()
        if hash(text) != self._hash:
            self.member = None if text is None else Member.from_text(text)
            self._hash = hash(text)

    @property
    def invitation(self) -> Invitation:
        """By which the phone has joined, or is joining.

        Raises:
            NotJoined: There is none.
        """
        return self._held().invitation

    @property
    def current(self) -> Member | None:
        """The membership that lets the phone take part now."""
        member = self.member
        is_one = member is not None and member.state is MembershipState.MEMBER and self._seconds < member.expires
        return member if is_one else None

    def join(self, invitation: Invitation) -> wire.JoinRequest:
        """Run by the phone. The request to join; the phone's keys are made and stored before this returns.

        The same invitation again gets the same request.

        Raises:
            AlreadyJoined: The phone is a member by another invitation, or is leaving and the key server does not know.
        """
        held = self.member
        again = held is not None and (held.invitation.token, held.invitation.identity) == (
            invitation.token,
            invitation.identity,
        )
        if held is None or not again:
            if self.current is not None:
                raise AlreadyJoined("this phone is a member by another invitation: it has to leave first")
            if self._owes_leaving:  # the departure is signed with the keys
                raise AlreadyJoined("the key server has not confirmed the departure: run leave again")
            self._keep(Member(invitation, SigningKey()))
        elif held.state is MembershipState.REFUSED:  # once more
            self._keep(replace(held, invitation=invitation, state=MembershipState.JOINING))
        elif held.invitation != invitation:  # the servers have moved
            self._keep(replace(held, invitation=invitation))
        member = self._held()
        statement = statements.joining(invitation.token, member.signing.public)
        return wire.JoinRequest(
            invitation=invitation.token,
            verify_key=member.signing.public,
            signature=member.signing.sign(statement),
        )

    def refused(self) -> None:
        """Run by the phone. Note that the key server refuses the invitation: it is invalid, expired or used."""
        member = self._held()
        if member.state is MembershipState.JOINING:
            self._keep(replace(member, state=MembershipState.REFUSED))

    def joined(self, membership: wire.Membership) -> None:
        """Run by the phone. Take the key server's reply to the request to join or to renew.

        Raises:
            NotJoined: The phone has not asked, or is leaving.
            BadMembership: It is not for this phone, or not signed by the key server that the invitation names.
        """
        member = self._held()
        if member.state not in {MembershipState.JOINING, MembershipState.MEMBER}:
            raise NotJoined(f"this phone {member.state.value}")
        statement = statements.membership(membership.phone, member.signing.public, membership.expires)
        if not signed_by(member.invitation.identity, statement, membership.signature):
            raise BadMembership("the membership is not signed by the key server that the invitation names")
        if len(membership.phone) != PHONE_BYTES:
            raise BadMembership("the membership names no phone")
        if member.phone and membership.phone != member.phone:
            raise BadMembership("the membership is another phone's")
        if membership.expires < member.expires or (membership.expires == member.expires and member.phone):
            return  # an old one, come late
        self._keep(
            replace(
                member,
                state=MembershipState.MEMBER,
                phone=membership.phone,
                since=self._seconds,
                expires=membership.expires,
            )
        )

    def renewal(self) -> wire.RenewRequest | None:
        """Run by the phone. The request to renew, when less than a third of the membership is left.

        Or when it seems to begin later than now: the phone's clock was ahead then, and what is left is not known.
        """
        member = self.current
        if member is None:
            return None
        left, whole = member.expires - self._seconds, member.expires - member.since
        if member.since <= self._seconds and RENEWED_AT * left >= whole:
            return None
        signature = member.signing.sign(statements.renewal(member.phone, member.expires))
        return wire.RenewRequest(phone=member.phone, expires=member.expires, signature=signature)

    def request(self) -> wire.JoinRequest | wire.RenewRequest | wire.LeaveRequest | None:
        """Run by the phone. The request that the key server should get now, for the first time or again."""
        member = self.member
        if member is None:
            return None
        if member.state is MembershipState.JOINING:
            return self.join(member.invitation)
        return self.leave() if member.state is MembershipState.LEAVING else self.renewal()

    def leave(self) -> wire.LeaveRequest:
        """Run by the phone. The request to leave; the phone contributes to nothing new from now on.

        Raises:
            NotJoined: There is nothing to leave.
        """
        member = self.member
        if member is None or not member.phone or member.state is MembershipState.EXPELLED:
            raise NotJoined("this phone is not enrolled")
        if member.state is MembershipState.MEMBER:
            self._keep(replace(member, state=MembershipState.LEAVING))
        signature = member.signing.sign(statements.leaving(member.phone))
        return wire.LeaveRequest(phone=member.phone, signature=signature)

    def left(self) -> None:
        """Run by the phone. Note that the key server knows that the phone has left."""
        member = self._held()
        if member.state is MembershipState.LEAVING:
            self._keep(replace(member, state=MembershipState.LEFT))

    def expelled(self) -> None:
        """Run by the phone. Note that the key server does not list the phone any more."""
        member = self._held()
        if member.state in {MembershipState.JOINING, MembershipState.MEMBER}:
            self._keep(replace(member, state=MembershipState.EXPELLED))

    @property
    def _owes_leaving(self) -> bool:
        """Whether the key server does not know yet that this phone leaves."""
        member = self.member
        return member is not None and member.state is MembershipState.LEAVING and self._seconds < member.expires

    @property
    def _seconds(self) -> int:
        return int(self._now().timestamp())

    def _held(self) -> Member:
        if self.member is None:
            raise NotJoined("this phone has no invitation")
        return self.member

    def _keep(self, member: Member) -> None:
        text = member.to_text()
        self._slot.write(text)
        self.member, self._hash = member, hash(text)


def _shared(invitation: Invitation) -> Invitation:
    """The invitation with the texts that those of all phones of a network share."""
    return replace(
        invitation,
        authority=sys.intern(invitation.authority),
        key_server=sys.intern(invitation.key_server),
        aggregation_server=sys.intern(invitation.aggregation_server),
    )


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
