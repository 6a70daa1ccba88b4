"""Phones that are killed: what everybody together may see of a day, enumerated.

A fault does not depend on the user. For each schedule of faults the enumeration runs the real
`MaskIt` over every day and every outcome of its coins, collects what was published, and asks by how
much a belief rises for somebody who knows the faults too.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import strategies as st

from reticent_client import MaskIt, Policy
from tests.client.mask import chains, oracle

BEFORE_STORE, AFTER_STORE, AFTER_PUBLICATION = "before store", "after store", "after publication"
POINTS = (BEFORE_STORE, AFTER_STORE, AFTER_PUBLICATION)

View = tuple[tuple[str | None, ...], ...]
"""What was published at each step: nothing, once, or once more after a restart."""


class Killed(BaseException):
    """The phone is gone."""


@dataclass(frozen=True)
class Fault:
    """The phone is killed at `step`, and is back `delay` steps later: 0 for the same step."""

    step: int
    point: str
    delay: int
    lost: bool = False  # whether what it stored is gone too

    def __str__(self) -> str:
        return f"{self.point} of {self.step} for {self.delay}{', memory lost' * self.lost}"


@dataclass
class Flash:
    """A store that dies when it is told to."""

    text: str | None = None
    dying: str | None = None

    def read(self) -> str | None:
        return self.text

    def write(self, text: str) -> None:
        if self.dying == BEFORE_STORE:
            raise Killed
        self.text = text
        if self.dying == AFTER_STORE:
            raise Killed


@dataclass
class Coins:
    """Stands in for the generator: follows a script, then suppresses, and says how likely that was."""

    script: tuple[bool, ...] = ()
    tossed: list[bool] = field(default_factory=list)  # released? one for each that was open
    chance: float = 1.0

    def random(self) -> "Coin":
        return Coin(self)

    def released(self, suppression: float) -> bool:
        if suppression in {0, 1}:
            return suppression == 0
        turn = len(self.tossed)
        outcome = self.script[turn] if turn < len(self.script) else False
        self.tossed.append(outcome)
        self.chance *= 1 - suppression if outcome else suppression
        return outcome


@dataclass
class Coin:
    """One toss, whose outcome is decided when it is compared."""

    coins: Coins

    def __ge__(self, suppression: float) -> bool:
        return self.coins.released(float(suppression))


Start = Callable[[Policy, Coins, Flash], MaskIt]


def real(policy: Policy, coins: Coins, flash: Flash) -> MaskIt:
    """The mask of the library."""
    return MaskIt(policy, cast("Any", coins), store=flash)


def live(start: Start, policy: Policy, day: Sequence[str], faults: Sequence[Fault], coins: Coins) -> View:
    """One day of a phone, through its faults."""
    seen: list[list[str | None]] = [[] for _ in day]
    flash, pending, step = Flash(), list(faults), 0
    mask = start(policy, coins, flash)
    mask.next_day()
    while step < len(day):
        fault = pending.pop(0) if pending and pending[0].step <= step else None
        flash.dying = fault.point if fault else None
        with contextlib.suppress(Killed):
            seen[step].append(mask.observe(day[step], step=step))
        if fault is None:
            step += 1
            continue
        flash.dying = None
        if fault.lost:
            flash.text = None
        mask = start(policy, coins, flash)
        step += fault.delay
    return tuple(map(tuple, seen))


def outcomes(play: Callable[[Coins], View]) -> Iterator[tuple[View, float]]:
    """Every view that coins can lead to, with its probability."""
    scripts: list[tuple[bool, ...]] = [()]
    while scripts:
        script = scripts.pop()
        coins = Coins(script)
        yield play(coins), coins.chance
        scripts += [(*coins.tossed[:turn], True) for turn in range(len(script), len(coins.tossed))]


def joint(start: Start, policy: Policy, faults: Sequence[Fault]) -> dict[View, dict[oracle.Day, float]]:
    """The joint probability of every view and every day behind it."""
    found: dict[View, dict[oracle.Day, float]] = {}
    for day, chance in oracle.days(policy.chain).items():
        labels = [policy.contexts[i] for i in day]
        for view, share in outcomes(lambda coins, labels=labels: live(start, policy, labels, faults, coins)):  # type: ignore[misc]
            behind = found.setdefault(view, {})
            behind[day] = behind.get(day, 0.0) + chance * share
    return found


def worst_excess(policy: Policy, limits: Sequence[oracle.Limit], faults: Sequence[Fault], start: Start = real) -> float:
    """How far, at worst, a belief rises above its limit."""
    return _worst(policy, limits, joint(start, policy, faults))


def _worst(policy: Policy, limits: Sequence[oracle.Limit], found: dict[View, dict[oracle.Day, float]]) -> float:
    assert chains.close(sum(sum(behind.values()) for behind in found.values()), 1.0)
    prior = oracle.priors(policy.chain)
    worst = -1.0
    for behind in found.values():
        mass = sum(behind.values())
        for t, s, delta in limits:
            belief = sum(share for day, share in behind.items() if day[t] == s) / mass
            worst = max(worst, belief - float(prior[t, s]) - delta)
    return worst


def single_faults(horizon: int) -> list[tuple[Fault, ...]]:
    """Every way to be killed once."""
    return [
        (Fault(step, point, delay, lost),)
        for step in range(horizon)
        for point in POINTS
        for delay in range(horizon - step + 1)
        for lost in (False, True)
    ]


def double_faults(horizon: int) -> list[tuple[Fault, ...]]:
    """Every way to be killed again, within the same step or later."""
    return [
        (*first, *second)
        for first, second in itertools.product(single_faults(horizon), repeat=2)
        if first[0].step + first[0].delay <= second[0].step
    ]


@st.composite
def schedules(draw: st.DrawFn, horizon: int) -> list[Fault]:
    """Up to three faults, one after the other."""
    faults: list[Fault] = []
    earliest = 0
    for _ in range(draw(st.integers(1, 3))):
        if earliest < horizon:
            step = draw(st.integers(earliest, horizon - 1))
            delay = draw(st.integers(0, horizon - step))
            faults.append(Fault(step, draw(st.sampled_from(POINTS)), delay, draw(st.booleans())))
            earliest = step + delay
    return faults


def with_gaps(policy: Policy, day: Sequence[str], gaps: Sequence[str], coins: Coins, mask: type[MaskIt]) -> View:
    """One day on which some steps are missed, or seen without a reading."""
    seen: list[tuple[str | None, ...]] = []
    phone = mask(policy, cast("Any", coins))
    for step, (label, gap) in enumerate(zip(day, gaps, strict=True)):
        match gap:
            case "missed":
                seen.append(())
            case "missing":
                seen.append((phone.observe(None, step=step),))
            case _:
                seen.append((phone.observe(label, step=step),))
    return tuple(seen)


def worst_excess_with_gaps(
    policy: Policy, limits: Sequence[oracle.Limit], gaps: Sequence[str], mask: type[MaskIt] = MaskIt
) -> float:
    """How far, at worst, a belief rises above its limit on days with these gaps."""
    found: dict[View, dict[oracle.Day, float]] = {}
    for day, chance in oracle.days(policy.chain).items():
        labels = [policy.contexts[i] for i in day]
        for view, share in outcomes(lambda coins, labels=labels: with_gaps(policy, labels, gaps, coins, mask)):  # type: ignore[misc]
            behind = found.setdefault(view, {})
            behind[day] = behind.get(day, 0.0) + chance * share
    return _worst(policy, limits, found)
