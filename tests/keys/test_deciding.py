import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.privacy import Counter
from reticent.protocol import Refusal, signed_by, statements
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyPair
from reticent_keys.server import DECISION_TIME
from tests.parties.decision_requests import decide, expected, honest, request, summed, sums
from tests.parties.key_server import LocalKeyServer, decisions, refused
from tests.parties.phone import Contribution


class Crash(BaseException):
    """As if the process were killed."""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalKeyServer]:
    with LocalKeyServer(tmp_path / "journal.db") as local:
        local.enrolled(20)
        yield local


def test_the_sum_of_all_contributions_is_released_exactly(local: LocalKeyServer) -> None:
    query = local.query()
    for cohort in range(query.cohorts):
        inputs = local.contributions(query, cohort)
        made = decide(local.server, *honest(query, cohort, local.key, inputs))
        assert made.outcome == wire.RELEASED
        assert sums(made) == expected(inputs)
        assert made.contributors == len(inputs) == 10
        assert (made.query, made.cohort, made.seeded, made.reason) == (query.digest, cohort, False, "")
        assert signed_by(local.server.identity, statements.decision(made), made.signature)


def test_sums_may_be_negative_and_take_several_plaintexts(local: LocalKeyServer) -> None:
    counters = [Counter(f"counter {place}", -(2**13), 2**13) for place in range(100)]
    query = local.query(counters=counters, l1=2**14, l2_squared=2**28)
    key, query_key, cohort = local.key, local.query_key(query), 1
    inputs = [
        local.phones[phone].contribution(
            query, key, query_key, cohort, [(-1) ** place * 2**place for place in range(10)] * 10
        )
        for phone, to in local.deal(query).items()
        if to == cohort
    ]
    assert len(inputs[0].ciphertexts) > 1
    made = decide(local.server, *honest(query, cohort, key, inputs))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(inputs)
    assert min(sums(made)) < 0


def test_the_fewest_are_enough_and_one_replayable_share_is_told(local: LocalKeyServer) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)[: query.min_contributions]
    phone = local.phones[inputs[0].receipt.phone]
    inputs[0] = phone.contribution(query, local.key, local.query_key(query), 0, (1, 2, 0), seeded=True)
    made = decide(local.server, *honest(query, 0, local.key, inputs))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(inputs)
    assert made.seeded


def test_too_few_are_burnt_and_nothing_is_decrypted(local: LocalKeyServer, decryptions: list[int]) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)[: query.min_contributions - 1]
    made = decide(local.server, *honest(query, 0, local.key, inputs))
    assert made.outcome == wire.BURNT
    assert not made.sums
    assert made.reason == "4 contributions, at least 5 are required"
    assert signed_by(local.server.identity, statements.decision(made), made.signature)
    assert not decryptions


def test_a_cohort_that_is_given_up_is_burnt_however_many_took_part(
    local: LocalKeyServer, decryptions: list[int]
) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    head, receipts = request(query, 0, local.key, [], [each.receipt for each in inputs])
    assert decide(local.server, head, receipts).outcome == wire.BURNT
    head, receipts = request(query, 1, local.key, [], [])
    assert decide(local.server, head, receipts).outcome == wire.BURNT
    assert not decryptions


@pytest.mark.parametrize("other", ["given up", "fewer", "another sum"])
def test_what_was_decrypted_before_a_crash_is_never_burnt(
    local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Its phones would take their budget back for a sum that was seen."""
    query = local.query()
    inputs = local.contributions(query, 0)

    def dying(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("reticent_keys.deciding.Decider._record", dying)
        with pytest.raises(Crash):
            decide(local.server, *honest(query, 0, local.key, inputs))
    assert decisions(local) == 0
    local.restart()
    some = {"given up": inputs, "fewer": inputs[:1], "another sum": inputs[:-1]}[other]
    head, receipts = honest(query, 0, local.key, some)
    if other == "given up":
        head.ciphertexts = b""
    refused(Refusal.ALREADY_DECIDED, lambda: decide(local.server, head, receipts))
    made = decide(local.server, *honest(query, 0, local.key, inputs))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(inputs)


def test_the_same_request_gets_the_same_answer_for_ever_and_is_decrypted_once(
    local: LocalKeyServer, decryptions: list[int]
) -> None:
    query = local.query()
    head, receipts = honest(query, 0, local.key, local.contributions(query, 0))
    sent = list(receipts)
    made = decide(local.server, head, sent)
    assert decide(local.server, head, sent) == made
    local.restart()
    assert decide(local.server, head, sent) == made
    local.server.keyring.rotate()
    assert decide(local.server, head, sent).SerializeToString(deterministic=True) == made.SerializeToString(
        deterministic=True
    )
    assert len(decryptions) == 1


@pytest.mark.parametrize("first", ["released", "burnt", "void"])
def test_another_request_is_refused_whatever_was_decided(
    local: LocalKeyServer, first: str, decryptions: list[int]
) -> None:
    """Two different subsets of the same contributions would tell their difference, noise and all."""
    query = local.query()
    inputs = local.contributions(query, 0)
    key = local.key
    head, receipts = request(query, 0, key, summed(key, inputs), [each.receipt for each in inputs])
    if first == "burnt":
        head.ciphertexts = b""
    if first == "void":
        head.ciphertexts = ciphertexts_to(inputs[0].ciphertexts, key)
    made = decide(local.server, head, receipts)
    assert wire.Outcome.Name(made.outcome).lower() == first
    done = len(decryptions)
    others = [
        honest(query, 0, key, inputs[1:]),
        honest(query, 0, key, inputs[:2]),
        request(query, 0, key, [], []),
        request(query, 0, key, key.rerandomise(summed(key, inputs), secure()), [each.receipt for each in inputs]),
        (head, receipts[::-1]),
        (wire.DecideHead(query=query.digest, contributors=2**63, ciphertexts=b"?"), []),
    ]
    if first != "released":
        others.append(honest(query, 0, key, inputs))
    for other in others:
        refused(Refusal.ALREADY_DECIDED, lambda other=other: decide(local.server, *other))  # type: ignore[misc]
    assert len(decryptions) == done
    assert decide(local.server, head, receipts) == made
    assert decide(local.server, *honest(query, 1, key, local.contributions(query, 1))).outcome == wire.RELEASED


def test_what_was_not_countersigned_is_not_decided(local: LocalKeyServer) -> None:
    query = local.query()
    refused(Refusal.UNKNOWN_QUERY, lambda: decide(local.server, wire.DecideHead(query=query.digest), []))
    refused(Refusal.UNKNOWN_QUERY, lambda: decide(local.server, wire.DecideHead(), []))
    local.deal(query)
    head = wire.DecideHead(query=query.digest, cohort=2)
    refused(Refusal.MALFORMED, lambda: decide(local.server, head, []), "2 cohorts")


def test_a_phone_that_left_after_the_deal_counts(local: LocalKeyServer) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    for each in inputs[:4]:
        local.server.members.leave(local.phones[each.receipt.phone].leaving())
    made = decide(local.server, *honest(query, 0, local.key, inputs))
    assert made.outcome == wire.RELEASED
    assert sums(made) == expected(inputs)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_that_race_one_wins_and_one_is_decrypted(
    local: LocalKeyServer, same: bool, decryptions: list[int]
) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    key = local.key
    barrier = threading.Barrier(2)
    results: list[object] = []

    def meeting(contributions: list[Contribution]) -> Iterator[wire.Receipt]:
        """Both have read their receipts before either decides."""
        for each in contributions:
            yield each.receipt
        barrier.wait(10)

    def race(contributions: list[Contribution]) -> None:
        head, _ = request(query, 0, key, sum_of[len(contributions)], [each.receipt for each in contributions])
        try:
            results.append(decide(local.server, head, meeting(contributions)))
        except Exception as error:  # noqa: BLE001  # looked at below
            results.append(error)

    sum_of = {size: summed(key, inputs[:size]) for size in (9, 10)}
    threads = [threading.Thread(target=race, args=(inputs[:size],)) for size in (10, 10 if same else 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(decryptions) == 1
    made = [each for each in results if isinstance(each, wire.Decision)]
    assert made[0].outcome == wire.RELEASED
    if same:
        assert made == [made[0], made[0]]
    else:
        (error,) = (each for each in results if each not in made)
        assert getattr(error, "refusal", None) is Refusal.ALREADY_DECIDED


def test_a_cohort_that_takes_long_holds_up_no_other(local: LocalKeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while its receipts arrive, nor while it is decrypted."""
    query = local.query()
    inputs = [local.contributions(query, cohort) for cohort in range(2)]
    decrypts, other_is_decided = threading.Event(), threading.Event()
    decrypt = KeyPair.decrypt

    def slow(pair: KeyPair, ciphertexts: list[int]) -> list[int]:
        decrypts.set()
        assert other_is_decided.wait(30)
        return decrypt(pair, ciphertexts)

    monkeypatch.setattr(KeyPair, "decrypt", slow)
    made: list[wire.Decision] = []
    requests = [honest(query, cohort, local.key, inputs[cohort]) for cohort in range(2)]
    thread = threading.Thread(target=lambda: made.append(decide(local.server, *requests[0])))
    thread.start()
    assert decrypts.wait(30)
    monkeypatch.setattr(KeyPair, "decrypt", decrypt)
    hanging = local.server.decider.begin(requests[1][0])
    made.append(decide(local.server, *requests[1]))
    assert made[0].cohort == 1, "it waited for cohort 0"
    other_is_decided.set()
    thread.join(30)
    assert [sums(each) for each in made] == [expected(inputs[1]), expected(inputs[0])]
    refused(Refusal.BAD_RECEIPTS, lambda: local.server.decider.decide(hanging))


def test_a_request_whose_receipts_arrive_after_the_deadline_is_not_decrypted(
    local: LocalKeyServer, decryptions: list[int]
) -> None:
    query = local.query()
    head, receipts = honest(query, 0, local.key, local.contributions(query, 0))

    def late() -> Iterator[wire.Receipt]:
        yield from receipts
        local.advance(dt.timedelta(seconds=query.closes_after) + DECISION_TIME)

    refused(Refusal.KEY_RETIRED, lambda: decide(local.server, head, late()), "in time")
    assert not decryptions


def test_two_servers_on_one_journal_decide_once(local: LocalKeyServer) -> None:
    query = local.query()
    inputs = local.contributions(query, 0)
    with LocalKeyServer(local.path, identity=local.identity, pairs=local.pairs) as other:
        made = decide(local.server, *honest(query, 0, local.key, inputs))
        refused(Refusal.ALREADY_DECIDED, lambda: decide(other.server, *honest(query, 0, local.key, inputs[1:])))

        def late() -> Iterator[wire.Receipt]:
            """While the other one reads, the first decides."""
            results.append(decide(local.server, *honest(query, 1, local.key, second)))
            yield from (each.receipt for each in second)

        second = local.contributions(query, 1)
        results: list[wire.Decision] = []
        head, _ = request(query, 1, local.key, [], [each.receipt for each in second])
        refused(Refusal.ALREADY_DECIDED, lambda: decide(other.server, head, late()))
        assert results[0].outcome == made.outcome == wire.RELEASED


@pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after it"])
@pytest.mark.parametrize("commit", [1, 2], ids=["what is about to be decrypted", "the decision"])
def test_a_crash_about_a_commit_leaves_no_decision_or_the_one_that_is_repeated(
    local: LocalKeyServer, commit: int, before: bool, monkeypatch: pytest.MonkeyPatch, decryptions: list[int]
) -> None:
    query = local.query()
    head, receipts = honest(query, 0, local.key, local.contributions(query, 0))
    sent = list(receipts)
    execute = type(local.database)._execute
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
        patched.setattr(type(local.database), "_execute", crashing)
        with pytest.raises(Crash):
            decide(local.server, head, sent)
    local.restart()
    assert decisions(local) == (1 if commit == 2 and not before else 0)
    made = decide(local.server, head, sent)
    assert made.outcome == wire.RELEASED
    assert len(decryptions) == (2 if commit == 2 and before else 1)
    with local.database.reading() as run:
        assert run("SELECT decision FROM decisions").fetchone() == (made.SerializeToString(deterministic=True),)
