"""A plan as a whole, and what it says that a query costs."""

import io
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from reticent.paillier import PublicKey
from reticent.privacy import gaussian_sigma, thesis_sigma
from reticent.protocol.layout import ciphertexts_to, contribution_bytes, packing_of
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.expected_refusals import KEY_SERVERS, ExpectedRefusal, expected_refusals
from reticent_analyst.plan import Plan, plan
from reticent_analyst.render import show_plan
from reticent_analyst.resource_estimate import encryption_seconds
from tests.analyst.queries import census


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"absent": 1.0}, "absent must lie in"),
        ({"absent": -0.1}, "got -0.1"),
        ({"lying": 601}, "lying must lie between 0 and the population, 600: got 601"),
        ({"risk": 0.0}, "risk must lie"),
    ],
)
def test_an_invalid_argument_of_a_plan_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(census(), **changes)


def test_a_plan_is_plain_data() -> None:
    planned: Plan = plan(census(2, l2_squared=2, l1=2), lying=1)
    plain = planned.to_json()
    assert plain["accuracy"][1]["max_shift"] is None
    assert plain["query"]["min_contributions"] == 400
    assert plain["liars"]["cohorts_hit"] == 1
    assert plain["no_release"] == planned.no_release


@pytest.mark.parametrize(
    ("changes", "allowed", "is_default", "message"),
    [
        ({}, 20, True, "holds if at most 20 of 400 contributions are from liars or colluders (the default, 5%)"),
        ({"liars": 10}, 10, False, "holds if at most 10 of 400 contributions are from liars or colluders"),
        ({"liars": 0}, 0, False, "holds if none of 400 contributions are from liars or colluders"),
    ],
)
def test_a_plan_shows_how_many_colluders_privacy_tolerates(
    changes: dict[str, Any], allowed: int, is_default: bool, message: str
) -> None:
    planned = plan(census(**{"liars": 20, **changes}))
    assert (planned.liars.allowed, planned.liars.is_default) == (allowed, is_default)
    assert (planned.to_json()["liars"]["allowed"], planned.to_json()["liars"]["is_default"]) == (allowed, is_default)
    assert f"privacy        {message}\n" in shown(planned)


def test_a_plan_shows_the_probability_of_more_colluders_if_some_are_expected() -> None:
    for lying, chance in (
        (0, ""),
        (20, "; more in a cohort: never"),
        (21, "; more in a cohort: 100% of the time"),
    ):
        assert f"colluders (the default, 5%){chance}\n" in shown(plan(census(liars=20), lying=lying))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"liars": 0}, ["phones and key servers: liars must be at least 20 of 400 contributions: got 0"]),
        (
            {"min_contributions": 20, "population": 30, "liars": 1},
            ["phones and key servers: min_contributions must exceed liars by at least 20: got 19"],
        ),
        (
            {"epsilon": 4.5},
            ["phones and key servers: epsilon must be at most 4: got 4.5"],
        ),
        ({"delta": 2e-5}, ["phones: delta must be at most 1e-05: got 2e-05"]),
        (
            {"min_contributions": 299, "liars": 15},
            ["key servers: min_contributions must be at least 0.5 of the smallest cohort: got 0.498"],
        ),
    ],
)
def test_a_plan_shows_what_default_settings_refuse(changes: dict[str, Any], message: list[str]) -> None:
    planned = plan(census(**{"liars": 20, **changes}))
    assert [f"{' and '.join(each.by)}: {each.why}" for each in planned.expected_refusals] == message
    assert [each["why"] for each in planned.to_json()["expected_refusals"]] == [
        each.why for each in planned.expected_refusals
    ]
    for each in planned.expected_refusals:
        assert f"by {' and '.join(each.by)} with default settings: {each.why}" in shown(planned)


def test_key_servers_refuse_what_takes_phones_too_many_ciphertexts() -> None:
    query = census(liars=20)
    assert expected_refusals(query, 300) == ()
    assert expected_refusals(query, 301) == (
        ExpectedRefusal((KEY_SERVERS,), "a phone must send at most 300 ciphertexts: got 301"),
    )


def shown(planned: Plan) -> str:
    """What the terminal of an analyst shows, its lines without what fills them."""
    console = Console(file=io.StringIO(), width=300, markup=False)
    show_plan(console, planned)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the one above
    return "".join(f"{line.rstrip()}\n" for line in lines)


def test_a_million_phones_are_planned_for() -> None:
    query = census(population=1_000_000, cohorts=101, min_contributions=7500, liars=30)
    hit = plan(query, absent=0.2, lying=100).liars.mean_cohorts_hit
    assert hit == pytest.approx(101 * (1 - (100 / 101) ** 100), rel=1e-3)


# What it costs.


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("key_bits", [2048, 3072])
def test_bytes_are_those_of_a_contribution(size: int, key_bits: int) -> None:
    query = census(size, l2_squared=size, l1=size, cohorts=3, min_contributions=100)
    packing = packing_of(query, key_bits)
    key = PublicKeyOfBits(key_bits)
    real = wire.Contribution(
        query=query.digest,
        phone=bytes(range(16)),
        cohort=2,
        ciphertexts=ciphertexts_to([5] * packing.plaintexts, key),  # type: ignore[arg-type]
        signature=bytes(64),
    )
    load = plan(query, key_bits=key_bits, absent=0.5).resources
    assert load.phone_bytes == len(real.SerializeToString()) == contribution_bytes(query, key_bits)
    assert load.ciphertexts == packing.plaintexts
    assert load.received_bytes == 300 * load.phone_bytes


class PublicKeyOfBits:
    """As much of a key as the wire asks for."""

    def __init__(self, bits: int) -> None:
        self.ciphertext_bytes = bits // 4


@pytest.mark.parametrize("size", [1, 6000])
def test_the_time_of_a_phone_is_that_of_encrypting(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few ciphertexts for all: here each takes a second, on a clock that stands still otherwise."""
    seconds = 0.0

    def encrypted(_: PublicKey, plaintexts: Sequence[int], __: np.random.Generator) -> None:
        nonlocal seconds
        seconds += len(plaintexts)

    query = census(size)
    monkeypatch.setattr(PublicKey, "encrypt", encrypted)
    monkeypatch.setattr(time, "process_time", lambda: seconds)
    assert encryption_seconds(query, 2048) == packing_of(query, 2048).plaintexts
    assert seconds <= 64


@pytest.mark.parametrize("bits", [-8, 0, 7, 8, 1023, 3071, 10**9])
def test_an_unsupported_key_length_is_refused_at_once(bits: int) -> None:
    with pytest.raises(ValueError, match=f"1024, 2048, 3072, 4096; got {bits}"):
        encryption_seconds(census(), bits)


def test_a_plan_compares_with_a_trusted_server_and_theorem_1() -> None:
    query = census(3, l2_squared=3, l1=3)
    planned = plan(query, absent=0.1)
    assert planned.trusted_error == gaussian_sigma(1.0, 1e-6, math.sqrt(3))
    share = thesis_sigma(1.0, 1e-6, math.sqrt(3)) ** 2 / (400 - 10 - 1)
    assert planned.theorem1_error == pytest.approx(math.sqrt(540 * share))
    assert plan(census(epsilon=2.0)).theorem1_error is None
