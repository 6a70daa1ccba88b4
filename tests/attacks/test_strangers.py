"""Strangers at all listeners of both servers, which are real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import statements
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CountingStub, EnrolmentStub
from tests.attacks.strangers import hold_connections, take_no_answers
from tests.attacks.target import PATIENCE, Target
from tests.keys.phones import Phone
from tests.system.processes import ANALYST, Servers, running

pytestmark = pytest.mark.slow  # real processes, some seconds

PHONES = 2
OPTIONS = ("--min-honest", "2", "--min-liars-share", "0")
COUNTERS, NAME = 9000, 50
"""Of a large query, which has half a megabyte."""
CALLS = 600
MAX_BYTES = 64 << 20
"""Bytes by which answers that nobody takes may make a server larger; all of them have 400 MB, in one copy."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with running(tmp_path_factory.mktemp("strangers"), keys_options=OPTIONS) as made:
        yield made


@pytest.mark.parametrize("listener", ["enrolment", "collecting"])
def test_whoever_takes_no_answers_keeps_nobody_out(servers: Servers, listener: str) -> None:
    target = Target.of(servers)
    finding = asyncio.run(take_no_answers(getattr(target, listener), target.credentials()))
    assert not finding.succeeded, finding


@pytest.mark.parametrize(
    ("listener", "name"),
    [("enrolment", None), ("deciding", "aggregation"), ("collecting", None), ("counting", ANALYST)],
)
def test_whoever_holds_connections_keeps_nobody_out(servers: Servers, listener: str, name: str | None) -> None:
    target = Target.of(servers)
    finding = asyncio.run(hold_connections(getattr(target, listener), target.credentials(name)))
    assert not finding.succeeded, finding


def test_a_phone_that_does_not_read_large_queries_takes_a_bounded_memory(servers: Servers) -> None:
    """It is enrolled, and asks hundreds of times for a query of half a megabyte. A stranger is not told it at all."""
    target = Target.of(servers)
    phones, query = asked(servers, target)
    signature = phones[0].signing.sign(statements.fetching(query.digest, phones[0].id))
    request = wire.QueryRequest(query=query.digest, phone=phones[0].id, signature=signature)
    before = servers.aggregation.memory()
    servers.aggregation.forget_peak()
    finding = asyncio.run(
        take_no_answers(
            target.collecting,
            target.credentials(),
            path="/reticent.v1.Collecting/Query",
            message=request.SerializeToString(),
            calls=CALLS,
            pause=4.0,
        )
    )
    assert not finding.succeeded, finding
    assert servers.aggregation.peak() - before < MAX_BYTES < CALLS * len(query.to_bytes())


def asked(servers: Servers, target: Target) -> tuple[list[Phone], Query]:
    """A large query that collects, and the phones to which it was dealt."""
    phones = [Phone(each.token) for each in servers.invitations(PHONES)]
    with grpc.secure_channel(target.enrolment, target.credentials()) as channel:
        for phone in phones:
            phone.membership = EnrolmentStub(channel).Join(phone.joining(), timeout=PATIENCE)
    with grpc.secure_channel(target.counting, target.credentials(ANALYST)) as channel:
        analyst = CountingStub(channel)
        key = PublicKey.from_bytes(analyst.Standing(wire.StandingRequest()).public_key, simulation=True)
        query = Query(
            id="large",
            counters=[Counter(f"{number:0{NAME}}", 0, 1) for number in range(COUNTERS)],
            epsilon=1.0,
            delta=1e-5,
            l2_squared=1,
            l1=1,
            noise="skellam",
            population=PHONES,
            cohorts=1,
            min_contributions=PHONES,
            liars=0,
            key_id=key.key_id.hex(),
            closes_after=3600,
        )
        status = analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()), timeout=2 * PATIENCE)
        assert status.phase == wire.COLLECTING
    return phones, query
