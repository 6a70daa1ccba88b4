import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reticent.privacy import Counter
from reticent.protocol import Refusal, signed_by, statements
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyPair
from tests.keys.phones import Contribution, House, expected, honest, refused, request, summed, sums


class Crash(BaseException):
    """As if the process were killed."""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "journal.db") as house:
        house.enrolled(20)
        yield house


@pytest.fixture
def decryptions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ciphertexts were decrypted, each time."""
    counted: list[int] = []
    decrypt = KeyPair.decrypt

    def counting(pair: KeyPair, ciphertexts: list[int]) -> list[int]:
        counted.append(len(ciphertexts))
        return decrypt(pair, ciphertexts)

    monkeypatch.setattr(KeyPair, "decrypt", counting)
    return counted


def decisions(house: House) -> int:
    with house.database.reading() as run:
        return int(run("SELECT count(*) FROM decisions").fetchone()[0])


def test_the_sum_of_all_contributions_is_released_exactly(house: House) -> None:
    query = house.query()
    for cohort in range(query.cohorts):
        given = house.contributions(query, cohort)
        made = house.server.decider.decide(*honest(query, cohort, house.key, given))
        assert made.outcome == wire.RELEASED
        assert sums(made) == expected(given)
        assert made.contributors == len(given) == 10
        assert (made.query, made.cohort, made.seeded, made.reason) == (query.digest, cohort, False, "")
        assert signed_by(house.server.identity, statements.decision(made), made.signature)


def test_sums_may_be_negative_and_take_several_plaintexts(house: House) -> None:
    counters = [Counter(f"counter {place}", -(2**13), 2**13) for place in range(100)]
    query = house.query(counters=counters, l1=2**14, l2_squared=2**28)
    key, query_key, cohort = house.key, house.query_key(query), 1
    given = [
        house.phones[phone].contribution(
            query, key, query_key, cohort, [(-1) ** place * 2**place for place in range(10)] * 10
        )
        for phone, to in house.deal(query).items()
        if to == cohort
    ]
    assert len(given[0].ciphertexts) > 1
    made = house.server.decider.decide(*honest(query, cohort, key, given))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(given)
    assert min(sums(made)) < 0


def test_the_fewest_are_enough_and_one_replayable_share_is_told(house: House) -> None:
    query = house.query()
    given = house.contributions(query, 0)[: query.min_contributions]
    phone = house.phones[given[0].receipt.phone]
    given[0] = phone.contribution(query, house.key, house.query_key(query), 0, (1, 2, 0), seeded=True)
    made = house.server.decider.decide(*honest(query, 0, house.key, given))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(given)
    assert made.seeded


def test_too_few_are_burnt_and_nothing_is_decrypted(house: House, decryptions: list[int]) -> None:
    query = house.query()
    given = house.contributions(query, 0)[: query.min_contributions - 1]
    made = house.server.decider.decide(*honest(query, 0, house.key, given))
    assert made.outcome == wire.BURNT
    assert not made.sums
    assert made.reason == "4 contributions, at least 5 are required"
    assert signed_by(house.server.identity, statements.decision(made), made.signature)
    assert not decryptions


def test_a_cohort_that_is_given_up_is_burnt_however_many_took_part(house: House, decryptions: list[int]) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    head, receipts = request(query, 0, house.key, [], [each.receipt for each in given])
    assert house.server.decider.decide(head, receipts).outcome == wire.BURNT
    head, receipts = request(query, 1, house.key, [], [])
    assert house.server.decider.decide(head, receipts).outcome == wire.BURNT
    assert not decryptions


@pytest.mark.parametrize("other", ["given up", "fewer", "another sum"])
def test_what_was_decrypted_before_a_crash_is_never_burnt(
    house: House, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Its phones would take their budget back for a sum that was seen."""
    query = house.query()
    given = house.contributions(query, 0)

    def dying(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("reticent_keys.deciding.Decider._record", dying)
        with pytest.raises(Crash):
            house.server.decider.decide(*honest(query, 0, house.key, given))
    assert decisions(house) == 0
    house.restart()
    some = {"given up": given, "fewer": given[:1], "another sum": given[:-1]}[other]
    head, receipts = honest(query, 0, house.key, some)
    if other == "given up":
        head.ciphertexts = b""
    refused(Refusal.ALREADY_DECIDED, lambda: house.server.decider.decide(head, receipts))
    made = house.server.decider.decide(*honest(query, 0, house.key, given))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(given)


def test_the_same_request_gets_the_same_answer_for_ever_and_is_decrypted_once(
    house: House, decryptions: list[int]
) -> None:
    query = house.query()
    head, receipts = honest(query, 0, house.key, house.contributions(query, 0))
    told = list(receipts)
    made = house.server.decider.decide(head, told)
    assert house.server.decider.decide(head, told) == made
    house.restart()
    assert house.server.decider.decide(head, told) == made
    house.server.keyring.rotate()
    assert house.server.decider.decide(head, told).SerializeToString(deterministic=True) == made.SerializeToString(
        deterministic=True
    )
    assert len(decryptions) == 1


@pytest.mark.parametrize("first", ["released", "burnt", "void"])
def test_another_request_is_refused_whatever_was_decided(house: House, first: str, decryptions: list[int]) -> None:
    """Two different subsets of the same contributions would tell their difference, noise and all."""
    query = house.query()
    given = house.contributions(query, 0)
    key = house.key
    head, receipts = request(query, 0, key, summed(key, given), [each.receipt for each in given])
    if first == "burnt":
        head.ciphertexts = b""
    if first == "void":
        head.ciphertexts = ciphertexts_to(given[0].ciphertexts, key)
    made = house.server.decider.decide(head, receipts)
    assert wire.Outcome.Name(made.outcome).lower() == first
    done = len(decryptions)
    others = [
        honest(query, 0, key, given[1:]),
        honest(query, 0, key, given[:2]),
        request(query, 0, key, [], []),
        request(query, 0, key, key.rerandomise(summed(key, given), secure()), [each.receipt for each in given]),
        (head, receipts[::-1]),
        (wire.DecideHead(query=query.digest, contributors=2**63, ciphertexts=b"?"), []),
    ]
    if first != "released":
        others.append(honest(query, 0, key, given))
    for other in others:
        refused(Refusal.ALREADY_DECIDED, lambda other=other: house.server.decider.decide(*other))  # type: ignore[misc]
    assert len(decryptions) == done
    assert house.server.decider.decide(head, receipts) == made
    assert house.server.decider.decide(*honest(query, 1, key, house.contributions(query, 1))).outcome == wire.RELEASED


Change = Callable[[list[wire.Receipt], House], None]


def other_phone(receipts: list[wire.Receipt], house: House) -> None:
    receipts[3].phone = next(phone for phone in house.phones if all(phone != each.phone for each in receipts))


def unknown_phone(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].phone = bytes(16)


def repeated(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].CopyFrom(receipts[2])


def forged(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].signature = receipts[2].signature


def unsigned(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].signature = b""


def other_ciphertexts(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].ciphertexts_hash = receipts[2].ciphertexts_hash


def other_flag(receipts: list[wire.Receipt], _: House) -> None:
    receipts[3].seeded = True


def one_less(receipts: list[wire.Receipt], _: House) -> None:
    receipts.pop()


def one_more(receipts: list[wire.Receipt], _: House) -> None:
    receipts.append(receipts[0])


@pytest.mark.parametrize(
    "change",
    [other_phone, unknown_phone, repeated, forged, unsigned, other_ciphertexts, other_flag, one_less, one_more],
)
def test_bad_receipts_are_refused_and_change_nothing(house: House, change: Change, decryptions: list[int]) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    head, receipts = request(query, 0, house.key, summed(house.key, given), [each.receipt for each in given])
    wrong = [wire.Receipt.FromString(each.SerializeToString()) for each in receipts]
    change(wrong, house)
    refused(Refusal.BAD_RECEIPTS, lambda: house.server.decider.decide(head, wrong))
    assert not decryptions
    assert not decisions(house)
    assert house.server.decider.decide(head, receipts).outcome == wire.RELEASED


def test_a_phone_that_says_another_cohort_than_its_own_does_not_count_there(house: House) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    liar = next(house.phones[phone] for phone, cohort in house.deal(query).items() if cohort == 1)
    mixed = [*given[1:], liar.contribution(query, house.key, house.query_key(query), 0, (1, 2, 0))]
    refused(Refusal.BAD_RECEIPTS, lambda: house.server.decider.decide(*honest(query, 0, house.key, mixed)), "not dealt")
    assert not decisions(house)


def test_more_receipts_than_phones_were_dealt_are_refused_before_they_are_read(house: House) -> None:
    query = house.query()
    house.deal(query)

    read: list[int] = []

    def endless() -> Iterator[wire.Receipt]:
        while True:
            read.append(1)
            yield wire.Receipt()

    for contributors in (11, 2**63, 2**64 - 1):
        head = wire.DecideHead(query=query.digest, contributors=contributors)
        refused(Refusal.BAD_RECEIPTS, lambda head=head: house.server.decider.decide(head, endless()))  # type: ignore[misc]
    assert not read
    assert not decisions(house)


def test_receipts_without_end_are_refused_in_the_end(house: House) -> None:
    query = house.query()
    house.deal(query)

    def endless() -> Iterator[wire.Receipt]:
        while True:
            yield wire.Receipt()

    for contributors in (0, 3):
        head = wire.DecideHead(query=query.digest, contributors=contributors)
        refused(Refusal.BAD_RECEIPTS, lambda head=head: house.server.decider.decide(head, endless()))  # type: ignore[misc]


def test_bad_ciphertexts_are_refused_and_change_nothing(house: House, decryptions: list[int]) -> None:
    query = house.query()
    key = house.key
    given = house.contributions(query, 0)
    good = summed(key, given)
    receipts = [each.receipt for each in given]
    for wrong in ([0], [key.n**2], [key.n], [*good, *good]):
        ask = request(query, 0, key, wrong, receipts)
        refused(Refusal.BAD_CIPHERTEXTS, lambda ask=ask: house.server.decider.decide(*ask))  # type: ignore[misc]
    head, _ = request(query, 0, key, good, receipts)
    head.ciphertexts += b"\0"
    refused(Refusal.BAD_CIPHERTEXTS, lambda: house.server.decider.decide(head, receipts))
    assert not decryptions
    assert not decisions(house)
    assert house.server.decider.decide(*honest(query, 0, key, given)).outcome == wire.RELEASED


def test_what_was_not_countersigned_is_not_decided(house: House) -> None:
    query = house.query()
    refused(Refusal.UNKNOWN_QUERY, lambda: house.server.decider.decide(wire.DecideHead(query=query.digest), []))
    refused(Refusal.UNKNOWN_QUERY, lambda: house.server.decider.decide(wire.DecideHead(), []))
    house.deal(query)
    head = wire.DecideHead(query=query.digest, cohort=2)
    refused(Refusal.MALFORMED, lambda: house.server.decider.decide(head, []), "2 cohorts")


def test_a_phone_that_left_after_the_deal_counts(house: House) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    for each in given[:4]:
        house.server.members.leave(house.phones[each.receipt.phone].leaving())
    made = house.server.decider.decide(*honest(query, 0, house.key, given))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(given)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_that_race_one_wins_and_one_is_decrypted(house: House, same: bool, decryptions: list[int]) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    key = house.key
    barrier = threading.Barrier(2)
    answers: list[object] = []

    def meeting(contributions: list[Contribution]) -> Iterator[wire.Receipt]:
        """Both have read their receipts before either decides."""
        for each in contributions:
            yield each.receipt
        barrier.wait(10)

    def ask(contributions: list[Contribution]) -> None:
        head, _ = request(query, 0, key, sum_of[len(contributions)], [each.receipt for each in contributions])
        try:
            answers.append(house.server.decider.decide(head, meeting(contributions)))
        except Exception as error:  # noqa: BLE001  # looked at below
            answers.append(error)

    sum_of = {size: summed(key, given[:size]) for size in (9, 10)}
    threads = [threading.Thread(target=ask, args=(given[:size],)) for size in (10, 10 if same else 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(decryptions) == 1
    made = [each for each in answers if isinstance(each, wire.Decision)]
    assert made[0].outcome == wire.RELEASED
    if same:
        assert made == [made[0], made[0]]
    else:
        (error,) = (each for each in answers if each not in made)
        assert getattr(error, "refusal", None) is Refusal.ALREADY_DECIDED


def test_two_servers_on_one_journal_decide_once(house: House) -> None:
    query = house.query()
    given = house.contributions(query, 0)
    with House(house.path, identity=house.identity, pairs=house.pairs) as other:
        made = house.server.decider.decide(*honest(query, 0, house.key, given))
        refused(Refusal.ALREADY_DECIDED, lambda: other.server.decider.decide(*honest(query, 0, house.key, given[1:])))

        def late() -> Iterator[wire.Receipt]:
            """While the other one reads, the first decides."""
            answers.append(house.server.decider.decide(*honest(query, 1, house.key, second)))
            yield from (each.receipt for each in second)

        second = house.contributions(query, 1)
        answers: list[wire.Decision] = []
        head, _ = request(query, 1, house.key, [], [each.receipt for each in second])
        refused(Refusal.ALREADY_DECIDED, lambda: other.server.decider.decide(head, late()))
        assert answers[0].outcome == made.outcome == wire.RELEASED


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after it"])
@pytest.mark.parametrize("commit", [1, 2], ids=["what is about to be decrypted", "the decision"])
def test_a_crash_about_a_commit_leaves_no_decision_or_the_one_that_is_repeated(
    house: House, commit: int, before: bool, monkeypatch: pytest.MonkeyPatch, decryptions: list[int]
) -> None:
    query = house.query()
    head, receipts = honest(query, 0, house.key, house.contributions(query, 0))
    told = list(receipts)
    execute = type(house.database)._execute
    commits = 0

    def crashing(database: object, statement: str, values: tuple[object, ...] = ()) -> object:
        nonlocal commits
        commits += statement == "COMMIT"
        crashes = statement == "COMMIT" and commits == commit
        if crashes and before:
            raise Crash
        done = execute(database, statement, values)  # type: ignore[arg-type]
        if crashes:
            raise Crash
        return done

    with monkeypatch.context() as patched:
        patched.setattr(type(house.database), "_execute", crashing)
        with pytest.raises(Crash):
            house.server.decider.decide(head, told)
    house.restart()
    assert decisions(house) == (1 if commit == 2 and not before else 0)
    made = house.server.decider.decide(head, told)
    assert made.outcome == wire.RELEASED
    assert len(decryptions) == (2 if commit == 2 and before else 1)
    with house.database.reading() as run:
        assert run("SELECT answer FROM decisions").fetchone() == (made.SerializeToString(deterministic=True),)
