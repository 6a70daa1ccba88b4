"""Clicks of policies on a public bandit log: off-policy estimates against the clicks of the policies' own logs.

The log is the small Open Bandit Dataset (Saito et al., 2021), which the package obp contains: a uniformly random policy
and Bernoulli Thompson sampling, 10,000 views each in three campaigns. RETICENT_OBD is its folder, or obp is installed.
"""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import binomtest

from benchmarks.measure import Row, table
from reticent.hierarchy import Hierarchy, Tree
from reticent.randomness import seeded
from reticent.rates import resolve
from reticent.selection import Rates, Revenues
from reticent_sim.ad_log import AdLog

MISSING = (
    "off_policy needs the Open Bandit Dataset: run `pip install --no-deps --target obd obp==0.4.1`, "
    "then set RETICENT_OBD=obd/obp/dataset/obd.\n"
)
CAMPAIGNS = ("all", "men", "women")
FEATURES = tuple(f"user_feature_{number}" for number in range(4))
ANY = "any"
SEQUENCE = ((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 1))

LEVEL = 0.95
RESAMPLES = 1_000
FOLDS = 2
PRIOR_VIEWS = 100.0
"""A model of the rates of items takes the mean rate for so many views."""
SUPPORT, ADS = 50.0, 10
"""The fewest views of a rate, and the ads that a service sends to a phone."""

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BanditLog:
    """Views with clicks, and the probability of each view under the policy that chose it.

    Args:
        context: (views,): the numbers of the contexts.
        action: (views,): the numbers of the items.
        reward: (views,): 1 for a click.
        propensity: (views,): the probability of the item.
        actions: The number of items.
    """

    context: Numbers
    action: Numbers
    reward: Floats
    propensity: Floats
    actions: int


class Interval(NamedTuple):
    """An estimate with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%})"


def snipw(log: BanditLog, policy: Floats) -> Interval:
    """Self-normalised inverse propensity weighting, with its asymptotic interval.

    Args:
        log: The log.
        policy: (views, actions): the probability of each action under another policy, in the context of each view.
    """
    weight = _weights(log, policy)
    value = float(weight @ log.reward / weight.sum())
    if value == 0:  # all errors are 0: the interval is that of no click in so many views
        return Interval(0.0, 0.0, float(binomtest(0, round(effective_views(log, policy))).proportion_ci(LEVEL).high))
    return _normal(value, weight * (log.reward - value) / weight.mean())


def doubly_robust(log: BanditLog, policy: Floats, model: Floats) -> Interval:
    """The doubly robust estimate, with its asymptotic interval.

    Args:
        log: The log.
        policy: As above.
        model: (views, actions): predicted rewards, which come from other views.
    """
    views = np.arange(len(log.action))
    terms = (policy * model).sum(axis=1) + _weights(log, policy) * (log.reward - model[views, log.action])
    return _normal(float(terms.mean()), terms - terms.mean())


def bootstrap(log: BanditLog, policy: Floats, rng: np.random.Generator) -> Interval:
    """Self-normalised inverse propensity weighting, with the percentiles of a bootstrap over views."""
    weight = _weights(log, policy)
    counts = rng.multinomial(len(weight), np.full(len(weight), 1 / len(weight)), RESAMPLES)
    found = counts @ (weight * log.reward) / np.maximum(counts @ weight, 1e-300)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(weight @ log.reward / weight.sum()), float(low), float(high))


def effective_views(log: BanditLog, policy: Floats) -> float:
    """The number of views of the policy itself that an estimate is worth."""
    weight = _weights(log, policy)
    return float(weight.sum() ** 2 / (weight @ weight))


def run() -> Iterator[str]:
    """The tables of the three campaigns, or a sentence that says where to get the data."""
    folder = _folder()
    if folder is None:
        yield MISSING
        return
    for campaign in CAMPAIGNS:
        yield table(f"Share of views with a click, campaign {campaign}, 95 % intervals", list(_rows(folder, campaign)))


def _rows(folder: Path, campaign: str) -> Iterator[Row]:
    uniform, thompson = (_read(folder / policy / campaign / f"{campaign}.csv") for policy in ("random", "bts"))
    log, others = uniform.log, thompson.log
    equal = np.full((len(others.action), others.actions), 1 / others.actions)
    own = uniform.policy(thompson.shares)
    policies: tuple[tuple[str, BanditLog, Floats, Interval | None], ...] = (
        ("Thompson sampling, by the random log", log, own, _clicked(others)),
        ("random, by the log of Thompson sampling", others, equal, _clicked(log)),
        ("ours, by the random log", log, _greedy(uniform), None),
    )
    for name, views, policy, truth in policies:
        known = "" if truth is None else str(truth)
        yield Row(f"{name}: views worth", f"{effective_views(views, policy):.0f}")
        yield Row("  clicks by SNIPW", str(snipw(views, policy)), known)
        yield Row("  with a bootstrap", str(bootstrap(views, policy, seeded(1, campaign, name))), known)
        yield Row("  doubly robust", str(doubly_robust(views, policy, _model(views))), known)


class _Read(NamedTuple):
    """A file of the dataset."""

    log: BanditLog
    contexts: list[tuple[str, ...]]
    """The features of each context."""
    position: Numbers
    """(views,): the position of the item on the page, from 0 on."""

    @property
    def shares(self) -> Floats:
        """(positions, actions): the mean probability of each item at each position."""
        shape = int(self.position.max()) + 1, self.log.actions
        shown = np.zeros(shape)
        np.add.at(shown, (self.position, self.log.action), 1.0)
        return np.asarray(shown / shown.sum(axis=1, keepdims=True))

    def policy(self, shares: Floats) -> Floats:
        """(views, actions): a policy that depends on the position alone."""
        return shares[self.position]


def _read(path: Path) -> _Read:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    features = [tuple(row[name] for name in FEATURES) for row in rows]
    contexts = sorted(set(features))
    numbers = {context: number for number, context in enumerate(contexts)}
    action = np.array([int(row["item_id"]) for row in rows])
    log = BanditLog(
        np.array([numbers[each] for each in features]),
        action,
        np.array([float(row["click"]) for row in rows]),
        np.array([float(row["propensity_score"]) for row in rows]),
        int(action.max()) + 1,
    )
    return _Read(log, contexts, np.array([int(row["position"]) - 1 for row in rows]))


def _greedy(read: _Read) -> Floats:
    """(views, actions): the ad that a phone chooses of those that a service sends, by the rates of the other fold."""
    return _cross_fitted(read.log, lambda kept: _choices(read, kept)[read.log.context])


def _choices(read: _Read, kept: npt.NDArray[np.bool_]) -> Floats:
    """(contexts, actions): the choice in each context, by rates from some of the views."""
    log = read.log
    trees = [
        Tree(name, 2, dict.fromkeys({each[place] for each in read.contexts}, ANY))
        for place, name in enumerate(FEATURES)
    ]
    hierarchy = Hierarchy(trees, read.contexts, SEQUENCE)
    places = {context: number for number, context in enumerate(hierarchy.contexts)}
    order = np.array([places[context] for context in read.contexts])  # (contexts,): their numbers in the hierarchy
    views = AdLog(
        hierarchy=hierarchy,
        ads=tuple(f"item {number}" for number in range(log.actions)),
        users=int(kept.sum()),
        user=np.arange(kept.sum()),
        context=order[log.context[kept]],
        ad=log.action[kept],
        clicked=log.reward[kept] > 0,
    )
    resolved = resolve(views.rates("a part of the random log"), hierarchy, SUPPORT)
    shape = log.actions, len(resolved.columns)
    revenues = Revenues.of(Rates(resolved.ad, resolved.column, resolved.rate, shape), np.ones(log.actions))
    ads = revenues.greedy(resolved.weights, ADS).ads
    best = ads[revenues.matrix.rows(ads).argmax(axis=0)][resolved.column_of[order]]
    return np.asarray(np.eye(log.actions)[best])


def _model(log: BanditLog) -> Floats:
    """(views, actions): the rate of each item in the other fold, drawn to the mean."""

    def rates(kept: npt.NDArray[np.bool_]) -> Floats:
        views = np.bincount(log.action[kept], minlength=log.actions)
        clicks = np.bincount(log.action[kept], log.reward[kept], minlength=log.actions)
        means = (clicks + PRIOR_VIEWS * log.reward[kept].mean()) / (views + PRIOR_VIEWS)
        return np.broadcast_to(means, (len(log.action), log.actions))

    return _cross_fitted(log, rates)


def _cross_fitted(log: BanditLog, predict: Callable[[npt.NDArray[np.bool_]], Floats]) -> Floats:
    """(views, actions): predictions for the views of each fold, from the views of the others."""
    fold = np.arange(len(log.action)) % FOLDS
    found = np.empty((len(log.action), log.actions))
    for number in range(FOLDS):
        found[fold == number] = predict(fold != number)[fold == number]
    return found


def _weights(log: BanditLog, policy: Floats) -> Floats:
    return policy[np.arange(len(log.action)), log.action] / log.propensity


def _normal(value: float, errors: Floats) -> Interval:
    reach = float(ndtri((1 + LEVEL) / 2)) * float(errors.std(ddof=1)) / len(errors) ** 0.5
    return Interval(value, value - reach, value + reach)


def _clicked(log: BanditLog) -> Interval:
    """The clicks of a log under its own policy, with Wilson's interval."""
    clicks, views = int(log.reward.sum()), len(log.reward)
    found = binomtest(clicks, views).proportion_ci(LEVEL, method="wilson")
    return Interval(clicks / views, float(found.low), float(found.high))


def _folder() -> Path | None:
    """The folder of the dataset, if there is one."""
    known = os.environ.get("RETICENT_OBD")
    if known:
        return Path(known)
    package = importlib.util.find_spec("obp")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "dataset" / "obd"
