"""A phone in the hands of a test: it sends what a real phone sends, without noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import grpc

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, signed_by, statements
from reticent.protocol.invitation import Invitation
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import EnrolmentStub

TIMEOUT = 30.0
"""Seconds that a call may take."""


@dataclass
class Contribution:
    """What a phone sends, and its receipt."""

    ciphertexts: list[int]
    receipt: wire.Receipt
    values: Sequence[int]


@dataclass
class Phone:
    """A phone that is enrolled."""

    token: bytes
    signing: SigningKey = field(default_factory=SigningKey)
    membership: wire.Membership = field(default_factory=wire.Membership)

    @property
    def id(self) -> bytes:
        return self.membership.phone

    def joining(self) -> wire.JoinRequest:
        statement = statements.joining(self.token, self.signing.public)
        return wire.JoinRequest(
            invitation=self.token,
            verify_key=self.signing.public,
            signature=self.signing.sign(statement),
        )

    def renewing(self) -> wire.RenewRequest:
        expires = self.membership.expires
        signature = self.signing.sign(statements.renewal(self.id, expires))
        return wire.RenewRequest(phone=self.id, expires=expires, signature=signature)

    def leaving(self) -> wire.LeaveRequest:
        return wire.LeaveRequest(phone=self.id, signature=self.signing.sign(statements.leaving(self.id)))

    def contribution(
        self,
        query: Query,
        key: PublicKey,
        query_key: bytes,
        cohort: int,
        values: Sequence[int],
        *,
        seeded: bool = False,
        own: AgreementKey | None = None,
    ) -> Contribution:
        own = own or AgreementKey()
        secret = shared_secret(own, phone=self.id, phone_key=own.public, query_key=query_key)
        packing = packing_of(query, key.bits)
        tags = [tag(secret, query.digest, cohort, place) for place in range(packing.plaintexts)]
        padded = [
            centred(plaintext + pad(secret, query.digest, cohort, place, key.n), key.n)
            for place, plaintext in enumerate(packing.pack(values, tags))
        ]
        ciphertexts = key.encrypt(padded, secure())
        digest = statements.ciphertexts_hash(ciphertexts_to(ciphertexts, key))
        receipt = wire.Receipt(phone=self.id, agreement_key=own.public, ciphertexts_hash=digest, seeded=seeded)
        receipt.signature = self.signing.sign(statements.contribution_of(query.digest, query.key_id, cohort, receipt))
        return Contribution(ciphertexts, receipt, values)

    def message(
        self, query: Query, key: PublicKey, query_key: bytes, cohort: int, values: Sequence[int]
    ) -> wire.Contribution:
        """The contribution as the phone sends it to the aggregation server."""
        made = self.contribution(query, key, query_key, cohort, values)
        return wire.Contribution(
            query=query.digest,
            phone=self.id,
            cohort=cohort,
            agreement_key=made.receipt.agreement_key,
            ciphertexts=ciphertexts_to(made.ciphertexts, key),
            seeded=made.receipt.seeded,
            signature=made.receipt.signature,
        )


def joined(channel: grpc.Channel, invitations: Iterable[Invitation]) -> list[Phone]:
    """New phones, which have joined by a channel to the key server."""
    stub = EnrolmentStub(channel)
    phones = []
    for invitation in invitations:
        phone = Phone(invitation.token)
        made = phone.membership = stub.Join(phone.joining(), timeout=TIMEOUT)
        statement = statements.membership(phone.id, phone.signing.public, made.expires)
        assert signed_by(invitation.identity, statement, made.signature)
        phones.append(phone)
    return phones
