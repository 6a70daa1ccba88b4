"""Contributions: what is acknowledged, what is refused, and that what is refused changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import Query
from reticent.protocol import Refused, statements
from reticent.storage.database import columns_of
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.sql_schema import FORMAT
from tests.parties import aggregation
from tests.parties.aggregation import Phone, Time
from tests.parties.key_pairs import pair


def everything(server: AggregationServer) -> list[list[str]]:
    """All that a server keeps."""
    assert isinstance(server.store, SqlStore)
    tables = sorted({table for table, _ in columns_of(FORMAT)})
    with server.store.database.reading() as run:
        return [sorted(map(repr, run(f"SELECT * FROM {table}"))) for table in tables]  # noqa: S608  # our own names


def test_what_is_acknowledged_is_counted_once_and_receipted(place: Path | str, time: Time) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query())
    sent = [Phone(number).contribution(query) for number in (0, 3, 5)]
    outcomes = server.collection.contribute(sent)
    for message, outcome in zip(sent, outcomes, strict=True):
        assert isinstance(outcome, wire.Acknowledgement)
        assert outcome.contribution == statements.digest(statements.contribution(message, query.key_id))
    (head,) = aggregation.closed(server, time, query)
    assert (head.contributors, aggregation.phones_in(head)) == (3, {0, 3, 5})
    assert [(each.phone, each.signature) for each in aggregation.receipts_of(server, head)] == [
        (message.phone, message.signature) for message in sent
    ]
    server.close()


def other_key(query: Query) -> bytes:
    """A signature of phone 1 over what phone 0 says."""
    return (
        Phone(1).contribution(query, phone=Phone(0).id, ciphertexts=Phone(0).contribution(query).ciphertexts).signature
    )


def bad(query: Query, kind: str) -> wire.Contribution:
    """A contribution of phone 0 that must be refused."""
    phone, size = Phone(0), pair(aggregation.BITS).public.ciphertext_bytes
    good = phone.contribution(query).ciphertexts
    n = pair(aggregation.BITS).public.n
    kinds: dict[str, dict[str, Any]] = {
        "short signature": {"signature": bytes(63)},
        "no signature": {"signature": b""},
        "long phone": {"phone": bytes(17)},
        "stranger": {"phone": b"x" * 16},
        "other cohort": {"cohort": 1},
        "wrong signature": {"signature": bytes(64)},
        "another's signature": {"signature": other_key(query)},
        "one byte too few": {"ciphertexts": good[:-1]},
        "one too many": {"ciphertexts": good + good[:size]},
        "none": {"ciphertexts": b""},
        "zero": {"ciphertexts": good[:-size] + bytes(size)},
        "factor of n": {"ciphertexts": good[:-size] + n.to_bytes(size, "big")},
        "beyond n squared": {"ciphertexts": good[:-size] + b"\xff" * size},
    }
    return phone.contribution(query, **kinds[kind])


REFUSED = {
    "short signature": "MALFORMED",
    "no signature": "MALFORMED",
    "long phone": "MALFORMED",
    "stranger": "NOT_DEALT",
    "other cohort": "WRONG_COHORT",
    "wrong signature": "BAD_SIGNATURE",
    "another's signature": "BAD_SIGNATURE",
    "one byte too few": "BAD_CIPHERTEXTS",
    "one too many": "BAD_CIPHERTEXTS",
    "none": "BAD_CIPHERTEXTS",
    "zero": "BAD_CIPHERTEXTS",
    "factor of n": "BAD_CIPHERTEXTS",
    "beyond n squared": "BAD_CIPHERTEXTS",
}


@pytest.mark.parametrize(("kind", "name"), REFUSED.items(), ids=list(REFUSED))
def test_what_is_refused_changes_nothing_and_harms_nobody(place: Path | str, time: Time, kind: str, name: str) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query(cohorts=2))
    before = everything(server)
    assert aggregation.outcome_names(server.collection.contribute([bad(query, kind)])) == [name]
    assert everything(server) == before
    batch = [Phone(2).contribution(query), bad(query, kind), Phone(4).contribution(query)]
    assert aggregation.outcome_names(server.collection.contribute(batch)) == ["ok", name, "ok"]
    assert aggregation.outcome_names(server.collection.contribute([Phone(0).contribution(query)])) == [
        "ok"
    ]  # the right one still may
    heads = aggregation.closed(server, time, query)
    assert aggregation.phones_in(heads[0]) == {0, 2, 4}
    server.close()


def test_a_query_that_is_not_there_or_not_countersigned_is_unknown(place: Path | str, time: Time) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.make_query()
    assert aggregation.outcome_names(server.collection.contribute([Phone(0).contribution(query)])) == ["UNKNOWN_QUERY"]
    aggregation.announce(server, query)
    assert aggregation.outcome_names(server.collection.contribute([Phone(0).contribution(query)])) == ["UNKNOWN_QUERY"]
    message = Phone(0).contribution(query)
    message.query = b"short"
    assert aggregation.outcome_names(server.collection.contribute([message])) == ["MALFORMED"]
    server.close()


def test_the_same_again_gets_the_same_acknowledgement_and_another_is_a_conflict(place: Path | str, time: Time) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query())
    first, second = Phone(1).contribution(query), Phone(1).contribution(query, attempt=1)
    flagged = Phone(1).contribution(query, seeded=True)
    (acknowledged,) = server.collection.contribute([first])
    server.collection.contribute([Phone(2).contribution(query)])
    for _ in range(2):
        assert server.collection.contribute([first]) == [acknowledged]
        assert aggregation.outcome_names(server.collection.contribute([second, flagged])) == ["CONFLICT", "CONFLICT"]
        server.close()
        server = aggregation.opened(place, time)  # nor does a restart change that
    (head,) = aggregation.closed(server, time, query)
    assert server.collection.contribute([first]) == [acknowledged]  # nor does closing
    assert aggregation.outcome_names(server.collection.contribute([second, Phone(3).contribution(query)])) == [
        "CONFLICT",
        "LATE",
    ]
    assert aggregation.phones_in(head) == {1, 2}
    assert [each.phone for each in aggregation.receipts_of(server, head)] == [Phone(1).id, Phone(2).id]
    server.close()


def test_duplicates_within_a_batch_are_counted_once(place: Path | str, time: Time) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query())
    first, second = Phone(1).contribution(query), Phone(1).contribution(query, attempt=1)
    outcomes = server.collection.contribute([first, second, first, Phone(2).contribution(query), first])
    assert aggregation.outcome_names(outcomes) == ["ok", "CONFLICT", "ok", "ok", "ok"]
    assert outcomes[0] == outcomes[2] == outcomes[4]
    (head,) = aggregation.closed(server, time, query)
    assert aggregation.phones_in(head) == {1, 2}
    server.close()


def test_a_bad_one_does_not_keep_the_good_one_after_it_in_the_same_batch_out(place: Path | str, time: Time) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query(cohorts=2))
    batch = [
        bad(query, "zero"),
        bad(query, "wrong signature"),
        Phone(0).contribution(query),
        Phone(2).contribution(query),
    ]
    assert aggregation.outcome_names(server.collection.contribute(batch)) == [
        "BAD_CIPHERTEXTS",
        "BAD_SIGNATURE",
        "ok",
        "ok",
    ]
    assert aggregation.phones_in(aggregation.closed(server, time, query)[0]) == {0, 2}
    server.close()


def test_late_is_what_comes_when_the_time_is_over_whether_or_not_anybody_has_closed(
    place: Path | str, time: Time
) -> None:
    server = aggregation.opened(place, time)
    query = aggregation.collecting(server, aggregation.make_query())
    server.collection.contribute([Phone(0).contribution(query), Phone(1).contribution(query)])
    time.pass_(query.closes_after - 0.001)
    assert aggregation.outcome_names(server.collection.contribute([Phone(2).contribution(query)])) == ["ok"]
    time.pass_(0.001)
    assert aggregation.outcome_names(server.collection.contribute([Phone(3).contribution(query)])) == ["LATE"]
    server.closing.close_due()
    time.pass_(-10)  # a clock that is set back opens nothing
    assert aggregation.outcome_names(server.collection.contribute([Phone(3).contribution(query)])) == ["LATE"]
    (head,) = aggregation.requests(server)
    assert aggregation.phones_in(head) == {0, 1, 2}
    server.close()


@pytest.mark.parametrize("at_once", [1, 2, 3, 256])
def test_a_batch_may_be_of_many_queries_and_cohorts(
    place: Path | str, time: Time, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent_agg.sql_contributions._PHONES_AT_ONCE", at_once)
    server = aggregation.opened(place, time)
    queries = [
        aggregation.collecting(server, aggregation.make_query(population=8, cohorts=cohorts)) for cohorts in (1, 2, 4)
    ]
    batch = [Phone(number).contribution(query) for number in range(8) for query in queries]
    assert aggregation.outcome_names(server.collection.contribute(batch)) == ["ok"] * 24
    for query in queries:
        for head in aggregation.closed(server, time, query):
            assert aggregation.phones_in(head) == {
                number for number in range(8) if number % query.cohorts == head.cohort
            }
    server.close()


class FullDisk:
    """A file that stops taking anything, at a moment that the test chooses."""

    def __init__(self, server: AggregationServer, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
        database = aggregation.database_of(server)
        honest = database._execute

        def execute(sql: str, values: Any = ()) -> sqlite3.Cursor:
            if sql.startswith(statement):
                raise sqlite3.OperationalError("database or disk is full")
            return honest(sql, values)

        monkeypatch.setattr(database, "_execute", execute)


@pytest.mark.parametrize("statement", ["BEGIN", "UPDATE sums", "INSERT INTO receipts", "COMMIT"])
def test_nothing_is_ahead_of_the_disk_after_a_commit_that_fails(
    path: Path, time: Time, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = aggregation.opened(path, time)
    query = aggregation.collecting(server, aggregation.make_query())
    server.collection.contribute([Phone(0).contribution(query)])
    before = everything(server)
    with monkeypatch.context() as patch:
        FullDisk(server, patch, statement)
        with pytest.raises(OSError, match="full"):
            server.collection.contribute([Phone(1).contribution(query), Phone(2).contribution(query)])
    assert everything(server) == before
    assert aggregation.outcome_names(server.collection.contribute([Phone(2).contribution(query)])) == ["ok"]
    (head,) = aggregation.closed(server, time, query)
    assert (aggregation.phones_in(head), head.contributors) == ({0, 2}, 2)
    server.close()


def test_a_disk_that_is_really_full_acknowledges_nothing(path: Path, time: Time) -> None:
    server = aggregation.opened(path, time)
    query = aggregation.collecting(server, aggregation.make_query(population=100, min_contributions=2))
    server.collection.contribute([Phone(0).contribution(query)])
    with aggregation.database_of(server).reading() as run:
        (pages,) = run("PRAGMA page_count").fetchone()
        run(f"PRAGMA max_page_count = {pages}")
    acknowledged, failed = {0}, False
    for number in range(1, 100):
        try:
            outcomes = server.collection.contribute([Phone(number).contribution(query)])
        except OSError:
            failed = True
        else:
            acknowledged |= {number} if not isinstance(outcomes[0], Refused) else set()
    assert failed
    with aggregation.database_of(server).reading() as run:
        run("PRAGMA max_page_count = 1000000")
    (head,) = aggregation.closed(server, time, query)
    assert aggregation.phones_in(head) == acknowledged
    server.close()


def test_a_locked_file_refuses_and_counts_nothing(path: Path, time: Time) -> None:
    server = aggregation.opened(path, time)
    query = aggregation.collecting(server, aggregation.make_query())
    with aggregation.database_of(server).reading() as run:
        run("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OSError, match="locked"):
        server.collection.contribute([Phone(0).contribution(query)])
    other.execute("ROLLBACK")
    other.close()
    assert (
        aggregation.outcome_names(
            server.collection.contribute([Phone(1).contribution(query), Phone(2).contribution(query)])
        )
        == ["ok"] * 2
    )
    (head,) = aggregation.closed(server, time, query)
    assert aggregation.phones_in(head) == {1, 2}
    server.close()
