"""An aggregation server that forwards something else than it should, to the real key server: it gets nothing."""

import contextlib
import dataclasses
import datetime as dt
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import Cost, Ledger
from reticent.protocol import Refusal, Refused, SigningKey, packing_of, statements
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participant, Participation, PhoneStore
from reticent_client.errors import ForeignReply
from reticent_sim.engine import ServerPair, launched
from tests.core.paillier.test_tags import _factors
from tests.parties.decision_requests import expected, summed, sums
from tests.parties.phone import Phone
from tests.system.forwarder import (
    COHORTS,
    MIN_CONTRIBUTIONS,
    OPTIONS,
    PHONES,
    TIMEOUT,
    ForwardedQuery,
    Forwarder,
    Sent,
)

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@pytest.fixture(scope="module")
def forwarder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forwarder]:
    with launched(ServerPair(tmp_path_factory.mktemp("forwarding"), keys_options=OPTIONS)) as servers:
        made = Forwarder(servers)
        yield made
        made.close()


def powers(asked: ForwardedQuery, power: int, *of: int) -> list[int]:
    """The sum of the first cohort, in which some contributions are to a power."""
    n_squared = asked.key.n**2
    scaled = [
        dataclasses.replace(each, ciphertexts=[pow(one, power, n_squared) for one in each.ciphertexts])
        if place in of
        else each
        for place, each in enumerate(asked.cohorts[0])
    ]
    return summed(asked.key, scaled)


def short_multiple(asked: ForwardedQuery) -> list[int]:
    """One contribution once more, to a power that takes its tag to where it does not show."""
    packing = packing_of(asked.query, asked.key.bits)
    power = next(_factors(asked.key.n, packing.tag_offset, packing.slots[0].width))
    [victim] = asked.cohorts[0][3].ciphertexts
    [total] = summed(asked.key, asked.cohorts[0])
    return [asked.key.add([total, pow(victim, power, asked.key.n**2)])]


EVERYONE = range(PHONES // COHORTS)
WRONG_SUMS: dict[str, Callable[[ForwardedQuery, ForwardedQuery], Sequence[int]]] = {
    "one contribution": lambda asked, _: asked.cohorts[0][0].ciphertexts,
    "a subset": lambda asked, _: summed(asked.key, asked.cohorts[0][1:]),
    "nothing": lambda asked, _: [asked.key.encrypt([0], secure())[0]],
    "one of them twice": lambda asked, _: summed(asked.key, [*asked.cohorts[0], asked.cohorts[0][0]]),
    "one of them instead of another": lambda asked, _: summed(asked.key, [*asked.cohorts[0][1:], asked.cohorts[0][1]]),
    "another query's": lambda _, other: summed(other.key, other.cohorts[0]),
    "another cohort's": lambda asked, _: summed(asked.key, asked.cohorts[1]),
    "one more, of the other cohort": lambda asked, _: summed(asked.key, [*asked.cohorts[0], asked.cohorts[1][0]]),
    "one of another query instead": lambda asked, other: summed(
        asked.key, [*asked.cohorts[0][1:], other.cohorts[0][0]]
    ),
    "one doubled": lambda asked, _: powers(asked, 2, 0),
    "one negated": lambda asked, _: powers(asked, -1, 0),
    "all of them times 100": lambda asked, _: powers(asked, 100, *EVERYONE),
    "all of them halved": lambda asked, _: powers(asked, (asked.key.n + 1) // 2, *EVERYONE),
    "one shifted above the tag": lambda asked, _: powers(
        asked, 1 + (1 << packing_of(asked.query, asked.key.bits).tag_offset), 0
    ),
    "one amplified under a short tag": lambda asked, _: short_multiple(asked),
}


@pytest.mark.parametrize("wrong", WRONG_SUMS.values(), ids=WRONG_SUMS)
def test_another_sum_than_that_of_the_receipts_is_void(
    forwarder: Forwarder, wrong: Callable[[ForwardedQuery, ForwardedQuery], Sequence[int]]
) -> None:
    asked, other = forwarder.asked(), forwarder.asked()
    attack = asked.sent(wrong(asked, other), asked.cohorts[0])
    decision = forwarder.decided(attack)
    assert (decision.outcome, list(decision.sums)) == (wire.VOID, [])
    assert forwarder.decided(attack) == decision
    assert forwarder.refusal(asked.honest()) is Refusal.ALREADY_DECIDED
    assert forwarder.decisions(asked.query) == 1
    # The other cohort, and the other query, have lost nothing.
    for left, cohort in ((asked, 1), (other, 0)):
        good = forwarder.decided(left.honest(cohort))
        assert (good.outcome, sums(good)) == (wire.RELEASED, expected(left.cohorts[cohort]))


def test_a_phone_without_a_receipt_spoils_the_sum(forwarder: Forwarder) -> None:
    asked = forwarder.asked()
    decision = forwarder.decided(asked.sent(summed(asked.key, asked.cohorts[0]), asked.cohorts[0][1:]))
    assert (decision.outcome, list(decision.sums)) == (wire.VOID, [])


def test_the_sum_of_exactly_the_receipted_phones_is_released(forwarder: Forwarder) -> None:
    """Of all of a cohort, and of as few as may be."""
    for without in (0, len(EVERYONE) - MIN_CONTRIBUTIONS):
        asked = forwarder.asked()
        decision = forwarder.decided(asked.honest(without=without))
        assert (decision.outcome, decision.contributors) == (wire.RELEASED, len(EVERYONE) - without)
        assert sums(decision) == expected(asked.cohorts[0][without:])


def test_too_few_are_burnt_and_never_decrypted(forwarder: Forwarder) -> None:
    asked = forwarder.asked()
    few = asked.honest(without=len(EVERYONE) - MIN_CONTRIBUTIONS + 1)
    decision = forwarder.decided(few)
    assert (decision.outcome, decision.contributors, list(decision.sums)) == (wire.BURNT, MIN_CONTRIBUTIONS - 1, [])
    assert forwarder.decided(few) == decision
    assert forwarder.refusal(asked.honest()) is Refusal.ALREADY_DECIDED
    assert forwarder.decisions(asked.query) == 1


def test_a_cohort_that_is_given_up_is_burnt(forwarder: Forwarder) -> None:
    asked = forwarder.asked()
    decision = forwarder.decided(asked.sent([], asked.cohorts[0]))
    assert (decision.outcome, list(decision.sums)) == (wire.BURNT, [])
    assert forwarder.refusal(asked.honest()) is Refusal.ALREADY_DECIDED


def changed(receipt: wire.Receipt, **changes: Any) -> wire.Receipt:
    made = wire.Receipt()
    made.CopyFrom(receipt)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def with_receipts(asked: ForwardedQuery, receipts: Sequence[wire.Receipt], count: int | None = None) -> Sent:
    """The honest sum, with other receipts."""
    head, _ = asked.honest()
    head.contributors = len(receipts) if count is None else count
    return head, list(receipts)


def receipted(asked: ForwardedQuery, phone: Phone) -> wire.Receipt:
    """A receipt of a phone that was not dealt to the query."""
    return phone.contribution(asked.query, asked.key, asked.head.agreement_key, 0, (1, 1)).receipt


def stranger() -> Phone:
    """A phone that never joined."""
    phone = Phone(bytes(16))
    phone.membership = wire.Membership(phone=bytes(range(16)))
    return phone


BAD_RECEIPTS: dict[str, Callable[[Forwarder, ForwardedQuery, ForwardedQuery], Sent]] = {
    "one twice": lambda _, asked, __: with_receipts(asked, [*of(asked)[1:], of(asked)[1]]),
    "one twice, and all": lambda _, asked, __: with_receipts(asked, [*of(asked), of(asked)[0]]),
    "all twice": lambda _, asked, __: with_receipts(asked, of(asked) * 2),
    "another query's": lambda _, asked, other: with_receipts(asked, [*of(asked)[1:], same_phone(other, of(asked)[0])]),
    "another cohort's": lambda _, asked, __: with_receipts(asked, [*of(asked)[1:], of(asked, 1)[0]]),
    "an unknown phone's": lambda _, asked, __: with_receipts(asked, [*of(asked)[1:], receipted(asked, stranger())]),
    "a revoked phone's": lambda there, asked, _: with_receipts(
        asked, [*of(asked)[1:], receipted(asked, there.revoked)]
    ),
    "one unsigned": lambda _, asked, __: with_receipts(asked, [*of(asked)[1:], changed(of(asked)[0], signature=b"")]),
    "one signed by another": lambda _, asked, __: with_receipts(
        asked, [*of(asked)[1:], changed(of(asked)[0], signature=SigningKey().sign(b"anything"))]
    ),
    "one about other ciphertexts": lambda _, asked, __: with_receipts(
        asked, [*of(asked)[1:], changed(of(asked)[0], ciphertexts_hash=bytes(32))]
    ),
    "one that says it is seeded": lambda _, asked, __: with_receipts(
        asked, [*of(asked)[1:], changed(of(asked)[0], seeded=True)]
    ),
    "fewer than are said": lambda _, asked, __: with_receipts(asked, of(asked)[1:], len(EVERYONE)),
    "more than are said": lambda _, asked, __: with_receipts(asked, of(asked), MIN_CONTRIBUTIONS),
}


def same_phone(asked: ForwardedQuery, receipt: wire.Receipt) -> wire.Receipt:
    """What a phone has signed for another query."""
    return next(each for cohort in range(COHORTS) for each in of(asked, cohort) if each.phone == receipt.phone)


def of(asked: ForwardedQuery, cohort: int = 0) -> list[wire.Receipt]:
    return [each.receipt for each in asked.cohorts[cohort]]


@pytest.mark.parametrize("bad", BAD_RECEIPTS.values(), ids=BAD_RECEIPTS)
def test_bad_receipts_decide_nothing(
    forwarder: Forwarder, bad: Callable[[Forwarder, ForwardedQuery, ForwardedQuery], Sent]
) -> None:
    asked, other = forwarder.asked(), forwarder.asked()
    assert forwarder.refusal(bad(forwarder, asked, other)) is Refusal.BAD_RECEIPTS
    assert forwarder.decisions(asked.query) == 0
    good = forwarder.decided(asked.honest())
    assert (good.outcome, sums(good)) == (wire.RELEASED, expected(asked.cohorts[0]))


NO_CIPHERTEXTS: dict[str, Callable[[int], list[int]]] = {
    "zero": lambda n: [0 * n],
    "too large": lambda n: [n**2],
    "a factor of n": lambda n: [n],
    "too many": lambda n: [1 + n, 1 + n],
}


@pytest.mark.parametrize("bad", NO_CIPHERTEXTS.values(), ids=NO_CIPHERTEXTS)
def test_what_is_no_ciphertext_decides_nothing(forwarder: Forwarder, bad: Callable[[int], list[int]]) -> None:
    asked = forwarder.asked()
    assert forwarder.refusal(asked.sent(bad(asked.key.n), asked.cohorts[0])) is Refusal.BAD_CIPHERTEXTS
    assert forwarder.decisions(asked.query) == 0
    assert forwarder.decided(asked.honest()).outcome == wire.RELEASED


def test_a_second_request_about_a_cohort_is_refused_however_good_it_is(forwarder: Forwarder) -> None:
    """Or the difference of two sums would tell what one phone says."""
    asked = forwarder.asked()
    first = forwarder.decided(asked.honest())
    assert forwarder.refusal(asked.honest(without=1)) is Refusal.ALREADY_DECIDED
    disguised = asked.sent(asked.key.rerandomise(summed(asked.key, asked.cohorts[0]), secure()), asked.cohorts[0])
    assert forwarder.refusal(disguised) is Refusal.ALREADY_DECIDED
    assert forwarder.decided(asked.honest()) == first
    forwarder.servers.keys.restart()
    assert forwarder.refusal(asked.honest(without=1)) is Refusal.ALREADY_DECIDED
    assert forwarder.decided(asked.honest()) == first


def test_of_racing_closers_one_wins(forwarder: Forwarder) -> None:
    chance = random.Random(1)  # noqa: S311  # the order of threads is no secret
    with ThreadPoolExecutor(12) as closers:
        for _ in range(10):
            asked = forwarder.asked()
            requests = [asked.honest(without=without) for without in (0, 1, 2)] * 4
            chance.shuffle(requests)
            together = threading.Barrier(len(requests))

            def close(sent: Sent, together: threading.Barrier = together) -> wire.Decision | Refusal:
                together.wait(TIMEOUT)
                try:
                    return forwarder.decided(sent)
                except Refused as refused:
                    return refused.refusal

            answers = list(closers.map(close, requests))
            decisions = [each for each in answers if isinstance(each, wire.Decision)]
            assert len(decisions) == 4
            assert all(each == decisions[0] for each in decisions)
            assert [each for each in answers if not isinstance(each, wire.Decision)] == [Refusal.ALREADY_DECIDED] * 8
            assert forwarder.decisions(asked.query) == 1
            assert sums(decisions[0]) == expected(asked.cohorts[0][len(EVERYONE) - decisions[0].contributors :])


@pytest.fixture
def participant(forwarder: Forwarder, tmp_path: Path) -> Iterator[tuple[Participant, Ledger]]:
    """A phone that has joined, with its budget; it leaves in the end."""
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        phone = Participant(
            store,
            Cost(5.0, 1e-4),
            rng=secure(),
            now=lambda: dt.datetime.now(dt.UTC),
            policy=Participation(min_honest=2, min_liars_share=0.0),
            counters=lambda _: {"visits": 2.0},
            simulation=True,
        )
        [invitation] = forwarder.servers.invitations(1)
        phone.enrolment.joined(forwarder.enrolment.Join(phone.enrolment.join(invitation), timeout=TIMEOUT))
        yield phone, phone.ledger
        forwarder.enrolment.Leave(phone.enrolment.leave(), timeout=TIMEOUT)


def answered(forwarder: Forwarder, phone: Participant) -> tuple[ForwardedQuery, int]:
    """A query that this phone has answered, and its cohort."""
    asked = forwarder.asked(population=PHONES + 1)
    member = phone.enrolment.current
    assert member is not None
    cohort = asked.dealt[member.phone]
    announcement = wire.Announcement(
        query=asked.query.digest,
        agreement_key=asked.head.agreement_key,
        countersignature=asked.head.countersignature,
        cohort=cohort,
        closes_in_ms=10_000,
    )
    assert phone.contribute(announcement, asked.query.to_bytes(), asked.key.to_bytes()).cohort == cohort
    return asked, cohort


def forged(decision: wire.Decision, outcome: wire.Outcome.ValueType = wire.BURNT) -> list[wire.Decision]:
    """Decisions that say so without the key server."""
    made = []
    for signature in (b"", decision.signature, SigningKey().sign(b"anything")):
        one = wire.Decision()
        one.CopyFrom(decision)
        one.outcome = outcome
        one.signature = signature
        made.append(one)
    made[2].signature = SigningKey().sign(statements.decision(made[2]))
    return made


def test_budget_comes_back_only_against_the_signature_that_says_burnt(
    forwarder: Forwarder, participant: tuple[Participant, Ledger]
) -> None:
    phone, ledger = participant
    kept: dict[str, str] = {}
    for wanted in (wire.RELEASED, wire.VOID, wire.BURNT):
        asked, cohort = answered(forwarder, phone)
        few, all_but_it = asked.cohorts[1 - cohort][:1], asked.cohorts[cohort]
        others = forwarder.decided(asked.sent(summed(asked.key, few), few, 1 - cohort))
        assert others.outcome == wire.BURNT
        requests = {
            wire.RELEASED: asked.honest(cohort),
            wire.VOID: asked.sent(summed(asked.key, all_but_it[1:]), all_but_it, cohort),
            wire.BURNT: asked.sent([], all_but_it, cohort),
        }
        decision = forwarder.decided(requests[wanted])
        assert decision.outcome == wanted
        elsewhere = wire.Decision()
        elsewhere.CopyFrom(others)
        elsewhere.cohort = cohort
        lies = [others, elsewhere, *forged(others)]
        lies += forged(decision) if wanted != wire.BURNT else [*forged(decision)[::2], *forged(decision, wire.VOID)]
        for lie in lies:
            with pytest.raises(ForeignReply):
                phone.decided(lie)
            assert accounts(ledger) == kept | {asked.query.id: "reserved"}
        phone.decided(decision)
        if wanted != wire.BURNT:
            kept[asked.query.id] = "spent"
        assert accounts(ledger) == kept


def accounts(ledger: Ledger) -> dict[str, str]:
    return {entry.query: entry.state for entry in ledger.entries()}
