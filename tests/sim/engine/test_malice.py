"""Malicious phones without servers: who they are, what they repeat, and what is found of them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, SigningKey, Unreachable, packing_of, signed_by, statements
from reticent.protocol.phases import Outcome
from reticent.randomness import seeded
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.handle import Progress
from reticent_client import ContributionState
from reticent_client.counting.enrolment import Member
from reticent_client.counting.servers import Servers
from reticent_sim.engine.malice import (
    DecidedCount,
    Experience,
    MaliceFinding,
    MaliciousPhone,
    QueryAttempts,
    assign,
    collusions,
    findings,
    malicious_kinds,
)
from reticent_sim.engine.malice.attacks import ATTACKS, MAX_FLOOD, Attack
from tests.client.counting.world import BITS, device, query
from tests.client.counting.world import Servers as Signer
from tests.parties.key_pairs import pair


@given(st.integers(0, 9), st.dictionaries(st.sampled_from(malicious_kinds), st.integers(0, 5)))
def test_as_many_phones_of_each_kind_are_malicious_as_the_mix_says(seed: int, mix: dict[str, int]) -> None:
    kinds = assign(seed, 30, mix)
    assert Counter(kinds.values()) == Counter(mix)
    assert list(kinds) == sorted(set(kinds) & set(range(30)))
    assert kinds == assign(seed, 30, dict(reversed(mix.items())))


@given(st.floats(0, 1), st.integers(1, 500))
def test_a_share_has_all_kinds_alike_but_few_wild_phones(share: float, phones: int) -> None:
    number = Counter(assign(1, phones, share).values())
    assert number.total() == round(share * phones)
    others = [number[kind] for kind in malicious_kinds if kind != "wild"]
    assert max(others) - min(others) <= 1
    assert number["wild"] == min(2, math.ceil(number.total() / len(malicious_kinds)))


@pytest.mark.parametrize(
    ("malicious", "message"),
    [
        ({"lazy": 1}, "a malicious phone is one of garbage, .*: got 'lazy'"),
        ({"wild": -1}, "the number of wild phones must be at least 0: got -1"),
        ({"wild": 6, "flood": 5}, "there are 10 phones: 11 cannot be malicious"),
        (1.5, r"must lie in \[0, 1\]: got 1.5"),
    ],
)
def test_a_bad_mix_is_refused(malicious: dict[str, int] | float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assign(1, 10, malicious)


def count(outcomes: list[Outcome | None], contributors: list[int], minimum: int = 30, liars: int = 3) -> DecidedCount:
    asked = query(population=80, cohorts=2, min_contributions=minimum, liars=liars)
    return DecidedCount(Progress(asked, "decided", tuple(contributors), tuple(outcomes), 0.0), None)


def experience(phone: int, kind: str, cohort: int, *, noise: tuple[int, ...] = ()) -> Experience:
    return Experience(phone, kind, (QueryAttempts("gym", cohort, {"acknowledged": 1}, True, noise),))


@settings(max_examples=25)
@given(st.integers(20, 40), st.integers(0, 15), st.integers(0, 25), st.integers(0, 15))
def test_collusion_is_covered_exactly_where_the_noise_that_is_left_suffices(
    minimum: int, liars: int, colluders: int, more: int
) -> None:
    contributors = minimum + more
    decided = count(["released", "burnt"], [contributors, 3], minimum, liars)
    phones = [experience(number, "colluder", 0, noise=(1, 1)) for number in range(colluders)]
    phones += [experience(50, "colluder", 1, noise=(1, 1)), experience(51, "wild", 0)]
    gains = collusions(phones, [decided])
    assert len(gains) == bool(colluders)
    for gain in gains:
        assert (gain.cohort, gain.colluders, gain.contributors) == (0, colluders, contributors)
        honest = contributors - colluders - 1
        assert gain.left == pytest.approx(max(0, honest) * decided.query.share_variance)
        assert gain.is_covered == (gain.left >= gain.needed * (1 - 1e-9))


def test_findings_say_what_became_of_each_phone() -> None:
    phones = [
        experience(1, "wild", 1),
        experience(0, "wild", 0),
        *(experience(number, "colluder", 0, noise=(3, 4)) for number in (3, 4)),
        Experience(5, "silence", (QueryAttempts("gym", 0, {}, False),)),
        Experience(6, "flood", ()),
        Experience(7, "wild", (QueryAttempts("gym", 1, {"LATE": 1}, False),)),
        Experience(2, "wild", (QueryAttempts("another", 1, {"acknowledged": 1}, True),)),
    ]
    found = findings(phones, [count(["released", "burnt"], [30, 29], liars=1)])
    assert [(each.noticed, each.by) for each in found] == [(False, ())] * 8
    disclosed = (
        "it disclosed its noise, which no party can notice; with 2 colluders in its cohort, of 1 tolerated, the "
        "remaining noise has 0.98 times the required deviation; it contributed to 1 of 1 count"
    )
    assert [each.how for each in found] == [
        "its values were not noticed in 1 count; it contributed to 1 of 1 count",
        "its cohort had too few contributions and was burnt in 1 count; it contributed to 1 of 1 count",
        "it contributed to 1 of 1 count",
        *(disclosed, disclosed),
        "it contributed to 0 of 1 count; no party can tell this from absence",
        "it took part in no count",
        "the aggregation server refused its calls: LATE (1); it contributed to 0 of 1 count",
    ]
    burnt = findings([experience(3, "colluder", 1, noise=(3, 4))], [count(["released", "burnt"], [30, 29])])
    assert burnt[0].how.startswith(
        "it disclosed its noise, which no party can notice; no sum of its cohort was released; "
    )
    alone = findings([experience(3, "colluder", 0, noise=(3, 4))], [count(["released", "burnt"], [30, 29])])
    assert "with 1 colluder in its cohort, of 3 tolerated" in alone[0].how
    voided = findings([experience(0, "wild", 0)], [count(["void", "released"], [30, 29])])
    how = "the key server voided its cohort for wrong tags in 1 count; it contributed to 1 of 1 count"
    assert voided == [MaliceFinding(0, "wild", True, how, ("key server",))]


class LocalServers(Servers):
    """Both servers without a network. The reply to each contribution is the next of these errors, or none."""

    def __init__(self, servers: Signer, asked: Query, errors: Iterator[Exception | None]) -> None:
        super().__init__(servers.invitation())
        self.received: list[bytes] = []
        self._signer, self._asked, self._errors = servers, asked, errors

    async def query(self, request: wire.QueryRequest) -> bytes:
        statement = statements.fetching(self._asked.digest, request.phone)
        assert signed_by(self._signer.phones[request.phone], statement, request.signature)
        return self._asked.to_bytes()

    async def key(self, _: bytes) -> bytes:
        return self._signer.public.to_bytes()

    async def contribute(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        self.received.append(contribution.SerializeToString())
        error = next(self._errors, None)
        if error is not None:
            raise error
        return wire.Acknowledgement(contribution=bytes(32))


@pytest.mark.parametrize(
    ("kind", "error"),
    [(kind, Unreachable("the reply was lost")) for kind in malicious_kinds] + [("wild", Refused(Refusal.UNAVAILABLE))],
)
def test_a_malicious_phone_satisfies_its_client_and_repeats_an_attack_that_was_cut_off(
    kind: str, error: Exception, tmp_path: Path
) -> None:
    with device(tmp_path) as phone:
        asked = query()
        contribution = phone.ask(asked)
        errors = [error, *[None] * 30, Refused(Refusal.BUSY, retry_after=1e-3)]
        servers = LocalServers(phone.servers, asked, iter(errors))
        malicious = MaliciousPhone(kind, 7, phone.store, seed=1, servers=lambda _: servers)
        connected = malicious.servers(phone.servers.invitation())
        if kind != "silence":
            with pytest.raises(type(error)):
                asyncio.run(connected.contribute(contribution))
        assert malicious.experience == malicious.take_experience() == Experience(7, kind, ())
        assert malicious.take_experience() is None
        phone.participant.acknowledged(asyncio.run(connected.contribute(contribution)))
        assert [record.state for record in phone.participant.records.within(list(ContributionState))] == [
            ContributionState.ACKNOWLEDGED
        ]
        assert servers.received[:1] == servers.received[1:2]
        [attempts] = malicious.experience.attempts
        assert malicious.take_experience() == malicious.experience
        assert malicious.take_experience() is None
        assert (attempts.query, attempts.cohort) == ("gym", 0)
        assert attempts.contributed == (kind not in {"garbage", "silence"}) == bool(malicious.sent)
        assert bool(attempts.noise) == (kind == "colluder")
        assert ("BUSY" in attempts.replies) == (kind == "flood")


def test_a_flood_ends() -> None:
    """Also where nobody stops it."""
    calls = 0

    async def send(_: wire.Contribution) -> wire.Acknowledgement:
        nonlocal calls
        calls += 1
        return wire.Acknowledgement()

    asked = query()
    phone = Member(Signer().invitation(), SigningKey())
    attack = Attack(asked, pair(BITS).public, phone, wire.Contribution(), [], [], seeded(1), send)
    asyncio.run(ATTACKS["flood"](attack))
    assert calls == MAX_FLOOD + 1
    assert attack.attempts.replies == {"acknowledged": 1}


@pytest.mark.parametrize("seed", range(4))
def test_wild_values_are_in_the_counters_or_beyond_them(seed: int, tmp_path: Path) -> None:
    """The key server finds other tags where they are beyond."""
    with device(tmp_path) as phone:
        asked = query()
        contribution = phone.ask(asked)
        honest, tags = phone.servers.open(asked, contribution)
        malicious = MaliciousPhone("wild", seed, phone.store, seed=1, servers=lambda _: servers)
        servers = LocalServers(phone.servers, asked, iter(()))
        asyncio.run(malicious.servers(phone.servers.invitation()).contribute(contribution))
        message = wire.Contribution.FromString(servers.received[0])
        phone.servers.acknowledge(asked, message)  # it is properly signed
        sums, found = phone.servers.open(asked, message)
        slots = packing_of(asked, BITS).slots
        if seeded(1, "malice", seed, asked.id).integers(2):
            assert found == tags
            for slot, before, after in zip(slots, honest, sums, strict=True):
                assert 3 / 8 - 0.01 <= ((after - before) % (1 << slot.width)) / (1 << slot.width) <= 1 / 2
        else:
            assert found != tags
