"""Learning: what is counted, what is added, and how it is judged."""

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.randomness import seeded
from reticent_client import ClientError, MarkovChain, MaskIt, Policy, adaptive, audit
from reticent_client.errors import TooFewDays
from reticent_client.habits.evaluation import evaluate
from reticent_client.habits.learning import OTHER, learn, silent
from reticent_client.habits.sampling import DatedDay
from reticent_client.mask.chain import UNKNOWN

MONDAY = dt.date(2027, 3, 1)
LABELS = ("a", "b", "c")
HORIZON = 3

Labels = Sequence[str | None]

some_days = st.lists(
    st.lists(st.sampled_from([*LABELS, None]), min_size=HORIZON, max_size=HORIZON), min_size=1, max_size=12
)  # fmt: skip


def dated(days: Sequence[Labels], begin: dt.date = MONDAY) -> list[DatedDay]:
    """Days that follow each other, from a Monday."""
    return [DatedDay(begin + dt.timedelta(days=k), tuple(labels)) for k, labels in enumerate(days)]


def everything(days: Sequence[Labels], smoothing: float = 0.0, population: MarkovChain | None = None) -> MarkovChain:
    """The chain of all of the days."""
    return learn(dated(days), train=1, smoothing=smoothing, population=population, min_days=1).chain


# Counts


@given(some_days)
def test_without_smoothing_the_chain_is_the_counts(days: list[Labels]) -> None:
    """Counted by hand, move by move; a gap is a context like any other."""
    chain = everything(days)
    walks = [[UNKNOWN if label is None else label for label in day] for day in days]
    seen = {label for walk in walks for label in walk}
    assert chain.contexts == tuple(sorted(seen - {UNKNOWN})) + (UNKNOWN,) * (UNKNOWN in seen)
    firsts = Counter(walk[0] for walk in walks)
    assert np.allclose(chain.initial, [firsts[label] / len(walks) for label in chain.contexts])
    for t, (i, here) in itertools.product(range(HORIZON - 1), enumerate(chain.contexts)):
        onward = Counter(walk[t + 1] for walk in walks if walk[t] == here)
        if onward:
            wanted = [onward[label] / onward.total() for label in chain.contexts]
            assert np.allclose(chain.transitions[t, i], wanted)
        else:
            assert not chain.reachable[t, i]


@given(some_days, st.randoms(use_true_random=False))
def test_the_order_in_which_days_are_given_does_not_matter(days: list[Labels], rng: object) -> None:
    shuffled = dated(days)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    one, other = (learn(each, min_days=1, population=everything(days)) for each in (dated(days), shuffled))
    assert one.chain.to_json() == other.chain.to_json()
    assert (one.training, one.test_days, one.evaluation) == (other.training, other.test_days, other.evaluation)


# Smoothing


@given(some_days, st.floats(0, 50))
def test_rows_sum_to_one_and_what_was_seen_stays_possible(days: list[Labels], smoothing: float) -> None:
    chain, counted = everything(days, smoothing), everything(days)
    assert np.allclose(chain.transitions.sum(axis=2), 1, atol=1e-12)
    assert chain.initial.sum() == pytest.approx(1)
    assert (chain.prior[counted.prior > 0] > 0).all()
    for day in days:
        assert evaluate([(chain, day)]).off_model == 0


@given(some_days)
def test_smoothing_allows_what_was_seen_an_hour_earlier_or_later_and_nothing_else(days: list[Labels]) -> None:
    """A move that was never seen from there, a step away at most, stays impossible wherever the user can be."""
    chain, counted = everything(days, 2.0), everything(days)
    for t in range(HORIZON - 1):
        near = range(max(0, t - 1), min(HORIZON - 1, t + 2))
        for i in np.flatnonzero(chain.reachable[t]):
            seen = np.any([(counted.transitions[k, i] > 0) for k in near if counted.prior[k, i] > 0], axis=0)
            if np.any(seen):
                assert ((chain.transitions[t, i] > 0) <= seen).all()


def test_smoothing_lets_the_user_be_late() -> None:
    days = [["home", "work", "home", "home"], ["home", "home", "home", "home"]] * 7
    late = [["home", "home", "work", "home"]]
    for smoothing, off_model in ((0.0, 1), (2.0, 0)):
        assert evaluate([(everything(days, smoothing), late[0])]).off_model >= off_model
        assert (evaluate([(everything(days, smoothing), late[0])]).off_model == 0) == (smoothing > 0)


@given(some_days, some_days)
def test_a_population_s_chain_completes_the_user_s_and_takes_its_place_where_nothing_is_known(
    days: list[Labels], others: list[Labels]
) -> None:
    population = everything(others)
    assert learn([], population=population).chain is population
    far = [
        np.abs(joint(everything(days, strength, population), LABELS) - joint(population, LABELS)).max()
        for strength in (0.0, 1.0, 1e3, 1e9)
    ]
    assert all(nearer <= further + 1e-12 for further, nearer in itertools.pairwise(far))
    assert far[-1] < 1e-6
    assert np.allclose(joint(everything(days, 0.0, population), LABELS), joint(everything(days), LABELS))
    for day in days + others:
        assert evaluate([(everything(days, 1.0, population), day)]).off_model == 0


def joint(chain: MarkovChain, labels: Sequence[str]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The probability of each move between some contexts."""
    moves = chain.prior[:-1, :, None] * chain.transitions
    places = [chain.find(label) for label in (*labels, UNKNOWN)]
    table = np.zeros((len(moves), len(places), len(places)))
    for (a, i), (b, j) in itertools.product(enumerate(places), repeat=2):
        if i is not None and j is not None:
            table[:, a, b] = moves[:, i, j]
    return table


def test_many_users_are_pooled_and_each_is_split_alone() -> None:
    people = {"ada": dated([["a", "a"]] * 4 + [["b", "b"]] * 4), "bob": dated([["a", "b"]] * 2 + [["c", "c"]] * 2)}
    habits = learn(people, smoothing=0, min_days=1)
    assert (len(habits.training), len(habits.test_days)) == (6, 6)
    assert habits.chain.to_json() == MarkovChain.fit([["a", "a"]] * 4 + [["a", "b"]] * 2).to_json()


# Splitting and judging


@pytest.mark.parametrize(("train", "cut"), [(0.5, 10), (0.25, 5), (0.29, 6), (1.0, 21)])
def test_the_first_days_are_learned_from_and_the_others_judge(train: float, cut: int) -> None:
    days = dated([["a", "b"]] * 21)
    habits = learn(days, train=train, min_days=1)
    assert habits.training == tuple(days[:cut])
    assert habits.test_days == tuple(days[cut:])
    assert (habits.evaluation is None) == (train == 1)


@given(some_days, some_days)
def test_off_model_steps_are_those_that_a_mask_counts(days: list[Labels], later: list[Labels]) -> None:
    """By a walk of its own: what may come next is known after each release, and after a surprise all of it is open."""
    chain = everything(days, 1.0)
    off_model = missing = 0
    for day in later:
        possible: set[int | None] = set(np.flatnonzero(chain.initial > 0).tolist())
        for t, label in enumerate(day):
            index = chain.find(UNKNOWN if label is None else label)
            if index in possible:
                possible = {index}
            elif index is None and label is None:
                missing += 1
            else:
                off_model += 1
            if t + 1 < HORIZON:
                possible = {j for i in possible for j in np.flatnonzero(chain.transitions[t, i] > 0).tolist()}
    evaluation = evaluate([(chain, day) for day in later])
    assert (evaluation.off_model, evaluation.missing) == (off_model, missing)
    assert evaluation.steps == HORIZON * len(later)
    assert evaluation.off_model_share == pytest.approx((off_model + missing) / evaluation.steps)


def test_the_likelihood_is_that_of_the_steps_that_can_be() -> None:
    chain = MarkovChain(["a", "b"], [0.5, 0.5], [[[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])
    evaluation = evaluate([(chain, ["a", "b", "a"]), (chain, ["b", "b", "x"]), (chain, ["a", "x", "a"])])
    expected = np.log([0.5, 0.75, 0.5, 0.5, 0.5])  # b cannot follow b, and the chain knows no x
    assert evaluation.log_likelihood == pytest.approx(expected.mean())
    assert evaluation.unknown_contexts == ("x",)
    assert evaluate([(chain, ["x", "x", None])]).log_likelihood is None


# Weekdays and weekends


def test_weekdays_and_weekends_are_learned_apart_and_share_a_little() -> None:
    week = [["home", "work", "home"]] * 5 + [["home", "lake", "home"]] * 2
    habits = learn(dated(week * 4), apart=True, smoothing=0)
    assert set(habits.chains) == {"weekday", "weekend"}
    assert habits.evaluation is not None
    assert habits.evaluation.off_model == 0
    saturday = habits.on(dt.date(2027, 3, 6))
    work, lake = (saturday.prior[1, saturday.index(label)] for label in ("work", "lake"))
    assert work == pytest.approx(2 * (10 / 14) / (4 + 2))  # two days of both, ten weekdays of fourteen days
    assert work + lake == pytest.approx(1)
    assert habits.on(dt.date(2027, 3, 8)) is habits.chains["weekday"]
    with pytest.raises(ValueError, match="weekdays and weekends have chains of their own"):
        _ = habits.chain


def test_a_weekend_that_was_never_seen_is_like_any_day() -> None:
    habits = learn(dated([["home", "work"]] * 5), apart=True, train=1, smoothing=0, min_days=5)
    assert habits.chains["weekend"].prior[1].tolist() == [0, 1]
    assert learn(dated([["home", "work"]] * 5), train=1, min_days=5).on(MONDAY).contexts == ("home", "work")


# The most visited contexts


def test_all_but_the_most_visited_contexts_become_other() -> None:
    days: list[Labels] = [["home", "work", None], ["home", "gym", "other"], ["home", "work", "home"]] * 5
    later: list[Labels] = [["home", "sea", None], ["home", "work", "gym"], ["home", "work", "home"]] * 5
    habits = learn(dated(days + later), top=2, smoothing=0)
    assert habits.chain.contexts == ("home", OTHER, "work", UNKNOWN)
    assert habits.training[1].labels == ("home", OTHER, OTHER)
    assert habits.test_days[0].labels == ("home", OTHER, None)
    assert habits.evaluation is not None
    assert habits.evaluation.unknown_contexts == ()
    assert habits.evaluation.off_model > 0  # no "other" ever came after work, nor a gap after "other"
    known = MarkovChain.fit([["sea", "home", "home"]])
    assert "sea" in learn(dated(days + later), top=1, population=known).test_days[0].labels


# Cold start


def test_too_few_days_are_an_error_that_says_what_to_do() -> None:
    days = dated([["a", "b"]] * 20)
    with pytest.raises(TooFewDays, match="10 days are too few to learn from, 14 are needed: collect more") as caught:
        learn(days)
    assert (caught.value.known, caught.value.needed) == (10, 14)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)
    assert learn(days, population=MarkovChain.fit([["a", "c"]])).chain.contexts == ("a", "b", "c")
    assert learn(days, train=1).test_days == ()
    with pytest.raises(TooFewDays, match="0 days are too few"):
        learn([])


def test_until_then_nothing_is_released(tmp_path: Path) -> None:
    """A policy like any other: it is saved, loaded, run and audited."""
    silent(["home", "work"], 4).save(tmp_path / "silent.npz")
    policy = Policy.load(tmp_path / "silent.npz")
    assert (policy.check, policy.utility, policy.horizon) == ("silent", 0.0, 4)
    mask = MaskIt(policy, seeded(1))
    assert mask.filter_day(["home", None, "work", "a place never heard of"]) == [None] * 4
    mask.next_day()
    assert mask.observe("work", step=3) is None
    assert not mask.suspended
    found = audit(policy, [["home", "work", "home", "home"]], rng=seeded(1))
    assert (found.total.released, found.breaches) == (0, [])
    assert "silent policy" in repr(policy)
    assert policy.delta is not None


def test_what_is_learned_makes_a_policy() -> None:
    usual, visit = ["home", "work", "work", "home"], ["home", "clinic", "work", "home"]
    habits = learn(dated([usual, visit, usual, usual, usual, usual, usual] * 8))
    policy = adaptive(habits.chain, sensitive={"clinic"}, delta=0.1)
    assert policy.utility > 2
    found = audit(policy, [day.labels for day in habits.test_days], rng=seeded(2))
    assert (found.breaches, found.off_model.days) == ([], 0)
    assert found.on_model.visits == 4


# Bad arguments


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda days: learn(days, train=0),
            "train is the share of the days to learn from, above 0 and at most 1: got 0",
        ),
        (lambda days: learn(days, train=1.5), "train is the share"),
        (lambda days: learn(days, smoothing=-1), "smoothing is a number of days, at least 0: got -1"),
        (lambda days: learn(days, smoothing=float("nan")), "smoothing is a number of days"),
        (lambda days: learn(days, top=0), "top is a number of contexts, at least 1: got 0"),
        (lambda days: learn(days, top=1.5), "top is a number of contexts: got 1.5"),  # type: ignore[arg-type]
        (lambda days: learn(days, min_days=0), "min_days is a number of days, at least 1: got 0"),
        (lambda days: learn(days + days[:1]), "the day 2027-03-01 is given twice"),
        (lambda days: learn([*days, DatedDay(dt.date(2020, 1, 1), ("a",))]), "day 1 has 2 steps where 1 were expected"),
        (lambda days: learn(days, population=MarkovChain.fit([["a"]])), "chains of different numbers of steps"),
        (lambda _: learn(dated([[f"{k} {t}" for t in range(48)] for k in range(40)])), "too large to learn: keep only"),
        (lambda _: silent([], 24), "a chain needs at least one context"),
        (lambda _: silent(["a"], 0), "a day must have at least one step"),
    ],
)
def test_bad_arguments_are_one_error(call: Callable[[list[DatedDay]], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(dated([["a", "b"]] * 30))
