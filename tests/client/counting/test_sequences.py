"""Sequences of queries: their joint bounds hold whatever is asked and decided in whatever order, and cost once."""

import tempfile
from pathlib import Path
from typing import Literal

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from reticent.privacy import Cost, Counter, Norms, Query
from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined
from reticent_client.counting.records import LIVE
from reticent_client.errors import Reason
from tests.client.counting.world import device, query

COUNTERS = [Counter("a", -4, 4), Counter("b", 0, 6)]
BOUNDS = {"l1": 9, "l2_squared": 25}

Noise = Literal["skellam", "gaussian"]


def _one(number: int, noise: Noise = "skellam") -> Query:
    bits = 0 if noise == "skellam" else 20
    return query(id=f"q{number}", sequence="s", counters=COUNTERS, noise=noise, fraction_bits=bits, **BOUNDS)


Step = tuple[Literal["ask", "burn", "release", "restart"], int, float, float]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "burn", "release", "restart"]),
        st.integers(0, 4),
        st.floats(-9, 9),
        st.floats(-9, 9),
    ),
    max_size=12,
)


@given(STEPS, st.sampled_from(["skellam", "gaussian"]))
def test_joint_bounds_hold_in_any_order_and_cost_once(steps: list[Step], noise: Noise) -> None:
    """What was burnt may be said again to another query; nothing else may."""
    scale = 1 if noise == "skellam" else 2**20
    with tempfile.TemporaryDirectory() as folder, device(Path(folder), limit=Cost(1.0, 1e-6)) as phone:
        decided: dict[int, str] = {}
        contributed: set[int] = set()
        for step, number, a, b in steps:
            phone.counted = {"a": a, "b": b}
            if step == "restart":
                phone.restart()
            elif step == "ask" and number not in decided:
                phone.ask(_one(number, noise))
                contributed.add(number)
            elif number in contributed and number not in decided and step in {"burn", "release"}:
                outcome = wire.BURNT if step == "burn" else wire.RELEASED
                phone.participant.decided(phone.servers.decide(_one(number, noise), outcome))
                decided[number] = step
            counting = {number for number in contributed if decided.get(number) != "burn"}
            live = phone.participant.records.within(LIVE)
            assert {record.id for record in live} == {f"q{number}" for number in counting}
            total = sum((record.norms for record in live), Norms(0, 0))
            assert total.l1 <= BOUNDS["l1"] * scale
            assert total.l2_squared <= BOUNDS["l2_squared"] * scale**2
            state = "spent" if "release" in decided.values() else "reserved"
            assert phone.accounts() == ({"sequence s": state} if counting else {})


def test_the_norms_are_those_of_what_was_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, to see what the phone has said."""
    monkeypatch.setattr(Query, "share", lambda query, _rng: [0] * query.size)
    with device(tmp_path, counted={"a": 3.4, "b": 4}) as phone:
        total = np.zeros((0, 2), dtype=np.int64)
        for number in range(4):
            contributed = phone.ask(_one(number))
            counters, _ = phone.servers.open(_one(number), contributed)
            assert phone.participant.records.all()[number].norms == Norms.of(counters)
            total = np.vstack([total, counters])
        assert total[0].tolist() == [3, 4]  # which is all of the L2 bound
        assert not total[1:].any()
        phone.participant.decided(phone.servers.decide(_one(0), wire.BURNT))
        counters, _ = phone.servers.open(_one(4), phone.ask(_one(4)))
        assert counters == [3, 4]


def test_a_sequence_fits_a_budget_that_one_of_its_queries_fits(tmp_path: Path) -> None:
    with device(tmp_path, limit=Cost(1.0, 1e-6)) as phone:
        for number in range(5):
            phone.ask(_one(number))
        with pytest.raises(Declined) as declined:
            phone.ask(query(id="more"))
        assert declined.value.reason is Reason.BUDGET
        assert phone.accounts() == {"sequence s": "reserved"}


def test_it_is_given_back_with_its_last_query_only(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        for number in range(3):
            phone.ask(_one(number))
        for number in (2, 0):
            phone.participant.decided(phone.servers.decide(_one(number), wire.BURNT))
            assert phone.accounts() == {"sequence s": "reserved"}
        phone.participant.decided(phone.servers.decide(_one(1), wire.BURNT))
        assert phone.accounts() == {}


def test_it_is_not_given_back_once_one_of_its_queries_is_released(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        for number in range(2):
            phone.ask(_one(number))
        phone.participant.decided(phone.servers.decide(_one(0), wire.RELEASED))
        phone.participant.decided(phone.servers.decide(_one(1), wire.BURNT))
        phone.restart()
        assert phone.accounts() == {"sequence s": "spent"}
