"""Habits that change are noticed, and habits that do not are left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Recent, hybrid, mask_sensitive, simulatable
from reticent_client.mask.policy import Policy
from reticent_client.mask.report import MaskReport
from reticent_client.mask.staleness import FIRST_DAYS, MIN_DAYS, RECENT_DAYS, UnusualSteps
from reticent_sim.world.people import CONTEXTS, HOSPITAL
from reticent_sim.world.world import World
from tests.client.mask.chains import FAST

USUAL = ["home", "work", "home"]
OTHER = ["home", "gym", "cafe"]


def routine(smoothing: float = 0.0) -> Policy:
    """Of somebody who goes to work on nine days of ten, and else stays at home."""
    days = [USUAL] * 9 + [["home"] * 3]
    chain = MarkovChain.fit(days, contexts=["home", "work", "cafe", "clinic"], smoothing=smoothing)
    return mask_sensitive(chain, sensitive={"clinic"})


def after(mask: MaskIt, day: list[str | None], times: int = 1) -> MaskReport:
    """The report after a number of such days."""
    for _ in range(times):
        mask.filter_day(day)
    return mask.report()


def counted(days: list[tuple[int, int]], *, off_model: bool = False) -> Recent:
    """The recent days after days of so many steps, of which so many are unusual, or off the model."""
    unusual_steps = UnusualSteps()
    for steps, unusual in days:
        for step in range(steps):
            unusual_steps.count(unusual=step < unusual, off_model=off_model and step < unusual)
        unusual_steps.finish_day()
    return unusual_steps.recent()


# The rule


def test_usual_days_are_no_change() -> None:
    mask = MaskIt(routine())
    report = after(mask, [*USUAL], 60)
    assert (report.recent, report.stale) == (Recent(days=7, steps=21, unusual=0, off_model=0, usual=0.0), False)
    assert "habits" not in str(report)


@pytest.mark.parametrize("smoothing", [0.0, 0.05])
def test_a_change_is_reported_on_the_day_that_makes_it_clear(smoothing: float) -> None:
    """Whether contexts that were never seen there are off the model or merely rare."""
    mask = MaskIt(routine(smoothing))
    after(mask, [*USUAL], FIRST_DAYS)
    report = after(mask, ["home", "cafe", "cafe"])  # two steps of 21: more than a twentieth
    assert report.stale
    off_model = 0 if smoothing else 2
    assert report.recent == Recent(days=7, steps=21, unusual=2, off_model=off_model, usual=0.0)
    assert str(report).split("; ")[-1] == (
        "habits have changed: 10% of the last 7 days' steps were unusual, 0% were at first, so learn them again"
    )
    assert report.to_json()["recent"] == {
        "days": 7,
        "steps": 21,
        "unusual": 2,
        "off_model": off_model,
        "usual": 0.0,
        "rate": 2 / 21,
        "off_model_rate": off_model / 21,
        "limit": 0.05,
        "stale": True,
    }


def test_a_change_is_forgotten_when_the_old_habits_are_back() -> None:
    """After a week of them."""
    mask = MaskIt(routine())
    after(mask, [*USUAL], FIRST_DAYS)
    assert after(mask, [*OTHER], 3).stale
    assert after(mask, [*USUAL], RECENT_DAYS - 1).stale
    assert not after(mask, [*USUAL]).stale


def test_a_chain_that_never_was_the_users_is_reported_before_anything_is_usual() -> None:
    """From the fifth day on, where more than half of the steps are unusual."""
    mask = MaskIt(routine(smoothing=0.05))  # that the gym and the cafe are rare is all that is known
    days: list[str | None] = ["home", "clinic", "cafe"]
    assert not after(mask, days, MIN_DAYS - 1).stale
    report = after(mask, days)
    assert report.stale
    assert (report.recent.usual, report.recent.off_model) == (None, 0)
    assert "67% of the last 5 days' steps were unusual, so" in str(report)
    assert after(mask, days, FIRST_DAYS).stale  # and getting used to it is no excuse


def test_habits_that_were_new_from_the_first_day_on_are_reported_for_ever() -> None:
    """What the chain does not know is no chain of theirs, though it is all that was ever seen: a third of the steps."""
    mask = MaskIt(routine())
    days: list[str | None] = ["home", "gym", "home"]
    assert not after(mask, days, MIN_DAYS - 1).stale
    reports = [after(mask, days) for _ in range(MIN_DAYS, 91)]
    assert all(report.stale for report in reports)
    report = reports[-1]
    assert report.recent.rate == report.recent.usual == pytest.approx(1 / 3)
    assert report.recent.limit == pytest.approx(0.55)  # by the comparison with the first days nothing is wrong
    assert str(report).split("; ")[-1] == (
        "habits have changed: 33% of the last 7 days' steps were off the model, so learn them again"
    )


def test_what_is_merely_rare_does_not_count_as_off_the_model() -> None:
    """A smoothed chain knows all contexts; a third of the steps is unusual, and was so at first."""
    mask = MaskIt(routine(smoothing=0.05))
    report = after(mask, ["home", "cafe", "home"], 90)
    assert report.recent.rate == pytest.approx(1 / 3)
    assert (report.recent.off_model, report.stale) == (0, False)


@pytest.mark.parametrize(
    ("days", "stale"),
    [
        ([(100, 25)] * 7, False),  # a quarter, and not more
        ([(100, 26)] * 7, True),
        ([(100, 26)] * 40, True),
        ([(100, 100)] * 4, False),  # too few days
        ([(100, 26)] * 5, True),
    ],
)
def test_known_answers_of_what_is_off_the_model(days: list[tuple[int, int]], stale: bool) -> None:
    """Whatever else is unusual was so at first."""
    assert counted(days, off_model=True).stale == stale


@pytest.mark.parametrize(
    ("days", "stale"),
    [
        ([(100, 50)] * 10, False),
        ([(100, 56)] * 10, True),  # more than half and a twentieth
        ([(100, 4)] * 14 + [(100, 13)] * 7, False),
        ([(100, 4)] * 14 + [(100, 14)] * 7, True),  # more than twice what is usual and a twentieth
        ([(100, 0)] * 14 + [(100, 36)], True),  # a single day, if it is odd enough
        ([(100, 0)] * 14 + [(100, 35)], False),
        ([(100, 60)] * 14 + [(100, 54)] * 7, False),
        ([(100, 60)] * 14 + [(100, 56)] * 7, True),  # more than a quarter never passes for usual
        ([(100, 100)] * 4, False),
        ([(100, 100)] * 4 + [(0, 0)] * 9, False),  # days on which nothing counted are none
        ([(100, 100)] * 5 + [(0, 0)] * 9, True),
        ([], False),
    ],
)
def test_known_answers(days: list[tuple[int, int]], stale: bool) -> None:
    assert counted(days).stale == stale


def test_nothing_is_said_of_nothing() -> None:
    report = MaskIt(routine()).report()
    assert (report.recent.rate, report.off_model_rate, str(report.recent)) == (None, None, "no recent days")


@FAST
@given(days=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_recent_days_are_the_last_seven_and_usual_is_the_first_fourteen(days: list[tuple[int, int]]) -> None:
    """Of the days on which anything counted."""
    days = [(steps, min(steps, unusual)) for steps, unusual in days]
    recent, real = counted(days), [day for day in days if day[0]]
    last, first = real[-RECENT_DAYS:], real[:FIRST_DAYS]
    assert (recent.days, recent.steps, recent.unusual) == (len(last), sum(a for a, _ in last), sum(b for _, b in last))
    if len(first) < FIRST_DAYS:
        assert recent.usual is None
    else:
        assert recent.usual == pytest.approx(sum(b for _, b in first) / sum(a for a, _ in first))


# What counts


def test_gaps_and_steps_that_nobody_asked_about_count_for_nothing() -> None:
    """Neither as usual nor as unusual, whether or not the chain knows gaps."""
    for known in ([None, "work", "home"], [*USUAL]):
        mask = MaskIt(mask_sensitive(MarkovChain.fit([USUAL, known]), sensitive={"work"}))
        mask.filter_day(["home", None, None])  # the second gap is off the model where the first is known
        mask.observe("home")
        mask.next_day()  # two steps were missed
        assert mask.report().recent == Recent(days=2, steps=2, unusual=0, off_model=0, usual=None)


def test_suspended_steps_count_for_nothing() -> None:
    """Nothing is known of the memory, so nothing is compared."""
    chain = MarkovChain.fit([USUAL, ["home", "cafe", "home"]])
    mask = MaskIt(simulatable(chain, sensitive={"cafe"}, delta=0.1))
    mask.filter_day([None, "gym", "gym"])  # what would have been released was not read
    report = mask.report()
    assert (report.missing, report.suspended) == (1, 2)
    assert report.recent.days == 0


def test_a_day_counts_when_it_is_over() -> None:
    mask = MaskIt(routine())
    for context in USUAL:
        mask.observe(context)
    assert mask.report().recent.days == 0
    mask.next_day()
    assert mask.report().recent == Recent(days=1, steps=3, unusual=0, off_model=0, usual=None)


# Kept with the state


def test_the_watch_survives_a_restart_at_every_step() -> None:
    """As if nothing had been."""
    policy = routine()
    steady, snapshot = MaskIt(policy, seeded(1)), MaskIt(policy, seeded(1)).snapshot()
    for day in [USUAL] * (FIRST_DAYS + 2) + [OTHER] * 4:
        for context in day:
            restored = MaskIt(policy, seeded(1))
            restored.restore(snapshot)
            restored.observe(context, step=restored.step)
            steady.observe(context)
            report = restored.report()
            assert report == replace(steady.report(), off_model_contexts=report.off_model_contexts)
            snapshot = restored.snapshot()
        steady.next_day()
        restored = MaskIt(policy, seeded(1))
        restored.restore(snapshot)
        restored.next_day()
        snapshot = restored.snapshot()
    assert steady.report().stale
    assert len(snapshot) < 1000


# How often it is wrong


LEARNED = 28
PEOPLE = 30


def days_until_stale(mask: MaskIt, days: list[list[str | None]]) -> int | None:
    """The number of the day on which a change is reported first."""
    for number, day in enumerate(days, start=1):
        if after(mask, day).stale:
            return number
    return None


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_made_up_people_are_left_alone_and_their_changes_noticed(smoothing: float) -> None:
    """At most one of thirty in twelve weeks is wrongly reported; four of five changes are noticed within a week."""
    wrong, noticed = 0, []
    world = World(seed=7, people=PEOPLE, routines=PEOPLE)
    for number in range(PEOPLE):
        days = world.person(number).days(range(LEARNED + 84))
        chain = MarkovChain.fit(days[:LEARNED], contexts=[*CONTEXTS, "unknown"], smoothing=smoothing)
        policy = hybrid(chain, sensitive={HOSPITAL}, delta=0.1)
        wrong += days_until_stale(MaskIt(policy, seeded(number)), days[LEARNED:]) is not None
        mask = MaskIt(policy, seeded(number))
        after_days(mask, days[LEARNED : LEARNED + FIRST_DAYS])
        another = world.person((number + 1) % PEOPLE).days(range(LEARNED + FIRST_DAYS, LEARNED + 84))
        noticed.append(days_until_stale(mask, another))
    assert wrong <= 1
    assert np.mean([day is not None and day <= 7 for day in noticed]) >= 0.8


def after_days(mask: MaskIt, days: list[list[str | None]]) -> None:
    for day in days:
        mask.filter_day(day)
