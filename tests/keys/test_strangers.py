"""Messages of strangers: each gets a refusal with a name, and changes nothing."""

import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from tests.parties.decision_requests import decide, honest, request, summed
from tests.parties.key_server import LocalKeyServer, dealt

TABLES = ("keys", "phones", "invitations", "queries", "dealt", "decryptions", "decisions")
NUMBERS = st.integers(0, 2**64 - 1)
MESSAGE = 200
"""Receipts of a message."""


class WatchedReceipt:
    """A receipt of which it is known whether anybody still has it."""

    def __init__(self, receipt: wire.Receipt) -> None:
        self.phone = receipt.phone
        self.agreement_key = receipt.agreement_key
        self.ciphertexts_hash = receipt.ciphertexts_hash
        self.seeded = receipt.seeded
        self.signature = receipt.signature


@pytest.fixture(scope="module")
def local() -> Iterator[LocalKeyServer]:
    with LocalKeyServer() as local:
        local.enrolled(20)
        local.deal(local.query())
        yield local


def content(local: LocalKeyServer) -> dict[str, list[tuple[object, ...]]]:
    with local.database.reading() as run:
        return {table: run(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608


def damaged(message: Message, place: int, byte: int) -> Message | None:
    """The message with a byte of it changed, if it still is one of its kind, and another one."""
    written = bytearray(message.SerializeToString())
    written[place % len(written)] ^= byte
    try:
        made = type(message).FromString(bytes(written))
    except Exception:  # noqa: BLE001  # the door refuses those
        return None
    return None if made == message else made


@given(place=st.integers(0, 400), byte=st.integers(1, 255))
def test_no_change_to_what_a_phone_says_is_taken(local: LocalKeyServer, place: int, byte: int) -> None:
    phone = next(iter(local.phones.values()))
    calls: tuple[tuple[Any, Message], ...] = (
        (local.server.members.join, phone.joining()),
        (local.server.members.renew, phone.renewing()),
        (local.server.members.leave, phone.leaving()),
    )
    before = content(local)
    for call, message in calls:
        wrong = damaged(message, place, byte)
        if wrong is not None and wrong.ListFields() != message.ListFields():
            if all(getattr(wrong, each.name) == getattr(message, each.name) for each in message.DESCRIPTOR.fields):
                continue  # only what is unknown was added
            with pytest.raises(Refused):
                call(wrong)
    assert content(local) == before


@given(
    query=st.binary(max_size=40),
    cohort=st.integers(0, 2**32 - 1),
    contributors=NUMBERS,
    ciphertexts=st.binary(max_size=600),
    known=st.booleans(),
    phone=st.binary(max_size=20),
    count=st.integers(0, 12),
)
def test_any_request_to_decide_is_refused_or_burnt(  # noqa: PLR0917  # hypothesis draws them
    local: LocalKeyServer,
    query: bytes,
    cohort: int,
    contributors: int,
    ciphertexts: bytes,
    known: bool,
    phone: bytes,
    count: int,
) -> None:
    head = wire.DecideHead(
        query=local.query().digest if known else query,
        cohort=cohort % 3 if known else cohort,
        contributors=contributors if contributors % 3 else contributors % 30,
        ciphertexts=ciphertexts,
    )
    receipts = [wire.Receipt(phone=phone, signature=bytes(place)) for place in range(count)]
    before = content(local)
    try:
        made = decide(local.server, head, receipts)
    except Refused as error:
        assert error.refusal in {  # noqa: PT017  # either is right
            Refusal.UNKNOWN_QUERY,
            Refusal.MALFORMED,
            Refusal.BAD_RECEIPTS,
            Refusal.BAD_CIPHERTEXTS,
            Refusal.ALREADY_DECIDED,
        }
        assert content(local) == before
    else:
        assert made.outcome == wire.BURNT
        assert head.contributors == count
        assert not made.sums


def test_receipts_are_not_kept_while_they_are_read() -> None:
    with LocalKeyServer() as local:
        local.enrolled(900)
        query = local.query(population=900, cohorts=1, min_contributions=300)
        key = local.key
        contributions = local.contributions(query, 0)
        head, receipts = request(query, 0, key, summed(key, contributions), [each.receipt for each in contributions])
        alive: weakref.WeakSet[WatchedReceipt] = weakref.WeakSet()
        most = 0

        def counted(receipts: list[wire.Receipt]) -> list[wire.Receipt]:
            watched = [WatchedReceipt(each) for each in receipts]
            alive.update(watched)
            return cast("list[wire.Receipt]", watched)

        begun = local.server.decider.begin(head)
        for first in range(0, len(receipts), MESSAGE):
            local.server.decider.add(begun, counted(receipts[first : first + MESSAGE]))
            most = max(most, len(alive))
        assert local.server.decider.decide(begun).outcome == wire.RELEASED
        assert most <= 2 * MESSAGE < len(receipts)


def test_a_query_that_was_dealt_still_serves_after_all_of_this(local: LocalKeyServer) -> None:
    fresh = local.query(id="fresh")
    assert len(dealt(local.server, fresh)) == 20
    made = decide(local.server, *honest(fresh, 0, local.key, local.contributions(fresh, 0)))
    assert made.outcome == wire.RELEASED
