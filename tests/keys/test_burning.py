"""A cohort that is burnt: what its decision says of those who took part was checked."""

from collections.abc import Iterator

import pytest

from reticent.protocol import Refusal, statements
from reticent.v1 import counting_pb2 as wire
from tests.keys.phones import Contribution, House, honest, refused, request


@pytest.fixture
def house() -> Iterator[House]:
    with House() as house:
        house.enrolled(20)
        yield house


def burn(house: House, given: list[Contribution]) -> tuple[wire.DecideHead, list[wire.Receipt]]:
    return request(house.query(), 0, house.key, [], [each.receipt for each in given])


@pytest.mark.parametrize("count", [0, 1, 4, 10])
def test_those_who_took_part_are_counted(house: House, count: int) -> None:
    made = house.server.decider.decide(*burn(house, house.contributions(house.query(), 0)[:count]))
    assert (made.outcome, made.contributors) == (wire.BURNT, count)


def forged(receipts: list[wire.Receipt]) -> None:
    receipts[0].signature = bytes(64)


def repeated(receipts: list[wire.Receipt]) -> None:
    receipts[1].CopyFrom(receipts[0])


def invented(receipts: list[wire.Receipt]) -> None:
    receipts[2].phone = bytes(16)


@pytest.mark.parametrize("spoil", [forged, repeated, invented])
@pytest.mark.parametrize("count", [3, 10])
def test_receipts_that_are_none_are_refused_and_burn_nothing(house: House, spoil: object, count: int) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    head, receipts = burn(house, given[:count])
    wrong = [wire.Receipt.FromString(each.SerializeToString()) for each in receipts]
    spoil(wrong)  # type: ignore[operator]
    refused(Refusal.BAD_RECEIPTS, lambda: house.server.decider.decide(head, wrong))
    assert house.server.decider.decide(*honest(query, 0, house.key, given)).outcome == wire.RELEASED


def test_receipts_of_another_cohort_burn_nothing(house: House) -> None:
    given = house.contributions(house.query(), 1)
    refused(Refusal.BAD_RECEIPTS, lambda: house.server.decider.decide(*burn(house, given)))


def test_the_same_burn_gets_the_same_answer(house: House) -> None:
    head, receipts = burn(house, house.contributions(house.query(), 0))
    made = house.server.decider.decide(head, receipts)
    request_of = statements.RequestDigest(head)
    request_of.add(receipts)
    assert made.request == request_of.digest()
    assert house.server.decider.decide(head, receipts) == made
