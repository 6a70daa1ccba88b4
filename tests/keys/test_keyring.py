import dataclasses
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyFileError, KeyPairStore
from reticent_keys.journal import Key
from reticent_keys.keyring import AHEAD
from reticent_keys.server import DECISION_TIME
from reticent_keys.summaries import KeySummary
from tests.parties.decision_requests import decide, honest, request
from tests.parties.key_pairs import pair
from tests.parties.key_server import BITS, PASSPHRASE, LocalKeyServer, dealt, refused


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalKeyServer]:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(20)
        yield local


def keys(local: LocalKeyServer) -> list[KeySummary]:
    """The latest first."""
    return list(local.server.journal.summary(milliseconds(local.clock.now())).keys)


def states(local: LocalKeyServer) -> list[str]:
    return [key.state for key in keys(local)]


def decide_cohort(local: LocalKeyServer, query: Query, cohort: int) -> wire.Decision:
    return decide(local.server, *honest(query, cohort, local.key, local.contributions(query, cohort)))


def test_a_server_begins_with_one_active_key_and_keeps_it(local: LocalKeyServer) -> None:
    first = local.key
    assert states(local) == ["ACTIVE"]
    local.restart()
    assert local.key == first
    assert states(local) == ["ACTIVE"]


def test_a_key_without_queries_is_destroyed_when_another_takes_its_place(local: LocalKeyServer) -> None:
    former = local.key.key_id.hex()
    assert local.server.keyring.rotate() == local.key.key_id.hex() != former
    assert states(local) == ["ACTIVE", "DESTROYED"]
    with pytest.raises(KeyFileError, match="is missing in"):
        local.pairs.get(former)


def test_a_former_key_decides_what_was_countersigned_under_it_and_is_then_destroyed(local: LocalKeyServer) -> None:
    query, key = local.query(), local.key
    inputs = [local.contributions(query, cohort) for cohort in range(2)]
    local.server.keyring.rotate()
    assert states(local) == ["ACTIVE", "DRAINING"]
    assert keys(local)[1].undecided == 2
    head, receipts = honest(query, 0, key, inputs[0])
    sent = (head, list(receipts))
    made = decide(local.server, *sent)
    assert made.outcome == wire.RELEASED
    local.restart()
    assert states(local) == ["ACTIVE", "DRAINING"]
    assert decide(local.server, *honest(query, 1, key, inputs[1])).outcome == wire.RELEASED
    assert states(local) == ["ACTIVE", "DESTROYED"]
    with pytest.raises(KeyFileError):
        local.pairs.get(query.key_id)
    assert decide(local.server, *sent) == made


def test_burning_empties_a_former_key_as_well(local: LocalKeyServer) -> None:
    query = local.query()
    local.deal(query)
    local.server.keyring.rotate()
    for cohort in range(2):
        decide(local.server, *request(query, cohort, local.key, [], []))
    assert states(local) == ["ACTIVE", "DESTROYED"]


def test_several_former_keys_are_kept_apart(local: LocalKeyServer) -> None:
    queries = []
    for number in range(3):
        queries.append(local.query(id=f"query {number}"))
        local.deal(queries[-1])
        local.server.keyring.rotate()
    assert states(local) == ["ACTIVE", "DRAINING", "DRAINING", "DRAINING"]
    for cohort in range(2):
        decide(local.server, *request(queries[1], cohort, local.key, [], []))
    assert states(local) == ["ACTIVE", "DRAINING", "DESTROYED", "DRAINING"]
    refused(Refusal.KEY_RETIRED, lambda: dealt(local.server, dataclasses.replace(queries[0], id="new")))


def test_a_server_notices_what_another_process_rotated(local: LocalKeyServer) -> None:
    query = local.query()
    local.deal(query)
    with LocalKeyServer(local.path, identity=local.identity, pairs=local.pairs) as other:
        other._made = 7
        other.server.keyring.rotate()
        assert local.server.terms() == other.server.terms()
        assert local.query().key_id != query.key_id
        new = local.query(id="new")
        local.deal(new)
        assert decide_cohort(local, new, 0).outcome == wire.RELEASED


def test_a_key_is_destroyed_for_good_after_a_crash_between_the_journal_and_the_file(local: LocalKeyServer) -> None:
    former = local.pairs.get(local.query().key_id)
    local.server.keyring.rotate()
    local.pairs.put(former)
    local.restart()
    with pytest.raises(KeyFileError):
        local.pairs.get(former.public.key_id.hex())


def test_nothing_is_done_under_a_retired_key_but_what_was_decided_is_told(local: LocalKeyServer) -> None:
    key, query = local.key, local.query()
    inputs = local.contributions(query, 0)
    undecided = local.contributions(query, 1)
    head, receipts = request(query, 0, key, [], [])
    made = decide(local.server, head, receipts)
    local.server.journal.retire_keys()
    refused(Refusal.UNAVAILABLE, local.server.terms)
    for _ in range(2):
        assert decide(local.server, head, receipts) == made
        refused(Refusal.ALREADY_DECIDED, lambda: decide(local.server, *honest(query, 0, key, inputs)))
        refused(Refusal.KEY_RETIRED, lambda: decide(local.server, *honest(query, 1, key, undecided)))
        refused(Refusal.KEY_RETIRED, lambda: decide(local.server, *request(query, 1, key, [], [])))
        refused(Refusal.KEY_RETIRED, lambda: dealt(local.server, query))
        refused(Refusal.KEY_RETIRED, lambda: dealt(local.server, dataclasses.replace(query, id="new")))
        local.restart()
        assert states(local) == ["ACTIVE", "RETIRED"]
        with pytest.raises(KeyFileError):
            local.pairs.get(query.key_id)
    fresh = local.query(id="fresh")
    local.deal(fresh)
    assert decide_cohort(local, fresh, 0).outcome == wire.RELEASED


def test_a_key_that_is_retired_while_a_cohort_is_decided_decides_nothing(local: LocalKeyServer) -> None:
    query, key = local.query(), local.key
    head, receipts = honest(query, 0, key, local.contributions(query, 0))

    def late() -> Iterator[wire.Receipt]:
        yield from receipts
        local.server.journal.retire_keys()

    refused(Refusal.KEY_RETIRED, lambda: decide(local.server, head, late()))
    assert local.server.journal.summary(milliseconds(local.clock.now())).decided == 0


def test_the_next_key_is_made_a_day_ahead_and_used_when_it_is_due(local: LocalKeyServer) -> None:
    first, every = local.key.key_id.hex(), dt.timedelta(days=90)
    local.advance(every - AHEAD - dt.timedelta(milliseconds=1))
    local.server.keyring.rotate_if_due(every)
    assert states(local) == ["ACTIVE"]
    local.advance(dt.timedelta(milliseconds=1))
    for _ in range(2):
        local.server.keyring.rotate_if_due(every)
        assert states(local) == ["PENDING", "ACTIVE"]
        assert local.key.key_id.hex() == first
        local.restart()
    ahead = keys(local)[0].id
    local.advance(AHEAD)
    local.server.keyring.rotate_if_due(every)
    assert states(local) == ["ACTIVE", "DESTROYED"]
    assert local.key.key_id.hex() == ahead
    local.server.keyring.rotate_if_due(every)
    assert states(local) == ["ACTIVE", "DESTROYED"]
    local.advance(2 * every)  # while it was off
    local.server.keyring.rotate_if_due(every)
    assert states(local) == ["ACTIVE", "DESTROYED", "DESTROYED"]
    with pytest.raises(KeyFileError):
        local.pairs.get(first)


@pytest.mark.parametrize("ahead", [True, False])
def test_an_operator_who_rotates_when_a_key_is_due_replaces_it(
    local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """Also if the server has found the key that is due: it would destroy the operator's one."""
    every, ring = dt.timedelta(days=90), local.server.keyring
    local.advance(every - AHEAD if ahead else every)
    ring.rotate_if_due(every)
    local.advance(AHEAD if ahead else every)
    pending, rotated = ring._pending, list[str]()

    def overtaken() -> Key | None:
        found = pending()
        rotated.append(ring.rotate())
        return found

    monkeypatch.setattr(ring, "_pending", overtaken)
    ring.rotate_if_due(every)
    assert [local.key.key_id.hex()] == rotated
    assert local.pairs.get(rotated[0]).public == local.key


def test_a_pending_key_that_cannot_be_opened_is_replaced(local: LocalKeyServer) -> None:
    every = dt.timedelta(days=90)
    local.advance(every - AHEAD)
    local.server.keyring.rotate_if_due(every)
    local.pairs.erase(keys(local)[0].id)
    local.advance(AHEAD)
    local.server.keyring.rotate_if_due(every)
    assert states(local) == ["ACTIVE", "DESTROYED", "DESTROYED"]
    assert local.key.key_id.hex() == keys(local)[0].id


def test_a_query_that_is_never_decided_holds_no_key_for_ever(local: LocalKeyServer) -> None:
    query, key = local.query(), local.key
    head, receipts = honest(query, 0, key, local.contributions(query, 0))
    local.server.keyring.rotate()
    local.advance(dt.timedelta(seconds=query.closes_after) + DECISION_TIME - dt.timedelta(milliseconds=1))
    local.server.erase_overdue()
    assert states(local) == ["ACTIVE", "DRAINING"]
    local.advance(dt.timedelta(milliseconds=1))
    local.server.erase_overdue()
    assert states(local) == ["ACTIVE", "DESTROYED"]
    with pytest.raises(KeyFileError):
        local.pairs.get(query.key_id)
    refused(Refusal.KEY_RETIRED, lambda: decide(local.server, head, receipts), "in time")
    assert decide(local.server, *request(query, 0, key, [], [])).outcome == wire.BURNT


def test_phones_of_old_queries_are_deleted_and_decisions_stay(local: LocalKeyServer) -> None:
    old, query = local.query(id="old"), local.query()
    head, receipts = honest(old, 0, local.key, local.contributions(old, 0))
    sent = list(receipts)
    made = decide(local.server, head, sent)
    keep = dt.timedelta(days=30)
    inputs = local.contributions(query, 0)
    local.advance(keep)
    assert not local.server.prune(keep), "a cohort of it is undecided"
    decide(local.server, *request(old, 1, local.key, [], []))
    local.advance(keep + dt.timedelta(milliseconds=1))
    assert local.server.prune(keep) == 21, "twenty phones, and what was noted of a decryption"
    assert not local.server.prune(keep)
    local.restart()
    assert decide(local.server, head, sent) == made
    refused(Refusal.ALREADY_DECIDED, lambda: decide(local.server, *request(old, 0, local.key, [], [])))
    refused(Refusal.ALREADY_DECIDED, lambda: dealt(local.server, old), "its phones are deleted")
    assert decide(local.server, *request(query, 0, local.key, [], [each.receipt for each in inputs])).contributors == 10
    phone = next(iter(local.phones.values()))
    assert local.server.members.renew(phone.renewing()).phone == phone.id
    fresh = local.query(id="fresh")
    assert decide_cohort(local, fresh, 0).outcome == wire.RELEASED


def test_a_query_that_is_overdue_for_long_is_not_burnt_either(local: LocalKeyServer) -> None:
    """The final refusal: an aggregation server would repeat a request whose receipts are refused."""
    query, key = local.query(), local.key
    receipts = [each.receipt for each in local.contributions(query, 0)]
    keep = dt.timedelta(days=30)
    local.advance(dt.timedelta(seconds=query.closes_after) + DECISION_TIME + keep)
    assert not local.server.prune(keep)
    local.advance(dt.timedelta(milliseconds=1))
    assert local.server.prune(keep) == 20
    for sent in (receipts, []):
        late = request(query, 0, key, [], sent)
        refused(Refusal.KEY_RETIRED, lambda late=late: decide(local.server, *late), "its phones are deleted")  # type: ignore[misc]
    refused(Refusal.ALREADY_DECIDED, lambda: dealt(local.server, query), "its phones are deleted")


def test_a_vault_opens_what_another_one_sealed(tmp_path: Path) -> None:
    sealed = pair(BITS, 1)
    name = sealed.public.key_id.hex()
    KeyPairStore(tmp_path, PASSPHRASE, simulation=True).put(sealed)
    pairs = KeyPairStore(tmp_path, PASSPHRASE, simulation=True)
    assert pairs.get(name).public == sealed.public
    assert PASSPHRASE not in repr(pairs)
    with pytest.raises(ValueError, match="3072 or 4096 bits"):
        KeyPairStore(tmp_path, PASSPHRASE).get(name)
    (tmp_path / f"{'0' * 64}.key").write_bytes((tmp_path / f"{name}.key").read_bytes())
    with pytest.raises(KeyFileError, match="does not hold the key pair of its name"):
        pairs.get("0" * 64)
    pairs.erase(name)
    pairs.erase(name)
    assert not (tmp_path / f"{name}.key").exists()
    with pytest.raises(KeyFileError, match="is missing in"):
        pairs.get(name)
