"""A test in the place of the aggregation server, which calls the real key server with its certificate."""

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.calls import failure_of
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_sim.engine import ServerPair
from tests.parties.decision_requests import request, summed
from tests.parties.phone import Contribution, Phone, joined
from tests.parties.queries import visits

TIMEOUT = 60.0
"""Seconds that a call may take."""
PHONES, COHORTS = 16, 2
MIN_CONTRIBUTIONS = 5  # of the eight of a cohort
OPTIONS = ("--min-honest", "2", "--min-liars-share", "0")

Sent = tuple[wire.DecideHead, list[wire.Receipt]]


class Forwarder:
    """Plays the aggregation server: has queries countersigned and cohorts decided, by whatever requests.

    Args:
        servers: The key server of which runs.
    """

    def __init__(self, servers: ServerPair) -> None:
        self.servers = servers
        self.channel = servers.deciding.blocking_channel()
        self.stub = counting_pb2_grpc.DecidingStub(self.channel)
        self.enrolment_channel = servers.enrolment.blocking_channel()
        self.enrolment = counting_pb2_grpc.EnrolmentStub(self.enrolment_channel)
        self.revoked, *others = joined(self.enrolment_channel, servers.invitations(1 + PHONES))
        servers.run("keys", "revoke", self.revoked.id.hex())
        self.phones = {phone.id: phone for phone in others}

    @property
    def key(self) -> PublicKey:
        terms = self.stub.GetTerms(wire.TermsRequest(), timeout=TIMEOUT)
        return PublicKey.from_bytes(terms.public_key, simulation=True)

    def asked(self, **changes: Any) -> "ForwardedQuery":
        """A new query, countersigned and dealt, to which all phones have contributed."""
        fields: dict[str, Any] = {
            "counters": [Counter("visits", 0, 3), Counter("late", 0, 1)],
            "l2_squared": 10,
            "l1": 4,
            "cohorts": COHORTS,
            "min_contributions": MIN_CONTRIBUTIONS,
            "liars": 1,
        }
        query = visits(self.key, PHONES, **fields | changes)
        deals = list(self.stub.Countersign(wire.CountersignRequest(query=query.to_bytes()), timeout=TIMEOUT))
        head = deals[0]
        statement = statements.countersigned(query.digest, head.agreement_key)
        assert signed_by(self.servers.identity, statement, head.countersignature)
        dealt = {each.phone: each.cohort for deal in deals for each in deal.phones}
        assert self.revoked.id not in dealt
        return ForwardedQuery(query, self.key, head, dealt, self.phones)

    def decided(self, sent: Sent) -> wire.Decision:
        """What the key server decides; raises Refused."""
        head, receipts = sent
        messages = [wire.DecideRequest(head=head)]
        ordered = sorted(receipts, key=lambda each: each.phone)
        parts = [ordered[at : at + 3] for at in range(0, len(ordered), 3)]
        messages += [wire.DecideRequest(receipts=wire.Receipts(receipts=part)) for part in parts]
        return self.said(messages)

    def said(self, messages: Iterable[wire.DecideRequest]) -> wire.Decision:
        try:
            decision = self.stub.Decide(iter(messages), timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise failure_of(error) from error
        assert signed_by(self.servers.identity, statements.decision(decision), decision.signature)
        return decision

    def refusal(self, sent: Sent) -> Refusal:
        with pytest.raises(Refused) as refused:
            self.decided(sent)
        return refused.value.refusal

    def decisions(self, query: Query) -> int:
        """How many the journal has."""
        with contextlib.closing(sqlite3.connect(self.servers.journal)) as journal:
            asked = "SELECT count(*) FROM decisions JOIN queries ON number = query WHERE digest = ?"
            return int(journal.execute(asked, (query.digest,)).fetchone()[0])

    def close(self) -> None:
        self.channel.close()
        self.enrolment_channel.close()


class ForwardedQuery:
    """A query with all contributions to it."""

    def __init__(
        self, query: Query, key: PublicKey, head: wire.Deal, dealt: dict[bytes, int], phones: dict[bytes, Phone]
    ) -> None:
        self.query = query
        self.key = key
        self.head = head
        """With the countersignature and the query's key."""
        self.dealt = dealt
        self.cohorts: list[list[Contribution]] = [
            [
                phones[phone].contribution(query, key, head.agreement_key, cohort, (place % 4, place % 2))
                for place, phone in enumerate(phone for phone, to in sorted(dealt.items()) if to == cohort)
                if phone in phones
            ]
            for cohort in range(query.cohorts)
        ]

    def sent(self, ciphertexts: Sequence[int], contributions: Iterable[Contribution], cohort: int = 0) -> Sent:
        """These sums, with these phones' receipts."""
        receipts = [each.receipt for each in contributions]
        return request(self.query, cohort, self.key, list(ciphertexts), receipts)

    def honest(self, cohort: int = 0, without: int = 0) -> Sent:
        """The sum of a cohort, or of part of it."""
        some = self.cohorts[cohort][without:]
        return self.sent(summed(self.key, some), some, cohort)
