"""The trace: an order that no timing changes, a hash of all of it, and the first difference of two."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_sim.engine.trace import SERVERS, Event, Trace, first_difference

EVENTS = st.lists(st.builds(Event, st.integers(-5, 5), st.integers(SERVERS, 5), st.text("ab", max_size=2)), max_size=20)


def trace_of(*spans: list[Event]) -> str:
    trace = Trace()
    for span in spans:
        trace.add(span)
    return trace.hash


@given(events=EVENTS, workers=st.integers(1, 4))
def test_the_split_of_phones_among_workers_changes_nothing(events: list[Event], workers: int) -> None:
    """The events of one phone stay in their order."""
    split = [[event for event in events if event.phone % workers == worker] for worker in range(workers)]
    for order in (split, split[::-1]):
        assert trace_of([event for own in order for event in own]) == trace_of(events)


@given(events=EVENTS.filter(bool), place=st.integers(0), change=st.sampled_from(Event._fields))
def test_every_part_of_every_event_changes_the_hash(events: list[Event], place: int, change: str) -> None:
    place %= len(events)
    event = events[place]
    other = {
        "order": event._replace(order=event.order + 100),
        "phone": event._replace(phone=event.phone + 100),
        "text": event._replace(text=f"{event.text}c"),
    }[change]
    assert trace_of([*events[:place], other, *events[place + 1 :]]) != trace_of(events)
    assert trace_of([*events[:place], *events[place + 1 :]]) != trace_of(events)


def test_a_phone_that_does_two_things_at_a_time_does_them_in_an_order() -> None:
    first, second = Event(3, 1, "off"), Event(3, 1, "contributed")
    assert trace_of([first, second]) != trace_of([second, first])


def test_the_file_has_what_the_hash_is_of(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace.txt")
    trace.add([Event(7, 2, "step home"), Event(-5, 3, "on"), Event(7, SERVERS, "released visits: value [3.0]")])
    trace.add([Event(9, 2, "left")])
    trace.close()
    text = (tmp_path / "trace.txt").read_bytes()
    assert text.decode().splitlines() == [
        "-5\tphone 3\ton",
        "7\tservers\treleased visits: value [3.0]",
        "7\tphone 2\tstep home",
        "9\tphone 2\tleft",
    ]
    assert trace.hash == hashlib.blake2b(text, digest_size=16).hexdigest()


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ("a\nb\n", "a\nb\n", None),
        ("a\nb\nc\n", "a\nx\ny\n", ("b", "x")),
        ("a\nb\n", "a\n", ("b", None)),
        ("", "a\n", (None, "a")),
    ],
)
def test_the_first_difference_is_named(
    one: str, other: str, difference: tuple[str | None, str | None] | None, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text(one)
    (tmp_path / "other").write_text(other)
    assert first_difference(tmp_path / "one", tmp_path / "other") == difference
