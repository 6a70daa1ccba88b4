"""Faults as data: written, read, refused with their line, and looked up."""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_sim.engine.faults import KINDS, SAMPLED, Fault, FaultSchedule, Moment, sample

TEXT = """# a day of trouble
{"day": 0, "step": 9, "kind": "partition", "target": "phones 0-3", "server": "aggregation", "steps": 2}
{"day": 0, "step": 9, "kind": "reply lost", "target": "phone 2", "call": "contribute", "times": 2}

{"day": 0, "step": 8, "kind": "crash", "target": "keys", "steps": 1}
{"day": 0, "step": 10, "kind": "crash", "target": "aggregation", "steps": 0, "phase": 1}
{"day": 0, "step": 11, "kind": "full", "target": "aggregation"}
{"day": 0, "step": 12, "kind": "full", "target": "phone 2"}
{"day": 0, "step": 12, "kind": "skew", "target": "phones 1-2", "seconds": -90, "steps": 3}
{"day": 0, "step": 13, "kind": "skew", "target": "phone 2", "seconds": 30}
{"day": 0, "step": 14, "kind": "slow", "target": "phone 2", "rounds": 2}
{"day": 0, "step": 15, "kind": "absent", "target": "phone 2", "phase": 1, "steps": 2}
{"day": 0, "step": 2, "kind": "join", "target": "phone 2"}
{"day": 0, "step": 17, "kind": "crash", "target": "aggregation", "steps": 1, "phase": 2}
{"day": 1, "step": 3, "kind": "leave", "target": "phone 2"}
"""


def test_a_phone_and_the_coordinator_find_what_concerns_them_when_it_holds() -> None:
    schedule = FaultSchedule.from_text(TEXT)
    schedule.check(phones=4, days=2)
    phone = schedule.of_phone(2)
    assert [phone.reaches("aggregation", Moment(0, step)) for step in (8, 9, 10, 11)] == [True, False, False, True]
    assert [phone.reaches("keys", Moment(0, step)) for step in (7, 8, 9)] == [True, False, True]
    assert phone.reaches("keys", Moment(0, 8, 1))  # it starts again before a count
    assert [phone.reaches("aggregation", Moment(0, 17, phase)) for phase in range(4)] == [True, True, False, True]
    assert [phone.of_call("contribute", number, Moment(0, 9)) for number in range(3)] == [
        "reply lost",
        "reply lost",
        None,
    ]
    assert phone.of_call("contribute", 0, Moment(0, 10)) is phone.of_call("query", 0, Moment(0, 9)) is None
    assert [phone.is_full(Moment(0, step)) for step in (11, 12, 13)] == [False, True, False]
    assert [phone.skew(Moment(0, step)) for step in (11, 12, 13, 15)] == [
        dt.timedelta(seconds=each) for each in (0, -90, -60, 0)
    ]
    assert [phone.is_absent(Moment(0, 14, phase)) for phase in range(1, 4)] == [True, True, False]
    assert [phone.is_absent(Moment(0, 15, phase)) for phase in range(4)] == [False, True, True, False]
    assert not phone.is_absent(Moment(0, 16, 1))
    there = [Moment(0, 1), Moment(0, 2), Moment(1, 3), Moment(1, 3, 5), Moment(1, 4)]
    assert [phone.is_absent(moment) for moment in there] == [True, False, False, False, True]
    assert [phone.is_off(moment) for moment in there] == [True, False, True, True, True]
    assert not phone.is_off(Moment(0, 15, 1))  # it is absent for rounds only
    assert [schedule.runs("keys", Moment(0, step)) for step in (7, 8, 9)] == [True, False, True]
    assert schedule.days_of_processes == {0}
    assert (phone.joins, phone.leaves) == (Moment(0, 2), Moment(1, 3))
    assert not schedule.of_phone(3).is_full(Moment(0, 12))
    assert not schedule.of_phone(3).is_absent(Moment(0, 1))
    begin = {(step, phase): schedule.at(Moment(0, step, phase)) for step in range(24) for phase in range(3)}
    assert {when: [each.kind for each in faults] for when, faults in begin.items() if faults} == {
        (8, 0): ["crash"],
        (10, 1): ["crash"],
        (11, 0): ["full"],
        (17, 2): ["crash"],
    }


def test_a_crash_of_an_aggregation_server_concerns_the_phones_that_call_it() -> None:
    schedule = FaultSchedule(
        (Fault(0, 1, "crash", "aggregation"), Fault(0, 2, "crash", "aggregation-2"), Fault(0, 3, "crash", "keys"))
    )
    schedule.check(phones=10, days=1, aggregation_servers=2)
    for number in range(4):
        phone, own = schedule.of_phone(number, aggregation_servers=2), 1 + number % 2
        down = [step for step in range(4) if not phone.reaches("aggregation", Moment(0, step))]
        assert down == [own]
        assert not phone.reaches("keys", Moment(0, 3))
        assert [step for step in range(4) if not schedule.runs("aggregation", Moment(0, step), own - 1)] == [own]
    assert [step for step in range(4) if not schedule.runs("keys", Moment(0, step), 1)] == [3]
    with pytest.raises(ValueError, match="the target of 'full' is one such as"):
        Fault(0, 1, "full", "aggregation-1")


FULL = FaultSchedule.from_text(TEXT)


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 9), st.integers(0, 30))
def test_a_random_schedule_fits_its_run_and_survives_its_text(seed: int, phones: int, days: int, faults: int) -> None:
    schedule = sample(seed, phones=phones, days=days, faults=faults)
    schedule.check(phones=phones, days=days)
    assert len(schedule) == faults
    assert FaultSchedule.from_text(schedule.to_text()) == schedule
    assert schedule == sample(seed, phones=phones, days=days, faults=faults)
    more = sample(seed, phones=phones, days=days, faults=faults + 3)
    assert set(schedule.faults) <= set(more.faults)  # a fault depends on its number, not on how many there are
    assert [each.moment for each in schedule.faults] == sorted(each.moment for each in schedule.faults)
    assert all(each.day * 24 + each.step + each.steps <= days * 24 for each in schedule.faults)


def test_random_schedules_have_all_kinds_and_most_hit_counts() -> None:
    schedule = sample(1, phones=50, days=3, faults=300, counts=[(1, 5), (2, 9)])
    assert {each.kind for each in schedule.faults} == set(SAMPLED)
    at_counts = [each for each in schedule.faults if (each.day, each.step) in {(1, 5), (2, 9)}]
    assert {each.kind for each in at_counts} == set(SAMPLED)
    assert len(at_counts) > 150
    assert {each.kind for each in schedule.faults if each not in at_counts} == {"partition", "crash", "full", "absent"}
    assert FaultSchedule.from_text(FULL.to_text()) == FULL
    assert {each.kind for each in (*schedule.faults, *FULL.faults)} == set(KINDS)


GOOD = {"day": 0, "step": 9, "kind": "crash", "target": "keys"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"day": -1}, "day is a whole number from 0 to 10000: got -1"),
        ({"step": 24}, "step is a whole number from 0 to 23: got 24"),
        ({"step": True}, "step is a whole number from 0 to 23: got True"),
        ({"kind": "fire"}, "kind is one of partition, request lost"),
        ({"kind": ["crash"]}, "kind is one of partition"),
        ({"target": "phone 3"}, "the target of 'crash' is one such as keys, aggregation, ads, worker 0: got 'phone 3'"),
        ({"target": 3}, "target is text: got 3"),
        ({"kind": "join", "target": "phones 9-3"}, "the target of 'join' is one such as phone 3, phones 3-9"),
        ({"kind": "full", "target": "worker"}, "the target of 'full' is one such as"),
        ({"target": "worker"}, "the target of 'crash' is one such as"),
        ({"kind": "partition", "target": "phone 1"}, "'partition' needs server"),
        ({"kind": "cut", "target": "phone 1"}, "'cut' needs call"),
        ({"kind": "cut", "target": "phone 1", "call": "count"}, "call is one of join, renew"),
        ({"kind": "cut", "target": "phone 1", "call": "join", "times": 0}, "times is a whole number from 1"),
        ({"kind": "skew", "target": "phone 1"}, "'skew' needs seconds"),
        ({"kind": "skew", "target": "phone 1", "seconds": 1801}, "seconds is a whole number from -1800 to 1800"),
        ({"kind": "absent", "target": "phone 1", "steps": 0}, "steps is a whole number from 1"),
        ({"steps": -1}, "steps is a whole number from 0"),
        ({"phase": 0}, "phase is a whole number from 1"),
        ({"kind": "slow", "target": "phone 1", "phase": 1}, "'slow' has no phase"),
        ({"server": "keys"}, "'crash' has no server: got 'keys'"),
        ({"minute": 7}, "a fault has no 'minute'"),
    ],
)
def test_a_line_that_is_no_fault_is_refused_with_its_number(changes: dict[str, object], sentence: str) -> None:
    text = f"\n{json.dumps(GOOD)}\n{json.dumps(GOOD | changes)}\n"
    with pytest.raises(ValueError, match=r"^faults\.jsonl:3: ") as caught:
        FaultSchedule.from_text(text, "faults.jsonl")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["crash", "[1]", '{"day": 0}', "{" * 10_000, '{"day": 1e999, "step": NaN}'])
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"^faults:1: [^\n]{10,200}$"):
        FaultSchedule.from_text(line)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (GOOD | {"day": 2}, "faults:2: the run has days 0 to 1: got day 2"),
        (GOOD | {"kind": "join", "target": "phones 9-10"}, "faults:2: the run has phones 0 to 9: got 'phones 9-10'"),
        (GOOD | {"target": "aggregation-3"}, "faults:2: the run has 2 aggregation servers: got 'aggregation-3'"),
        (GOOD | {"target": "worker 1"}, "faults:2: the run has workers 0 to 0: got 'worker 1'"),
        (GOOD | {"kind": "join", "target": "phones 2-4"}, "faults:2: phone 3 can join once, and does in faults:1"),
    ],
)
def test_a_fault_that_the_run_cannot_have_is_refused(line: dict[str, object], sentence: str) -> None:
    first = {"day": 0, "step": 1, "kind": "join", "target": "phone 3"}
    schedule = FaultSchedule.from_text(f"{json.dumps(first)}\n{json.dumps(line)}")
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the sentence is compared
        schedule.check(phones=10, days=2, workers=1, aggregation_servers=2)
    assert str(caught.value) == sentence


def test_a_phone_that_joins_after_it_has_left_is_refused() -> None:
    schedule = FaultSchedule((Fault(1, 0, "join", "phone 3"), Fault(0, 5, "leave", "phone 3")))
    with pytest.raises(ValueError, match=r"^fault 1: phone 3 joins after it leaves$"):
        schedule.check(phones=10, days=2)
