"""Requests to decide, as an aggregation server makes them of contributions, and the sums that they must yield."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol.layout import ciphertexts_to
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyServer
from tests.parties.phone import Contribution


def summed(key: PublicKey, contributions: Sequence[Contribution]) -> list[int]:
    """What an honest aggregation server makes of contributions."""
    return [key.add(column) for column in zip(*(each.ciphertexts for each in contributions), strict=True)]


def request(
    query: Query, cohort: int, key: PublicKey, ciphertexts: list[int], receipts: Iterable[wire.Receipt]
) -> tuple[wire.DecideHead, list[wire.Receipt]]:
    """To decide a cohort."""
    sent = sorted(receipts, key=lambda each: each.phone)
    head = wire.DecideHead(
        query=query.digest, cohort=cohort, contributors=len(sent), ciphertexts=ciphertexts_to(ciphertexts, key)
    )
    return head, sent


def honest(
    query: Query, cohort: int, key: PublicKey, contributions: Sequence[Contribution]
) -> tuple[wire.DecideHead, Iterator[wire.Receipt]]:
    """To decide the sum of these contributions."""
    head, receipts = request(query, cohort, key, summed(key, contributions), (each.receipt for each in contributions))
    return head, iter(receipts)


def decide(server: KeyServer, head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> wire.Decision:
    """Have a key server decide a request, whose receipts arrive one by one."""
    request = server.decider.begin(head)
    for receipt in receipts:
        server.decider.add(request, [receipt])
    return server.decider.decide(request)


def sums(decision: wire.Decision) -> list[int]:
    return [int.from_bytes(each, "big", signed=True) for each in decision.sums]


def expected(contributions: Sequence[Contribution]) -> list[int]:
    return [sum(column) for column in zip(*(each.values for each in contributions), strict=True)]
