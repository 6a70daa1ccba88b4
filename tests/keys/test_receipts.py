"""Receipts and ciphertexts that are wrong: a request to decide with one of them is refused, and changes nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reticent.protocol import Refusal
from reticent.v1 import counting_pb2 as wire
from tests.parties.decision_requests import decide, honest, request, summed
from tests.parties.key_server import LocalKeyServer, decisions, refused

Change = Callable[[list[wire.Receipt], LocalKeyServer], None]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalKeyServer]:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(20)
        yield local


def other_phone(receipts: list[wire.Receipt], local: LocalKeyServer) -> None:
    receipts[3].phone = next(phone for phone in local.phones if all(phone != each.phone for each in receipts))
    receipts.sort(key=lambda each: each.phone)


def unknown_phone(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[0].phone = bytes(15) + b"1"


def repeated(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[3].CopyFrom(receipts[2])


def forged(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[3].signature = receipts[2].signature


def unsigned(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[3].signature = b""


def other_ciphertexts(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[3].ciphertexts_hash = receipts[2].ciphertexts_hash


def other_flag(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts[3].seeded = True


def one_less(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts.pop()


def one_more(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts.append(receipts[0])


def descending(receipts: list[wire.Receipt], _: LocalKeyServer) -> None:
    receipts.reverse()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (other_phone, "not dealt"),
        (unknown_phone, "not dealt"),
        (repeated, "order of their phones"),
        (descending, "order of their phones"),
        (forged, "not signed"),
        (unsigned, "not signed"),
        (other_ciphertexts, "not signed"),
        (other_flag, "not signed"),
        (one_less, "fewer or more"),
        (one_more, "fewer or more"),
    ],
)
def test_bad_receipts_are_refused_and_change_nothing(
    local: LocalKeyServer, change: Change, match: str, decryptions: list[int]
) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    head, receipts = request(query, 0, local.key, summed(local.key, inputs), [each.receipt for each in inputs])
    wrong = [wire.Receipt.FromString(each.SerializeToString()) for each in receipts]
    change(wrong, local)
    refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, head, wrong), match)
    assert not decryptions
    assert not decisions(local)
    assert decide(local.server, head, receipts).outcome == wire.RELEASED


def test_a_phone_that_says_another_cohort_than_its_own_does_not_count_there(local: LocalKeyServer) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    liar = next(local.phones[phone] for phone, cohort in local.deal(query).items() if cohort == 1)
    mixed = [*inputs[1:], liar.contribution(query, local.key, local.query_key(query), 0, (1, 2, 0))]
    refused(Refusal.BAD_RECEIPTS, lambda: decide(local.server, *honest(query, 0, local.key, mixed)), "not dealt")
    assert not decisions(local)


def test_more_receipts_than_phones_were_dealt_are_refused_before_they_are_read(local: LocalKeyServer) -> None:
    query = local.query()
    local.deal(query)

    read: list[int] = []

    def endless() -> Iterator[wire.Receipt]:
        while True:
            read.append(1)
            yield wire.Receipt()

    for contributors in (11, 2**63, 2**64 - 1):
        head = wire.DecideHead(query=query.digest, contributors=contributors)
        refused(Refusal.BAD_RECEIPTS, lambda head=head: decide(local.server, head, endless()))  # type: ignore[misc]
    assert not read
    assert not decisions(local)


def test_receipts_without_end_are_refused_in_the_end(local: LocalKeyServer) -> None:
    query = local.query()
    local.deal(query)

    def endless() -> Iterator[wire.Receipt]:
        while True:
            yield wire.Receipt()

    for contributors in (0, 3):
        head = wire.DecideHead(query=query.digest, contributors=contributors)
        refused(Refusal.BAD_RECEIPTS, lambda head=head: decide(local.server, head, endless()))  # type: ignore[misc]


def test_bad_ciphertexts_are_refused_and_change_nothing(local: LocalKeyServer, decryptions: list[int]) -> None:
    query = local.query()
    key = local.key
    inputs = local.contributions(query, 0)
    good = summed(key, inputs)
    receipts = [each.receipt for each in inputs]
    for wrong in ([0], [key.n**2], [key.n], [*good, *good]):
        message = request(query, 0, key, wrong, receipts)
        refused(Refusal.BAD_CIPHERTEXTS, lambda message=message: decide(local.server, *message))  # type: ignore[misc]
    head, _ = request(query, 0, key, good, receipts)
    head.ciphertexts += b"\0"
    refused(Refusal.BAD_CIPHERTEXTS, lambda: decide(local.server, head, receipts))
    assert not decryptions
    assert not decisions(local)
    assert decide(local.server, *honest(query, 0, key, inputs)).outcome == wire.RELEASED
