"""Keys, from the first one on, and when they are destroyed."""

from __future__ import annotations

from reticent_keys.journal import KeyState
from tests.keys.journal_setting import (
    ASKED,
    DEADLINE,
    FIRST,
    LATER,
    NOW,
    SECOND,
    Setting,
    countersigned,
    decision,
    states,
)


def check_one_key_is_active(the: Setting) -> None:
    countersigned(the.journal)
    the.journal.activate(SECOND, LATER)
    assert the.journal.keys(KeyState.ACTIVE) == [SECOND]
    assert states(the.reopened()) == {"second": "ACTIVE", "first": "DRAINING"}
    assert the.journal.key("first") == FIRST._replace(state=KeyState.DRAINING)
    assert the.journal.key("third") is None


def check_a_key_without_queries_is_destroyed_by_its_successor(the: Setting) -> None:
    the.journal.activate(SECOND, LATER)
    assert states(the.journal) == {"second": "ACTIVE", "first": "DESTROYED"}


def check_a_draining_key_is_destroyed_with_the_last_decision(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.activate(SECOND, LATER)
    the.journal.decide(number, 0, decision(b"0"), NOW)
    assert states(the.journal)["first"] == "DRAINING"
    assert not the.journal.is_decided(number)
    assert the.journal.undecided_queries(NOW) == [ASKED.digest]
    the.journal.decide(number, 1, decision(b"1"), NOW)
    assert states(the.reopened())["first"] == "DESTROYED"
    assert the.journal.is_decided(number)
    assert not the.journal.undecided_queries(NOW)


def check_a_key_that_is_made_ahead_becomes_active_and_others_are_destroyed(the: Setting) -> None:
    assert the.journal.active_since() == NOW
    the.journal.add_pending(SECOND, NOW + 1)
    the.journal.add_pending(SECOND._replace(id="spare"), NOW + 1)
    assert states(the.reopened()) == {"first": "ACTIVE", "second": "PENDING", "spare": "PENDING"}
    assert the.journal.active_since() == NOW
    for _ in range(2):
        the.journal.activate(SECOND, LATER)
    assert states(the.reopened()) == {"first": "DESTROYED", "second": "ACTIVE", "spare": "DESTROYED"}
    assert the.journal.active_since() == LATER
    the.journal.add_pending(SECOND._replace(id="third"), LATER)
    the.journal.retire_keys()
    assert states(the.journal) == {"first": "DESTROYED", "second": "RETIRED", "spare": "DESTROYED", "third": "RETIRED"}
    assert the.journal.active_since() is None


def check_of_two_rotations_at_a_time_one_takes_effect(the: Setting) -> None:
    """The later one would destroy the active key: its own key is destroyed, or it replaces another key."""
    third, fourth = SECOND._replace(id="third"), SECOND._replace(id="fourth")
    the.journal.add_pending(SECOND, NOW)
    the.journal.activate(third, LATER)
    for late in (SECOND, FIRST):
        the.journal.activate(late, LATER)
        assert the.journal.keys(KeyState.ACTIVE) == [third]
    the.journal.add_pending(fourth, LATER)
    the.journal.activate(fourth, LATER, replaces="first")
    assert the.journal.keys(KeyState.ACTIVE) == [third]
    the.journal.activate(fourth, LATER, replaces="third")
    assert the.journal.keys(KeyState.ACTIVE) == [fourth]


def check_a_query_that_is_overdue_holds_no_key(the: Setting) -> None:
    number = countersigned(the.journal).number
    the.journal.decide(number, 0, decision(b"0"), NOW)
    the.journal.activate(SECOND, LATER)
    the.journal.destroy_unused(DEADLINE - 1)
    [_, former] = the.journal.summary(DEADLINE - 1).keys
    assert (former.state, former.undecided, former.overdue) == ("DRAINING", 1, 0)
    the.journal.destroy_unused(DEADLINE)
    [_, former] = the.reopened().summary(DEADLINE).keys
    assert (former.state, former.undecided, former.overdue) == ("DESTROYED", 0, 1)
    burnt = decision(b"burnt")
    assert the.journal.decide(number, 1, burnt, DEADLINE) == burnt
