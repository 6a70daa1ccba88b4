"""Phones that are killed around every write of their store and after every message: what all apps together see.

A kill does not depend on the user. For each schedule of kills the enumeration runs the real `MaskRunner` over every day
of a small chain and every outcome of its coins, and collects everything that could be read: each message when it
leaves, and after each restart the whole stream that an app can ask for.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from reticent.clock import ManualClock
from reticent_client import Policy
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step
from reticent_client.mask.timetable import LEAD
from reticent_client.store import PhoneStore, StoreSlot
from tests.client.apps.phones import MONDAY
from tests.client.mask import faults, oracle
from tests.client.mask.faults import Coins, Killed

Result = TypeVar("Result")

EVENING = dt.datetime.combine(MONDAY, dt.time(), dt.UTC) - dt.timedelta(minutes=1)
NEVER = -1


@dataclass(frozen=True)
class Kill:
    """The phone dies at its `blow`-th chance since it began, and is back after some time."""

    blow: int
    away: dt.timedelta
    lost: bool = False  # whether its store is gone too
    back: dt.timedelta = dt.timedelta()  # by how much the clock is set back meanwhile


class Blows:
    """Counts the moments at which a phone may be killed, and kills it at one of them."""

    def __init__(self) -> None:
        self.deadly = NEVER
        self.count = 0

    def pass_one(self) -> None:
        """Live on, or not."""
        self.count += 1
        if self.count - 1 == self.deadly:
            raise Killed


class MortalStore(PhoneStore):
    """Dies before or after a write: what was written is there or not, as SQLite promises."""

    def __init__(self, blows: Blows) -> None:
        super().__init__()
        self.blows = blows

    @contextlib.contextmanager
    def between(self) -> Generator[None]:
        self.blows.pass_one()
        yield
        self.blows.pass_one()

    def slot(self, name: str) -> StoreSlot:
        return MortalSlot(self, name)

    def append(self, *args: Any, **kwargs: Any) -> Any:
        with self.between():
            return super().append(*args, **kwargs)

    def keep_only(self, *args: Any) -> None:
        with self.between():
            super().keep_only(*args)

    async def transact(self, change: Callable[[], Result]) -> Result:
        """A kill within it undoes all of it."""
        result = await super().transact(change)
        self.blows.pass_one()
        return result


class MortalSlot(StoreSlot):
    """A slot of such a store."""

    __slots__ = ("_store",)

    def __init__(self, store: MortalStore, name: str) -> None:
        super().__init__(store, name)
        self._store = store

    def write(self, text: str) -> None:
        with self._store.between():
            super().write(text)


@dataclass
class Life:
    """One day of a phone, from the evening before to the last evening, through its kills."""

    policy: Policy
    day: Sequence[str]
    coins: Coins
    kind: type[MaskRunner] = MaskRunner

    def __post_init__(self) -> None:
        self.clock = ManualClock(EVENING)
        self.blows = Blows()
        self.store = MortalStore(self.blows)
        self.seen: list[Any] = []

    async def live(self, kills: Sequence[Kill]) -> tuple[Any, ...]:
        """Everything that could be read of it, in order, with the time by the clock."""
        try:
            return await self._live(kills)
        finally:
            self.store.close()

    async def _live(self, kills: Sequence[Kill]) -> tuple[Any, ...]:
        pending = list(kills)
        first = True
        while True:
            kill = pending.pop(0) if pending else None
            self.blows.count, self.blows.deadly = 0, NEVER if kill is None else kill.blow
            try:
                await self._run(first=first)
            except Killed:
                assert kill is not None
            else:
                break
            first = False
            await self.clock.move_to(self.clock.now() + kill.away)
            self.clock._now -= kill.back
            if kill.lost:
                self.store.close()
                self.store = MortalStore(self.blows)
        self.store.blows = Blows()
        await self._run(first=False)  # a last look at what is held
        return tuple(self.seen)

    async def _run(self, *, first: bool) -> None:
        """From now to the end of the day, or of the phone."""
        phone = self.kind(
            self.policy,
            store=self.store,
            zone=dt.UTC,
            clock=self.clock,
            rng=cast("Any", self.coins),
            first_day=first,
            on_step=self._note,
        )
        async with phone:
            self.seen.append(("back", self.clock.now(), tuple(message for _, message in self._held(phone))))
            while (upcoming := phone.next_step).date <= MONDAY:
                if upcoming.date == MONDAY:
                    phone.sense(self.day[upcoming.step])
                await self._move(phone, max(self.clock.now(), upcoming.instant - LEAD))
                await self._move(phone, upcoming.instant)

    async def _move(self, phone: MaskRunner, instant: dt.datetime) -> None:
        await self.clock.move_to(instant)
        assert phone._running is not None
        if phone._running.done():
            phone._running.result()

    def _note(self, step: Step) -> None:
        self.seen.append((self.clock.now(), step))
        self.blows.pass_one()

    def _held(self, phone: MaskRunner) -> Iterator[tuple[int, Step]]:
        for position, message in zip(phone.masked._positions, phone.masked._messages, strict=True):
            yield position, Step.decode(message)


def live(
    policy: Policy, day: Sequence[str], kills: Sequence[Kill], coins: Coins, kind: type[MaskRunner] = MaskRunner
) -> Any:
    """One day of a phone: what could be read of it."""
    return asyncio.run(Life(policy, day, coins, kind).live(kills))


def blows(policy: Policy, kills: Sequence[Kill] = ()) -> int:
    """How many chances to die a phone passes after its kills."""
    life = Life(policy, [policy.contexts[0]] * policy.horizon, Coins())
    asyncio.run(life.live(kills))
    return life.blows.count


def schedules(
    policy: Policy, before: Sequence[Kill] = (), *, lost: Sequence[bool] = (False,)
) -> list[tuple[Kill, ...]]:
    """Every way to be killed once more: at each chance, and back at once, a second later, or a step later."""
    away = (dt.timedelta(), dt.timedelta(seconds=1), dt.timedelta(days=1) / policy.horizon)
    each = itertools.product(range(blows(policy, before)), away, lost)
    return [(*before, Kill(*one)) for one in each]


def worst_excess(
    policy: Policy, limits: Sequence[oracle.Limit], kills: Sequence[Kill], kind: type[MaskRunner] = MaskRunner
) -> float:
    """How far, at worst, a belief rises above its limit for somebody who reads everything."""
    found: dict[Any, dict[oracle.Day, float]] = {}
    for day, chance in oracle.days(policy.chain).items():
        labels = [policy.contexts[i] for i in day]
        for view, share in faults.outcomes(lambda coins, labels=labels: live(policy, labels, kills, coins, kind)):  # type: ignore[misc]
            behind = found.setdefault(view, {})
            behind[day] = behind.get(day, 0.0) + chance * share
    return faults._worst(policy, limits, found)


def contradictions(view: Sequence[Any]) -> list[int]:
    """The positions about which different things were read."""
    contexts: dict[int, set[str | None]] = {}
    for entry in view:
        for step in entry[2] if entry[0] == "back" else (entry[1],):
            contexts.setdefault(step.position, set()).add(step.context)
    return [position for position, found in contexts.items() if len(found) > 1]
