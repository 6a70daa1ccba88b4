"""Enrolled phones that fetch a large query again and again, and read no reply."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import grpc

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import statements
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CountingStub
from tests.attacks.honest import Service
from tests.attacks.strangers import take_no_answers
from tests.attacks.target import TIMEOUT, Finding, NotReadyError, Target
from tests.parties.phone import Phone, joined
from tests.parties.queries import visits

__all__ = ["MIN_PHONES", "announced", "fetch"]

MIN_PHONES = 2
COUNTERS, NAME = 9000, 50
"""Of a large query, which has half a megabyte."""
METHOD = "/reticent.v1.Collecting/Query"
CONNECTIONS, CALLS = 40, 8
"""As many calls as a connection may leave unread. Together the replies have 160 MB."""
PAUSE = 0.5
"""Seconds after which the phone calls again, in place of the calls that were refused."""


def announced(target: Target, invitations: Sequence[Invitation], analyst: str) -> tuple[list[Phone], Query]:
    """A large query that collects contributions, and the enrolled phones that it was dealt to."""
    if len(invitations) < MIN_PHONES:
        raise NotReadyError(f"this attack needs {MIN_PHONES} invitations: got {len(invitations)}")
    with grpc.secure_channel(target.enrolment, target.credentials()) as channel:
        phones = joined(channel, invitations[:MIN_PHONES])
    with grpc.secure_channel(target.counting, target.credentials(analyst)) as channel:
        stub = CountingStub(channel)
        key = PublicKey.from_bytes(stub.GetTerms(wire.TermsRequest()).public_key, simulation=True)
        query = visits(
            key,
            MIN_PHONES,
            id=f"large {secrets.token_hex(4)}",
            counters=[Counter(f"{number:0{NAME}}", 0, 1) for number in range(COUNTERS)],
        )
        status = stub.Announce(wire.AnnounceRequest(query=query.to_bytes()), timeout=2 * TIMEOUT)
        assert status.phase == wire.COLLECTING
    return phones, query


async def fetch(
    target: Target, phones: Sequence[Phone], query: Query, connections: int = CONNECTIONS, calls: int = CALLS
) -> Finding:
    """Have one phone fetch the query on many connections at a time and read no reply, while another one needs it."""
    attacker, honest, *_ = (_request(phone, query) for phone in phones)
    return await take_no_answers(
        Service(target.collecting, target.credentials(), METHOD, honest),
        path=METHOD,
        message=attacker,
        connections=connections,
        calls=calls,
        pause=PAUSE,
    )


def _request(phone: Phone, query: Query) -> bytes:
    signature = phone.signing.sign(statements.fetching(query.digest, phone.id))
    return wire.QueryRequest(query=query.digest, phone=phone.id, signature=signature).SerializeToString()
