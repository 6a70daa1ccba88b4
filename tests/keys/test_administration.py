"""What an operator is told: which phone, which query, which key."""

import logging
from collections.abc import Iterator

import pytest

from reticent.protocol import Refusal
from reticent_keys import administration
from tests.keys.phones import House, honest, refused, request


@pytest.fixture
def house() -> Iterator[House]:
    with House() as house:
        house.enrolled(20)
        yield house


def test_a_phone_is_known_by_how_its_id_begins(house: House) -> None:
    journal = house.server.journal
    for phone in house.phones:
        for digits in (16, 17, 31, 32):
            assert administration.find_phone(journal, phone.hex()[:digits]) == phone
            assert administration.find_phone(journal, phone.hex().upper()[:digits]) == phone


def test_what_names_no_phone_or_two_is_refused(house: House) -> None:
    journal = house.server.journal
    one, other, *_ = house.phones
    for digits in ("", one.hex()[:15], one.hex() + "0", "z" * 16, " " * 16, "é" * 32):
        with pytest.raises(ValueError, match="give the 32 hexadecimal digits of a phone's id, or at least 16 of them"):
            administration.find_phone(journal, digits)
    refused(Refusal.UNKNOWN_PHONE, lambda: administration.find_phone(journal, "0" * 16))
    with house.database.transaction() as run:
        run("UPDATE phones SET id = ? WHERE id = ?", (one[:8] + other[8:], other))
    with pytest.raises(ValueError, match="several phones have an id that begins with"):
        administration.find_phone(journal, one.hex()[:16])
    assert administration.find_phone(journal, one.hex()) == one


def test_revoking_says_whether_it_did_anything(house: House) -> None:
    phone, left, *_ = house.phones.values()
    assert administration.revoke(house.server.journal, phone.id)
    assert not administration.revoke(house.server.journal, phone.id)
    house.server.members.leave(left.leaving())
    assert administration.revoke(house.server.journal, left.id)


def test_the_log_follows_a_query_by_its_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with House() as house:
        house.enrolled(20)
        query, key = house.query(), house.key
        given = house.contributions(query, 0)
        house.server.decider.decide(*honest(query, 0, key, given))
        house.server.decider.decide(*honest(query, 0, key, given))  # says it again, and does nothing
        house.server.keyring.rotate()
        house.server.terms()
        house.server.decider.decide(*request(query, 1, key, [], []))
        told = [(record.getMessage(), vars(record)) for record in caplog.records]
        assert [message for message, _ in told] == [
            "key active",
            "countersigned",
            "decided",
            "key active",
            "decided",
        ]
        assert [found["outcome"] for message, found in told if message == "decided"] == ["RELEASED", "BURNT"]
        assert {found["query"] for _, found in told if "query" in found} == {"gym"}
        assert told[1][1]["phones"] == query.population
        assert told[0][1]["key"] == query.key_id[:16] != told[3][1]["key"]
