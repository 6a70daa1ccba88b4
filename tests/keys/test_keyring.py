import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.privacy import Query
from reticent.protocol import Refusal
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyFileError, KeyPairStore
from reticent_keys.journal import KeySummary
from tests.core.paillier.keys import pair
from tests.keys.phones import BITS, PASSPHRASE, House, dealt, honest, refused, request


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "journal.db") as house:
        house.enrolled(20)
        yield house


def keys(house: House) -> list[KeySummary]:
    """The latest first."""
    return list(house.server.journal.summary(milliseconds(house.clock.now())).keys)


def states(house: House) -> list[str]:
    return [key.state for key in keys(house)]


def decide(house: House, query: Query, cohort: int) -> wire.Decision:
    return house.server.decider.decide(*honest(query, cohort, house.key, house.contributions(query, cohort)))


def test_a_server_begins_with_one_active_key_and_keeps_it(house: House) -> None:
    first = house.key
    assert states(house) == ["ACTIVE"]
    house.restart()
    assert house.key == first
    assert states(house) == ["ACTIVE"]


def test_a_key_without_queries_is_destroyed_when_another_takes_its_place(house: House) -> None:
    former = house.key.key_id.hex()
    assert house.server.keyring.rotate() == house.key.key_id.hex() != former
    assert states(house) == ["ACTIVE", "DESTROYED"]
    with pytest.raises(KeyFileError, match="is missing in"):
        house.pairs.get(former)


def test_a_former_key_decides_what_was_countersigned_under_it_and_is_then_destroyed(house: House) -> None:
    query, key = house.query(), house.key
    given = [house.contributions(query, cohort) for cohort in range(2)]
    house.server.keyring.rotate()
    assert states(house) == ["ACTIVE", "DRAINING"]
    assert keys(house)[1].undecided == 2
    asked = honest(query, 0, key, given[0])
    told = (asked[0], list(asked[1]))
    made = house.server.decider.decide(*told)
    assert made.outcome == wire.RELEASED
    house.restart()
    assert states(house) == ["ACTIVE", "DRAINING"]
    assert house.server.decider.decide(*honest(query, 1, key, given[1])).outcome == wire.RELEASED
    assert states(house) == ["ACTIVE", "DESTROYED"]
    with pytest.raises(KeyFileError):
        house.pairs.get(query.key_id)
    assert house.server.decider.decide(*told) == made


def test_burning_empties_a_former_key_as_well(house: House) -> None:
    query = house.query()
    house.deal(query)
    house.server.keyring.rotate()
    for cohort in range(2):
        house.server.decider.decide(*request(query, cohort, house.key, [], []))
    assert states(house) == ["ACTIVE", "DESTROYED"]


def test_several_former_keys_are_kept_apart(house: House) -> None:
    queries = []
    for number in range(3):
        queries.append(house.query(id=f"query {number}"))
        house.deal(queries[-1])
        house.server.keyring.rotate()
    assert states(house) == ["ACTIVE", "DRAINING", "DRAINING", "DRAINING"]
    for cohort in range(2):
        house.server.decider.decide(*request(queries[1], cohort, house.key, [], []))
    assert states(house) == ["ACTIVE", "DRAINING", "DESTROYED", "DRAINING"]
    refused(Refusal.KEY_RETIRED, lambda: dealt(house.server, dataclasses.replace(queries[0], id="new")))


def test_a_server_notices_what_another_process_rotated(house: House) -> None:
    query = house.query()
    house.deal(query)
    with House(house.path, identity=house.identity, pairs=house.pairs) as other:
        other._made = 7
        other.server.keyring.rotate()
        assert house.server.terms() == other.server.terms()
        assert house.query().key_id != query.key_id
        new = house.query(id="new")
        house.deal(new)
        assert decide(house, new, 0).outcome == wire.RELEASED


def test_a_key_is_destroyed_for_good_after_a_crash_between_the_journal_and_the_file(house: House) -> None:
    former = house.pairs.get(house.query().key_id)
    house.server.keyring.rotate()
    house.pairs.put(former)
    house.restart()
    with pytest.raises(KeyFileError):
        house.pairs.get(former.public.key_id.hex())


def test_nothing_is_done_under_a_retired_key_but_what_was_decided_is_told(house: House) -> None:
    key, query = house.key, house.query()
    given = house.contributions(query, 0)
    undecided = house.contributions(query, 1)
    head, receipts = request(query, 0, key, [], [])
    made = house.server.decider.decide(head, receipts)
    house.server.journal.retire_keys()
    refused(Refusal.UNAVAILABLE, house.server.terms)
    for _ in range(2):
        assert house.server.decider.decide(head, receipts) == made
        refused(Refusal.ALREADY_DECIDED, lambda: house.server.decider.decide(*honest(query, 0, key, given)))
        refused(Refusal.KEY_RETIRED, lambda: house.server.decider.decide(*honest(query, 1, key, undecided)))
        refused(Refusal.KEY_RETIRED, lambda: house.server.decider.decide(*request(query, 1, key, [], [])))
        refused(Refusal.KEY_RETIRED, lambda: dealt(house.server, query))
        refused(Refusal.KEY_RETIRED, lambda: dealt(house.server, dataclasses.replace(query, id="new")))
        house.restart()
        assert states(house) == ["ACTIVE", "RETIRED"]
        with pytest.raises(KeyFileError):
            house.pairs.get(query.key_id)
    fresh = house.query(id="fresh")
    house.deal(fresh)
    assert decide(house, fresh, 0).outcome == wire.RELEASED


def test_a_key_that_is_retired_while_a_cohort_is_decided_decides_nothing(house: House) -> None:
    query, key = house.query(), house.key
    head, receipts = honest(query, 0, key, house.contributions(query, 0))

    def late() -> Iterator[wire.Receipt]:
        yield from receipts
        house.server.journal.retire_keys()

    refused(Refusal.KEY_RETIRED, lambda: house.server.decider.decide(head, late()))
    assert house.server.journal.summary(milliseconds(house.clock.now())).decided == 0


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
