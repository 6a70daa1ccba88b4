"""What an operator learns: which phone, which query, which key."""

import logging
from collections.abc import Iterator

import pytest

from reticent.protocol import Refusal
from reticent_keys import administration
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_server import LocalKeyServer, refused


@pytest.fixture
def local() -> Iterator[LocalKeyServer]:
    with LocalKeyServer() as local:
        local.enrolled(20)
        yield local


def test_a_phone_is_known_by_how_its_id_begins(local: LocalKeyServer) -> None:
    journal = local.server.journal
    for phone in local.phones:
        for digits in (16, 17, 31, 32):
            assert administration.find_phone(journal, phone.hex()[:digits]) == phone
            assert administration.find_phone(journal, phone.hex().upper()[:digits]) == phone


def test_what_names_no_phone_or_two_is_refused(local: LocalKeyServer) -> None:
    journal = local.server.journal
    one, other, *_ = local.phones
    for digits in ("", one.hex()[:15], one.hex() + "0", "z" * 16, " " * 16, "é" * 32):
        with pytest.raises(ValueError, match="give the 32 hexadecimal digits of a phone's id, or at least 16 of them"):
            administration.find_phone(journal, digits)
    refused(Refusal.UNKNOWN_PHONE, lambda: administration.find_phone(journal, "0" * 16))
    with local.database.transaction() as run:
        run("UPDATE phones SET id = ? WHERE id = ?", (one[:8] + other[8:], other))
    with pytest.raises(ValueError, match="several phones have an id that begins with"):
        administration.find_phone(journal, one.hex()[:16])
    assert administration.find_phone(journal, one.hex()) == one


def test_revoking_says_whether_it_did_anything(local: LocalKeyServer) -> None:
    phone, left, *_ = local.phones.values()
    assert administration.revoke(local.server.journal, phone.id)
    assert not administration.revoke(local.server.journal, phone.id)
    local.server.members.leave(left.leaving())
    assert administration.revoke(local.server.journal, left.id)


def test_the_log_follows_a_query_by_its_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LocalKeyServer() as local:
        local.enrolled(20)
        query, key = local.query(), local.key
        inputs = local.contributions(query, 0)
        decide(local.server, *honest(query, 0, key, inputs))
        decide(local.server, *honest(query, 0, key, inputs))  # says it again, and does nothing
        local.server.keyring.rotate()
        local.server.terms()
        decide(local.server, *request(query, 1, key, [], []))
        logged = [(record.getMessage(), vars(record)) for record in caplog.records]
        assert [message for message, _ in logged] == [
            "key active",
            "countersigned",
            "decided",
            "key active",
            "decided",
        ]
        assert [found["outcome"] for message, found in logged if message == "decided"] == ["RELEASED", "BURNT"]
        assert {found["query"] for _, found in logged if "query" in found} == {"gym"}
        assert logged[1][1]["phones"] == query.population
        assert logged[0][1]["key"] == query.key_id[:16] != logged[3][1]["key"]
