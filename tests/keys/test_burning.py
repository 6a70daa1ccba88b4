"""A cohort that is burnt: what its decision says of those who took part was checked."""

from collections.abc import Iterator

import pytest

from reticent.protocol import Refusal, statements
from reticent.v1 import counting_pb2 as wire
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_server import LocalKeyServer, refused
from tests.parties.phone import Contribution


@pytest.fixture
def local() -> Iterator[LocalKeyServer]:
    with LocalKeyServer() as local:
        local.enrolled(20)
        yield local


def burn(local: LocalKeyServer, inputs: list[Contribution]) -> tuple[wire.DecideHead, list[wire.Receipt]]:
    return request(local.query(), 0, local.key, [], [each.receipt for each in inputs])


@pytest.mark.parametrize("count", [0, 1, 4, 10])
def test_those_who_took_part_are_counted(local: LocalKeyServer, count: int) -> None:
    made = decide(local.server, *burn(local, local.contributions(local.query(), 0)[:count]))
    assert (made.outcome, made.contributors) == (wire.BURNT, count)


def forged(receipts: list[wire.Receipt]) -> None:
    receipts[0].signature = bytes(64)


def repeated(receipts: list[wire.Receipt]) -> None:
    receipts[1].CopyFrom(receipts[0])


def invented(receipts: list[wire.Receipt]) -> None:
    receipts[0].phone = bytes(15) + b"1"


@pytest.mark.parametrize("spoil", [forged, repeated, invented])
@pytest.mark.parametrize("count", [3, 10])
def test_receipts_that_are_none_are_refused_and_burn_nothing(local: LocalKeyServer, spoil: object, count: int) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    head, receipts = burn(local, inputs[:count])
    wrong = [wire.Receipt.FromString(each.SerializeToString()) for each in receipts]
    spoil(wrong)  # type: ignore[operator]
    refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, head, wrong))
    assert decide(local.server, *honest(query, 0, local.key, inputs)).outcome == wire.RELEASED


def test_receipts_of_another_cohort_burn_nothing(local: LocalKeyServer) -> None:
    inputs = local.contributions(local.query(), 1)
    refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, *burn(local, inputs)))


def test_the_same_burn_gets_the_same_answer(local: LocalKeyServer) -> None:
    head, receipts = burn(local, local.contributions(local.query(), 0))
    made = decide(local.server, head, receipts)
    request_of = statements.RequestDigest(head)
    request_of.add(receipts)
    assert made.request == request_of.digest()
    assert decide(local.server, head, receipts) == made
