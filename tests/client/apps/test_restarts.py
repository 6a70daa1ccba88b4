"""What a phone goes on from, when it is begun again, and when its clock is wrong."""

import asyncio
import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reticent.clock import ManualClock, SystemClock
from reticent.randomness import seeded
from reticent_client import Schedule
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step, position
from reticent_client.store import PhoneStore
from tests.client.apps.phones import MONDAY, at, limited, releasing, tossing
from tests.client.apps.published_steps import PublishedSteps, phone_of
from tests.parties.waiting import until

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


@pytest.fixture
def clock() -> ManualClock:
    """A Monday, noon."""
    return ManualClock(at("12:00"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PhoneStore]:
    """A store that is new."""
    with closing(PhoneStore(tmp_path / "phone.db")) as store:
        yield store


# Clocks that are wrong


@limited
async def test_a_clock_that_is_set_back_while_the_phone_runs_has_nothing_told_twice() -> None:
    """The phone is silent until the clock is where it was."""
    for back in (HOUR, DAY, 3000 * DAY):
        clock = ManualClock(at("12:00"))
        published = PublishedSteps(clock)
        async with phone_of(None, clock, published, first_day=True) as phone:
            phone.sense("home")
            await clock.move_to(at("13:10"))
            clock._now -= back
            phone.sense("work")
            assert phone.next_step.instant == at("13:30")
            await clock.move_to(at("13:20"))
            assert [step for step, _ in published.steps] == [25, 26]
            phone.sense("work")
            await clock.move_to(at("13:30"))
        assert published.steps == [(25, "home"), (26, None), (27, "work")]


@pytest.mark.parametrize("back", [dt.timedelta(seconds=2), HOUR, 13 * HOUR, DAY, 400 * DAY], ids=str)
@limited
async def test_a_clock_that_is_set_back_while_the_phone_is_off_has_nothing_told_twice(
    store: PhoneStore, back: dt.timedelta
) -> None:
    clock = ManualClock(at("12:00"))
    published = PublishedSteps(clock)
    for lives in range(4):
        async with phone_of(store, clock, published, policy=tossing(), first_day=True, rng=seeded(lives)) as phone:
            phone.sense("home")
            await clock.move_to(max(clock.now(), at("12:45")) + lives * HOUR)
            assert not phone.suspended
        clock._now -= back
    contexts: dict[int, set[str | None]] = {}
    for _, step in published:
        contexts.setdefault(step.position, set()).add(step.context)
    assert all(len(each) == 1 for each in contexts.values())
    assert max(contexts) > position(MONDAY, 26)


@limited
async def test_a_clock_that_begins_in_1970_does_no_harm(store: PhoneStore) -> None:
    """As on machines without a battery: it is set right soon after the start."""
    clock = ManualClock(at("12:00"))
    published = PublishedSteps(clock)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(at("12:30"))
    clock._now = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    async with phone_of(store, clock, published) as phone:
        await clock.move_to(clock.now() + HOUR)
        assert published.steps == [(25, "home")]
        clock._now = at("12:50")
        await clock.move_to(at("12:55"))
        phone.sense("work")
        await clock.move_to(at("13:00"))
        assert not phone.suspended
        assert len(phone.masked._messages) == 2  # nothing is lost for apps that were away
    assert published.steps == [(25, "home"), (25, "home"), (26, "work")]


@limited
async def test_the_system_clock_notices_that_it_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a phone that waits for a day far ahead, by a clock that was wrong for a moment, goes on today."""
    monkeypatch.setattr("reticent.clock._NAP", 0.01)
    present = [at("12:00", dt.date(2036, 1, 1))]
    clock = SystemClock()
    monkeypatch.setattr(clock, "now", lambda: present[0])
    published: list[Step] = []
    async with MaskRunner(releasing(), clock=clock, zone=dt.UTC, on_step=published.append) as phone:
        phone.sense("home")
        await asyncio.sleep(0.05)
        present[0] = at("12:29:50")
        await asyncio.sleep(0.05)
        present[0] = at("12:29:59")
        phone.sense("home")
        await asyncio.sleep(0.05)
        present[0] = at("12:30")
        await until(lambda: len(published) == 1)
    assert (published[0].date, published[0].step) == (MONDAY, 25)


@limited
async def test_a_reading_from_a_time_to_come_does_not_count(clock: ManualClock) -> None:
    """The clock was set back since: nobody knows how old the reading is."""
    async with phone_of(None, clock, PublishedSteps(clock), first_day=True) as phone:
        phone.sense("home")
        assert phone.reading == "home"
        clock._now -= HOUR
        assert phone.reading is None


# Restarts


@limited
async def test_nothing_leaves_before_its_step_begins_also_over_a_kill(store: PhoneStore, clock: ManualClock) -> None:
    """A step that was decided is not in the stream until then, and leaves then."""
    published = PublishedSteps(clock)
    lead = at("12:30") - dt.timedelta(milliseconds=500)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(lead)
        assert [step for _, step in published] == []
        assert len(store.messages()) == 1  # it is decided
    async with phone_of(store, clock, published) as phone:
        phone.sense("work")
        await clock.move_to(at("12:30") - dt.timedelta(microseconds=1))
        assert phone.masked.last is None
        await clock.move_to(at("12:30"))
    assert [(moment, step.context) for moment, step in published] == [(at("12:30"), "home")]


@limited
async def test_a_step_that_was_decided_and_did_not_get_out_is_told_after_the_restart(
    store: PhoneStore, clock: ManualClock
) -> None:
    published = PublishedSteps(clock)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(at("12:30") - dt.timedelta(milliseconds=500))
    clock._now = at("12:40")
    async with phone_of(store, clock, published) as phone:
        assert phone.masked.last is not None
        assert Step.decode(phone.masked.last[1]).context == "home"


@limited
async def test_without_its_store_a_phone_is_suspended_until_the_day_ends(clock: ManualClock) -> None:
    published = PublishedSteps(clock)
    with closing(PhoneStore()) as store:
        async with phone_of(store, clock, published, first_day=False) as phone:
            suspension = [phone.suspended]
            while clock.now() < at("00:00", MONDAY + DAY):
                phone.sense("home")
                await clock.move_to(phone.next_step.instant)
            assert [*suspension, phone.suspended] == [True, False]
    assert published.steps == [*((step, None) for step in range(25, 48)), (0, "home")]


@limited
async def test_another_policy_is_suspended_until_tomorrow_and_so_is_the_first_one_put_back(
    store: PhoneStore, clock: ManualClock
) -> None:
    first, second = releasing(hidden="hospital"), releasing(hidden="work")
    published = PublishedSteps(clock)
    for policy in (first, second, first, second):
        async with phone_of(store, clock, published, policy=policy, first_day=True) as phone:
            assert phone.suspended == (len(published) > 0)
            phone.sense("home")
            await clock.move_to(phone.next_step.instant)
    assert published.steps == [(25, "home"), (26, None), (27, None), (28, None)]
    clock._now = at("23:59")
    async with phone_of(store, clock, published, policy=second) as phone:
        phone.sense("home")
        await clock.move_to(at("00:00", MONDAY + DAY))
        assert not phone.suspended
    assert published.steps[-1] == (0, "home")


@limited
async def test_policies_that_change_places_and_back_are_suspended_until_tomorrow(
    store: PhoneStore, clock: ManualClock
) -> None:
    """The one put back does not go on from a state that knows nothing of the other's releases."""
    first, second = releasing(hidden="hospital"), releasing(hidden="work")
    published = PublishedSteps(clock)
    for weekday, weekend in [(first, second), (second, first), (first, second)]:
        schedule = Schedule({"weekday": weekday, "weekend": weekend})
        async with phone_of(store, clock, published, policy=schedule, first_day=True) as phone:
            assert phone.suspended == (len(published) > 0)
            phone.sense("home")
            await clock.move_to(phone.next_step.instant)
    assert published.steps == [(25, "home"), (26, None), (27, None)]


@limited
async def test_a_new_policy_works_at_once_in_the_morning(store: PhoneStore) -> None:
    """Put in place before midnight it is suspended for the rest of the evening; after midnight, not at all."""
    clock = ManualClock(at("23:00"))
    published = PublishedSteps(clock)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(at("23:30"))
    clock._now = at("00:10", MONDAY + DAY)
    async with phone_of(store, clock, published, policy=releasing(hidden="work")) as phone:
        assert not phone.suspended
        phone.sense("hospital")
        await clock.move_to(phone.next_step.instant)
    assert published.steps == [(47, "home"), (1, "hospital")]


@limited
async def test_another_policy_in_the_moment_before_midnight_does_not_decide_midnight_again(store: PhoneStore) -> None:
    """Tomorrow's first step was decided by the first one; it leaves as it was; then tomorrow is suspended."""
    clock = ManualClock(at("23:50"))
    published = PublishedSteps(clock)
    midnight = at("00:00", MONDAY + DAY)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(midnight - dt.timedelta(milliseconds=500))
    async with phone_of(store, clock, published, policy=releasing(hidden="work")) as phone:
        phone.sense("hospital")
        await clock.move_to(midnight + HOUR / 2)
    assert published.steps == [(0, "home"), (1, None)]


@limited
async def test_another_policy_after_a_midnight_that_was_not_stored_is_suspended(
    store: PhoneStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says which policy decided the day, although it could not at the first step."""
    clock = ManualClock(at("23:50"))
    published = PublishedSteps(clock)
    midnight = at("00:00", MONDAY + DAY)

    def full(*_: object) -> None:
        raise OSError(None, "database or disk is full", "phone.db")

    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        with monkeypatch.context() as patch:
            patch.setattr(PhoneStore, "append", full)
            await clock.move_to(midnight)
        phone.sense("home")
        await clock.move_to(midnight + HOUR / 2)
    async with phone_of(store, clock, published, policy=releasing(hidden="work")) as phone:
        assert phone.suspended
        phone.sense("hospital")
        await clock.move_to(midnight + HOUR)
    assert published.steps == [(1, "home"), (2, None)]


@limited
async def test_another_number_of_steps_in_a_day_is_told_from_tomorrow_on(store: PhoneStore, clock: ManualClock) -> None:
    """The steps of the two cannot be put in one order."""
    published = PublishedSteps(clock)
    async with phone_of(store, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(at("13:00"))
    async with phone_of(store, clock, published, policy=releasing(24)) as phone:
        while len(published) < 4:
            await clock.move_to(phone.next_step.instant - HOUR / 2)
            phone.sense("work")
            await clock.move_to(phone.next_step.instant)
    assert [(moment, step.step, step.steps, step.context) for moment, step in published[2:]] == [
        (at("00:00", MONDAY + DAY), 0, 24, "work"),
        (at("01:00", MONDAY + DAY), 1, 24, "work"),
    ]


@limited
async def test_weekdays_and_weekends_have_policies_of_their_own(store: PhoneStore) -> None:
    """Through two weeks of restarts at odd times, nothing is suspended."""
    schedule = Schedule({"weekday": releasing(4, "hospital"), "weekend": releasing(4, "work")})
    clock = ManualClock(at("00:00") - dt.timedelta(minutes=5))
    published = PublishedSteps(clock)
    for _ in range(20):
        async with phone_of(store, clock, published, policy=schedule, first_day=True, hold=DAY) as phone:
            phone.sense("work")
            await clock.move_to(clock.now() + 17 * HOUR)
    assert len(published) == 57
    assert all((step.context is None) == (step.date.weekday() >= 5) for _, step in published)
