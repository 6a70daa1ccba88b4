"""A step on the wire: every message has one size, and programs of any age read the same in it."""

import contextlib
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from reticent_client import ClientError, MarkovChain, mask_sensitive
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import MAX_LABEL, SIZE, Step, check_label, position
from reticent_client.mask.limits import MAX_STEPS

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "phone-wire.json").read_text(encoding="utf-8"))

labels = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_LABEL).filter(
    lambda label: len(label.encode()) <= MAX_LABEL
)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Steps of any day that there can be."""
    count = draw(st.integers(1, MAX_STEPS))
    step, date = draw(st.integers(0, count - 1)), draw(st.dates())
    return Step(position(date, step), date, step, count, draw(st.none() | labels), draw(st.booleans()))


@example(Step(position(dt.date.max, MAX_STEPS - 1), dt.date.max, MAX_STEPS - 1, MAX_STEPS, "x" * MAX_LABEL, raw=True))
@example(Step(0, dt.date.min, 0, 1, None))
@given(steps())
def test_all_messages_have_one_size_and_say_what_they_were_told(step: Step) -> None:
    message = step.encode()
    assert len(message) == SIZE
    assert Step.decode(message) == step


def test_every_length_of_a_label_gives_the_same_size() -> None:
    """None of them falls between two lengths of a length."""
    date = dt.date(2027, 2, 1)
    for place in (0, position(date, 0), position(dt.date.max, 47)):
        assert {len(Step(place, date, 0, 48, "x" * size).encode()) for size in range(MAX_LABEL + 1)} == {SIZE}


@given(st.text(min_size=1, max_size=2 * MAX_LABEL))
def test_a_label_is_refused_where_no_message_can_carry_it(label: str) -> None:
    try:
        fits = len(label.encode()) <= MAX_LABEL
    except UnicodeEncodeError:
        fits = False
    if fits:
        check_label(label)
    else:
        with pytest.raises(ValueError, match=r"^a context (is text that UTF-8 can write|has at most 128 bytes)"):
            check_label(label)


def test_a_phone_refuses_a_policy_with_such_a_label() -> None:
    """When it is made, and not in the middle of the day."""
    long = MarkovChain(["home", "x" * 129], [1, 0], [])
    with pytest.raises(ValueError, match="has at most 128 bytes of UTF-8: got 129"):
        MaskRunner(mask_sensitive(long, sensitive={"home"}))


@given(st.lists(st.tuples(st.dates(), st.integers(0, MAX_STEPS - 1)), min_size=2, max_size=9))
def test_positions_grow_with_time(moments: list[tuple[dt.date, int]]) -> None:
    assert sorted(moments) == sorted(moments, key=lambda moment: position(*moment))
    assert len({position(*moment) for moment in moments}) == len(set(moments))


# What must stay as it is, for apps that were built long ago


@pytest.mark.parametrize("vector", VECTORS["steps"], ids=lambda vector: f"{vector['day']} {vector['time']}")
def test_steps_are_written_and_read_as_ever(vector: dict[str, Any]) -> None:
    """The vectors leave the zeros at the end of a message out."""
    message = bytes.fromhex(vector["message"]).ljust(vector["length"], b"\0")
    date = dt.date.fromisoformat(vector["day"])
    step = Step(vector["position"], date, vector["step"], vector["steps"], vector["context"], vector["raw"])
    assert (step.encode(), step.time) == (message, vector["time"])
    assert Step.decode(message) == step


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: str(vector["why"]))
def test_labels_are_refused_as_ever(vector: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^a context "):
        check_label(vector["context"])


@pytest.mark.parametrize("vector", VECTORS["damaged"], ids=lambda vector: str(vector["why"]))
def test_damaged_messages_are_never_taken_for_a_step(vector: dict[str, Any]) -> None:
    with pytest.raises((DecodeError, ValueError, ClientError)):
        Step.decode(bytes.fromhex(vector["message"]))


@given(st.binary(max_size=SIZE))
def test_garbage_is_a_step_or_a_known_error(message: bytes) -> None:
    with contextlib.suppress(DecodeError, ValueError):
        assert isinstance(Step.decode(message), Step)
