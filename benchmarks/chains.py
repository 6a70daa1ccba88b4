"""Chains for the benchmarks: learned from habits or traces, or dense as the chain of no person is."""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from reticent.randomness import seeded
from reticent_client import MarkovChain

SLOTS = 48  # half hours of a day in the traces
MIN_SLOTS = 36  # a day with fewer readings is left out
MIN_DAYS = 15  # a user with fewer training days is left out


def learned(horizon: int, size: int, days: int, seed: int) -> MarkovChain:
    """A chain counted from the days of somebody with habits: usual places at usual hours, and now and then another."""
    rng = seeded(seed, "habits")
    popular = rng.dirichlet(np.full(size, 0.5))
    blocks = -(-horizon // max(1, horizon // 8))  # a usual place lasts for about three hours
    usual = np.repeat(rng.choice(size, size=blocks, p=popular), max(1, horizon // 8))[:horizon]
    elsewhere = 0.1 * popular
    rows = np.tile(elsewhere, (horizon, 1))
    rows[np.arange(horizon), usual] += 0.9
    stay = 0.3 + 0.5 * (horizon > 24)  # short steps: one rarely leaves
    moves = stay * np.eye(size) + (1 - stay) * rows[1:, None, :]
    habits = MarkovChain([f"place {i}" for i in range(size)], rows[0], moves)
    return MarkovChain.fit([habits.sample(rng) for _ in range(days)], contexts=habits.contexts)


def dense(horizon: int, size: int, seed: int, *, rare: float = 1.0) -> MarkovChain:
    """A chain in which everything can follow everything; context 0 is `rare` times as likely as the others."""
    rng = seeded(seed, "dense")
    rows = rng.dirichlet(np.ones(size), size=(horizon, size))
    rows[:, :, 0] *= rare
    rows /= rows.sum(axis=2, keepdims=True)
    return MarkovChain([f"place {i}" for i in range(size)], rows[0, 0], rows[1:])


def visited(chain: MarkovChain, count: int) -> set[str]:
    """Contexts to be sensitive: visited every day or so, but not where most of the day is spent."""
    common = np.argsort(-chain.prior.sum(axis=0), kind="stable")
    return {chain.contexts[i] for i in common[2 : 2 + count]}


def from_traces(path: Path, horizon: int, top: int) -> dict[str, MarkovChain]:
    """A chain for each user of a table `user,day,slot,place` of half hours, trained on the first half of the days.

    A step's context is its most frequent place, if that is one of the user's `top` places, or "other"; a step without
    readings is a gap.
    """
    chains: dict[str, MarkovChain] = {}
    for user, days in _slots(path).items():
        full = [day for _, day in sorted(days.items()) if len(day) >= MIN_SLOTS]
        training = full[: len(full) // 2]
        if len(training) >= MIN_DAYS:
            chains[user] = MarkovChain.fit(_labelled(training, horizon, top))
    return chains


def all_days(path: Path, horizon: int, top: int) -> dict[str, MarkovChain]:
    """The same, trained on all days of every user, however few readings they have."""
    users = _slots(path).items()
    return {
        user: MarkovChain.fit(_labelled([day for _, day in sorted(days.items())], horizon, top)) for user, days in users
    }


def _slots(path: Path) -> dict[str, dict[int, dict[int, str]]]:
    """The place in each slot of each day of each user."""
    slots: dict[str, dict[int, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            slots[row["user"]][int(row["day"])][int(row["slot"])] = row["place"]
    return slots


def _labelled(days: list[dict[int, str]], horizon: int, top: int) -> list[list[str | None]]:
    visits = Counter(place for day in days for place in day.values())
    known = set(sorted(visits, key=lambda place: (-visits[place], int(place)))[:top])
    width = SLOTS // horizon
    labelled: list[list[str | None]] = []
    for day in days:
        steps: list[str | None] = []
        for t in range(horizon):
            here = [day[slot] for slot in range(t * width, (t + 1) * width) if slot in day]
            counts = Counter(place if place in known else "other" for place in here)
            steps.append(min(counts, key=lambda place: (-counts[place], place)) if counts else None)
        labelled.append(steps)
    return labelled
