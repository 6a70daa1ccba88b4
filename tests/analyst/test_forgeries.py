"""What an analyst does not believe, whichever server says it."""

from collections.abc import Callable
from typing import Any

import pytest

from reticent.privacy import CohortSum, estimate
from reticent.protocol import SigningKey
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.errors import BadReply
from tests.analyst.queries import KNOWN, gym_query
from tests.parties.counting_server import CountingServer, decision_of, signed

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def resigned(change: Callable[[wire.Decision], object]) -> Callable[[CountingServer, wire.QueryStatus], None]:
    """The key server itself signs what it cannot mean."""

    def forge(server: CountingServer, status: wire.QueryStatus) -> None:
        change(status.cohorts[1].decision)
        signed(server.signer, status.cohorts[1].decision)

    return forge


def altered(change: Callable[[wire.Decision], object]) -> Callable[[CountingServer, wire.QueryStatus], object]:
    """The aggregation server changes what was signed."""
    return lambda _, status: change(status.cohorts[1].decision)


def changed(**fields: Any) -> Callable[[wire.Decision], None]:
    def change(decision: wire.Decision) -> None:
        for name, value in fields.items():
            setattr(decision, name, value)

    return change


def sums(*contents: bytes) -> Callable[[wire.Decision], None]:
    def change(decision: wire.Decision) -> None:
        del decision.sums[:]
        decision.sums.extend(contents)

    return change


FORGERIES: dict[str, tuple[Callable[[CountingServer, wire.QueryStatus], object], str]] = {
    "another signer": (lambda _, status: signed(SigningKey(), status.cohorts[1].decision), "not signed"),
    "no signature": (altered(changed(signature=b"")), "not signed"),
    "a sum": (altered(sums(b"\x63", b"\x00")), "not signed"),
    "the contributors": (altered(changed(contributors=13)), "not signed"),
    "the outcome": (altered(changed(outcome=wire.VOID)), "not signed"),
    "seeded": (altered(changed(seeded=True)), "not signed"),
    "the request": (altered(changed(request=bytes(31) + b"\x01")), "not signed"),
    "so many contributors that they fit nowhere": (altered(changed(contributors=2**64 - 1)), "counts 18446744"),
    "another query's": (resigned(changed(query=gym_query("other").digest)), "is about another query"),
    "another cohort's": (resigned(changed(cohort=2)), "is about cohort 2"),
    "a copy": (lambda _, status: status.cohorts[1].decision.CopyFrom(status.cohorts[0].decision), "is about cohort 0"),
    "more than there are": (resigned(changed(contributors=21)), "counts 21 phones of 20"),
    "too few": (resigned(changed(contributors=11)), "releases 11 contributions: at least 12 are required"),
    "no outcome": (resigned(changed(outcome=0)), "has an unknown outcome"),
    "another outcome": (resigned(changed(outcome=9)), "has an unknown outcome"),
    "burnt, with sums": (resigned(changed(outcome=wire.BURNT)), "has sums, but is not released"),
    "void, with sums": (resigned(changed(outcome=wire.VOID)), "has sums, but is not released"),
    "a sum too few": (resigned(sums(b"\x01")), "has 1 sums for 2 counters"),
    "a sum too many": (resigned(sums(b"\x01", b"\x02", b"\x03")), "has 3 sums for 2 counters"),
    "a long sum": (resigned(sums(b"\x01", b"\x00\x02")), "not encoded in the shortest form"),
    "an empty sum": (resigned(sums(b"\x01", b"")), "not encoded in the shortest form"),
    "none": (lambda _, status: status.cohorts[1].ClearField("decision"), "is decided, but 1 cohorts have no decision"),
    "a cohort too few": (lambda _, status: status.cohorts.pop(), "is invalid: phase 4, 2 cohorts"),
    "a cohort too many": (lambda _, status: status.cohorts.append(status.cohorts[0]), "is invalid: phase 4, 4 cohorts"),
    "no phase": (lambda _, status: setattr(status, "phase", 9), "is invalid: phase 9"),
    "another query": (
        lambda _, status: setattr(status, "query", gym_query("gym", epsilon=0.5).to_bytes()),
        "another query",
    ),
}


@pytest.mark.parametrize(("forge", "message"), FORGERIES.values(), ids=FORGERIES)
def test_forged_and_invalid_decisions_are_refused(
    server: CountingServer,
    analyst: Analyst,
    forge: Callable[[CountingServer, wire.QueryStatus], object],
    message: str,
) -> None:
    handle = analyst.start(gym_query())
    status = server.decided(gym_query(), KNOWN)
    forge(server, status)
    with pytest.raises(BadReply, match=message):
        handle.result()
    server.decided(gym_query(), KNOWN)
    assert handle.result() == estimate(gym_query(), KNOWN, seeded=False)


def test_a_decision_does_not_change(server: CountingServer, analyst: Analyst) -> None:
    handle = analyst.start(gym_query())
    status = server.collecting(gym_query())
    status.cohorts[1].decision.CopyFrom(signed(server.signer, decision_of(gym_query(), 1, KNOWN[1])))
    assert handle.status().outcomes == (None, "released", None)
    server.decided(gym_query(), [KNOWN[0], CohortSum(16, (26, 2)), KNOWN[2]])
    with pytest.raises(BadReply, match="two decisions about cohort 1"):
        handle.result()


def test_a_query_is_found_under_its_own_name_only(server: CountingServer, analyst: Analyst) -> None:
    server.statuses["other"] = server.decided(gym_query(), KNOWN)
    with pytest.raises(BadReply, match=r"'other'.*'gym'"):
        analyst.find("other")
    server.statuses["gym"].query = b"reticent.query.1\n"
    with pytest.raises(BadReply, match="an invalid query"):
        analyst.find("gym")


def test_an_invalid_public_key_is_refused(server: CountingServer, analyst: Analyst) -> None:
    server.key = type("Key", (), {"to_bytes": lambda _: b"\x00\x01\x03\x02"})()
    with pytest.raises(BadReply, match="invalid public key"):
        analyst.terms()
