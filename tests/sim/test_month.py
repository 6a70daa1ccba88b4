"""A month under every check: the promise holds where it is made, and what is counted adds up."""

import itertools
from collections.abc import Iterator

import pytest

from reticent_client import MarkovChain, audit, mask_sensitive
from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.engine.observer import follows
from reticent_sim.experiments.month import BEST, LEAKY, LEARNED_DAYS, MonthPart, Score, Totals, month
from reticent_sim.world.people import CONTEXTS, HOSPITAL, HOURS, WEEKDAYS, WEEKEND, Day, weekday
from reticent_sim.world.world import World

DELTA = 0.1
DAYS = 10
EVERYBODY = World(seed=1, people=20, routines=20)


def ignore(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def parts() -> list[MonthPart]:
    """Ten days of somebody whose visits are irregular and have a telling stop after them."""
    return month(EVERYBODY.person(2), DAYS, DELTA, ignore)


@pytest.fixture(scope="module")
def scores(parts: list[MonthPart]) -> dict[str, Score]:
    total = {check: Score(check) for check in CHECKS}
    for score in itertools.chain.from_iterable(part.scores() for part in parts):
        total[score.check] += score
    return total


def sampled(part: MonthPart, count: int) -> Iterator[list[str | None]]:
    rng = part.coins("samples")
    for _ in range(count):
        yield [None if label == UNKNOWN else label for label in part.chain.sample(rng)]


@pytest.mark.slow
def test_checks_keep_their_promise_on_samples_of_the_chain(parts: list[MonthPart]) -> None:
    """And hiding only the hospital gives nearly every visit away."""
    for part in parts:
        days = list(sampled(part, 40))
        assert all(follows(part.chain, day) for day in days)
        for check, policy in part.policies.items():
            found = audit(policy, days, delta=DELTA, rng=part.coins("audit", check))
            assert found.off_model.days == 0
            assert found.on_model.largest is not None
            if check == LEAKY:
                assert found.on_model.breaches > 0.9 * found.on_model.visits > 0
            else:
                assert found.breaches == []
                assert found.on_model.largest.rise <= DELTA + 1e-9


def test_checks_keep_their_promise_on_days_that_follow_the_chain(scores: dict[str, Score]) -> None:
    for check, score in scores.items():
        if check == LEAKY:
            assert score.on_model.breaches > 0
        else:
            assert score.on_model.breaches == 0
            assert score.on_model.largest_gain <= DELTA + 1e-9
        assert score.on_model.off_model_hours == 0


def test_releases_are_of_hours_with_a_reading() -> None:
    """Not of gaps, whose release tells nothing about anybody."""
    past, now = range(LEARNED_DAYS), range(LEARNED_DAYS, LEARNED_DAYS + DAYS)
    people = map(EVERYBODY.person, range(20))
    some = next(each for each in people if any(None in day for day in each.days(now)))
    chain = MarkovChain.fit(some.days(past), contexts=(*CONTEXTS, UNKNOWN))
    leaky = mask_sensitive(chain, sensitive={HOSPITAL})
    followed = [number for number in now if follows(chain, some.day(number))]
    score, _ = MonthPart(some, chain, {LEAKY: leaky, BEST: leaky}, followed, [], DELTA).scores()
    hours = sum(context is not None for number in followed for context in some.day(number))
    assert hours < len(followed) * HOURS
    assert score.on_model.released == hours - score.on_model.visits
    assert score.expected < score.readings < len(followed) * HOURS


def test_better_checks_expect_to_release_more(parts: list[MonthPart]) -> None:
    for part in parts:
        utility = {check: policy.utility for check, policy in part.policies.items()}
        ladder = [
            max(utility["simulatable"], utility["probabilistic"]),
            utility["hybrid"],
            utility["adaptive"],
            utility[BEST],
            part.policies[BEST].ceiling or 0,
        ]
        assert all(low <= high + 1e-9 for low, high in itertools.pairwise(ladder))


def test_every_day_of_the_month_counts_once(parts: list[MonthPart], scores: dict[str, Score]) -> None:
    first = range(LEARNED_DAYS, LEARNED_DAYS + DAYS)
    assert sorted(number for part in parts for number in (*part.followed, *part.strayed)) == list(first)
    kinds = [WEEKDAYS, WEEKEND]
    for part, kind in zip(parts, kinds, strict=True):
        assert {weekday(number) for number in (*part.followed, *part.strayed)} <= set(kind)
        assert all(follows(part.chain, part.person.day(number)) for number in part.followed)
        assert not any(follows(part.chain, part.person.day(number)) for number in part.strayed)
    visits = sum(part.person.day(number).count(HOSPITAL) for part in parts for number in part.followed)
    for score in scores.values():
        assert score.days == DAYS
        assert score.on_model.visits == visits


def test_the_ceiling_is_no_lower_than_the_best(scores: dict[str, Score]) -> None:
    best = scores[BEST].to_json()
    assert best["complete"]
    assert 0 <= best["to_ceiling"] < 0.01
    assert len({round(score.to_json()["ceiling"], 9) for score in scores.values()}) == 1


def test_a_month_without_a_weekend_has_one_part() -> None:
    [part] = month(EVERYBODY.person(1), 1, DELTA, ignore)
    assert (*part.followed, *part.strayed) == (LEARNED_DAYS,)


def test_progress_names_every_check() -> None:
    progress: list[str] = []
    month(EVERYBODY.person(1), 1, DELTA, progress.append)
    assert progress == list(CHECKS)


def test_scores_add_up() -> None:
    first = Score("hybrid", 4, 6, True, Totals(2, 5, 3, 1, 0.2, 0), Totals(), 4.5)
    second = Score("hybrid", 1, 2, False, Totals(1, 1, 1, 1, 0.1, 0), Totals(1, 2, 1, 1, 0.5, 3), 2.0)
    both = Score("hybrid", 5, 8, False, Totals(3, 6, 4, 2, 0.2, 0), Totals(1, 2, 1, 1, 0.5, 3), 6.5)
    assert first + second == both
    assert (first + second).to_json() == {
        "check": "hybrid",
        "expected": 5 / 4,
        "realised": 8 / 4,
        "ceiling": 2,
        "to_ceiling": 3 / 4,
        "visits": 4,
        "breaches": 2,
        "largest_gain": 0.2,
        "off_model_hours": 3,
        "off_model_visits": 1,
        "off_model_breaches": 1,
        "off_model_largest_gain": 0.5,
        "complete": False,
        "readings": 6.5 / 4,
    }


CHAIN = MarkovChain(["a", "b", "unknown"], [1.0, 0.0, 0.0], [[[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]] * 2)


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (["a", "b", "a"], True),
        (["a", None, "a"], True),
        (["b", "a", "b"], False),  # it begins elsewhere
        (["a", "a", "b"], False),  # no such move
        (["a", "b", None], False),
        (["a", "c", "a"], False),  # never heard of
        (["c", "a", "b"], False),
    ],
)
def test_a_day_follows_a_chain_that_can_produce_it(day: Day, expected: bool) -> None:
    assert follows(CHAIN, day) is expected
