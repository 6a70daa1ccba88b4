"""Runs a policy by the clock: it decides each step in time, and publishes it when the step begins.

A step is decided a moment before it begins, by the last reading; what is decided is stored; and it leaves on the step's
boundary by the clock. So neither the moment of a message nor the time that the decision took says anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np

from reticent.clock import Clock, SystemClock
from reticent.storage.documents import DocumentFormat
from reticent_client.apps.messages import MASKED, RAW, Step, check_label, position
from reticent_client.apps.stream import Stream
from reticent_client.apps.tokens import Apps
from reticent_client.errors import FileError, StepError
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.policy import Policy
from reticent_client.mask.report import MaskReport
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.timetable import DAY, LEAD, Beginning, Timetable, time_zone
from reticent_client.store import PhoneStore

_log = logging.getLogger(__name__)

HELD_DAYS = 7
_TICK = dt.timedelta(microseconds=1)

MASKS = "mask/"  # the slots of the states of masks, each with its policy's fingerprint
FORMAT = DocumentFormat("reticent-mask-day", 1, "the last day of a mask")
LAST_DAY = "day"  # the slot of the last day that a policy decided, with its fingerprint

OnStep = Callable[[Step], None]
"""Called with each step as it begins."""


@dataclass(frozen=True)
class _LatestReading:
    context: str | None
    instant: dt.datetime


@dataclass(frozen=True)
class _Decided:
    """A step, ready to leave: its message in each stream."""

    position: int
    messages: Mapping[str, bytes]


class MaskRunner:
    """Runs a policy by the clock, from readings to a stream of released steps, while it is entered.

    Args:
        policy: What decides, or which policy does on which day. All have the same number of steps.
        store: What survives a kill. Without one nothing does, and a phone that begins anew in the middle of a day
            breaks its promise.
        zone: The time zone of the steps; by default the machine's.
        clock: What time it is; the machine's unless given.
        rng: Where the coins come from; secure ones unless given.
        hold: For how long a reading counts, one step unless given.
        lead: How long before its beginning a step is decided.
        held_days: For how many days the stream is held for slow apps.
        first_day: The store is empty because it is new. Otherwise a phone with an empty store releases nothing
            until tomorrow: it may have been lost in the middle of a day.
        on_step: Called with each step as it begins.
    """

    def __init__(
        self,
        policy: Policy | Schedule,
        *,
        store: PhoneStore | None = None,
        zone: dt.tzinfo | None = None,
        clock: Clock | None = None,
        rng: np.random.Generator | None = None,
        hold: dt.timedelta | None = None,
        lead: dt.timedelta = LEAD,
        held_days: int = HELD_DAYS,
        first_day: bool = False,
        on_step: OnStep | None = None,
    ) -> None:
        self._schedule = policy if isinstance(policy, Schedule) else Schedule({"weekday": policy, "weekend": policy})
        horizons = {each.horizon for each in self._schedule.policies}
        if len(horizons) > 1:
            raise ValueError(f"all policies of a phone have the same number of steps: these have {sorted(horizons)}")
        for each in self._schedule.policies:
            for label in each.contexts:
                check_label(label)
        self.timetable = Timetable(horizons.pop(), time_zone() if zone is None else zone)
        self.hold = self.timetable.step if hold is None else hold
        if self.hold <= dt.timedelta():
            raise ValueError(f"a reading must count for some time: got {hold}")
        if not dt.timedelta() <= lead < self.timetable.step:
            raise ValueError(f"the lead must be shorter than a step of {self.timetable.step}: got {lead}")
        if held_days < 1:
            raise ValueError(f"the stream must be held for at least one day: got {held_days}")
        self._lead = lead
        self._held = held_days * self.timetable.horizon
        self._store = PhoneStore() if store is None else store
        self._owns_store = store is None
        self.clock: Clock = SystemClock() if clock is None else clock
        self._rng = rng
        self._first_day = first_day or store is None
        self._on_step = on_step
        self._reading = _LatestReading(None, dt.datetime.min.replace(tzinfo=dt.UTC))
        self._names = {each: each.fingerprint() for each in self._schedule.policies}
        self._masks: dict[str, MaskIt] = {}  # by the fingerprints of their policies
        self._today: tuple[dt.date, MaskIt] | None = None
        self._must_load = True  # the store may hold another state of the mask
        self._over = dt.datetime.min.replace(tzinfo=dt.UTC)  # no step that begins then or before is decided any more
        self._pending: list[_Decided] = []
        self.apps = Apps(self._store, self.clock.now)
        self.masked = Stream(self._held)
        self.raw = Stream(self._held)
        self._open = contextlib.ExitStack()
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begin to decide: the next step is the first."""
        with contextlib.ExitStack() as stack:
            if self._owns_store:
                stack.callback(self._store.close)
            stack.enter_context(self._store.claim())
            await self._store.transact(self._resume)
            self._open = stack.pop_all()
        self._running = asyncio.create_task(self._run(), name="phone")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; what was decided is stored."""
        with self._open:
            self.close_streams()
            if self._running is not None:
                self._running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._running

    def close_streams(self) -> None:
        """Let the readers of the streams have what is there, and end."""
        self.masked.close()
        self.raw.close()

    async def wait(self) -> None:
        """Return when it has stopped, with the error that stopped it."""
        if self._running is not None:
            await asyncio.shield(self._running)

    def sense(self, context: str | None) -> None:
        """Take a reading: where the user is now, None if the reading failed. From any thread.

        It has no effect until the next step, and none if a later reading replaces it.
        """
        self._reading = _LatestReading(None, self.clock.now())  # an earlier reading is void, even if this one is wrong
        if context is not None:
            if not isinstance(context, str):
                raise ValueError(f"a context is a string, or None for no reading: got {context!r}")
            check_label(context)
        self._reading = _LatestReading(context, self.clock.now())

    @property
    def suspended(self) -> bool:
        """Whether nothing is released until tomorrow, because it is not known what was released today."""
        return self._today is not None and self._today[1].suspended

    @property
    def next_step(self) -> Beginning:
        """The step that begins next, and none twice, whatever the wall clock was set to."""
        return self.timetable.next(max(self.clock.now(), self._over))

    @property
    def reading(self) -> str | None:
        """The last reading, unless it is too old; a reading from the future was made by another clock."""
        reading = self._reading
        return reading.context if dt.timedelta() <= self.clock.now() - reading.instant < self.hold else None

    def released(self, position: int) -> str | None:
        """The context that was released at a step; None where it was suppressed or missed, or is not the last step."""
        last = self.masked.last
        return None if last is None or last[0] != position else Step.decode(last[1]).context

    def reports(self) -> list[MaskReport]:
        """The outcomes of the steps, for each policy that has decided any since the phone began."""
        return [mask.report() for mask in self._masks.values()]

    def _resume(self) -> None:
        """Go on from what the store holds: the streams, the steps that wait for their beginning, and the day's mask."""
        self._must_load = True
        self._store.keep_only(MASKS, (MASKS + name for name in self._names.values()))
        held = [_Decided(*each) for each in self._store.messages()]
        if held:
            self._over = self._before(Step.decode(held[-1].messages[MASKED]))
        upcoming = self.next_step
        due = position(upcoming.date, min((*upcoming.skipped, upcoming.step)))
        dropped = self._store.dropped
        if dropped is None:  # a new store, or one that was lost: nobody knows what was before
            dropped = self._store.dropped = self.position_at(self.clock.now())
        self.masked = Stream(self._held, dropped=dropped)
        self.raw = Stream(self._held, dropped=dropped)
        self._pending = [each for each in held if each.position >= due]  # decided, and to leave when it begins
        for each in held[: len(held) - len(self._pending)]:
            self._write(each)
        in_lead = self._in_charge()[0] == upcoming.date
        self._mask(upcoming.date if in_lead else self.timetable.last(self.clock.now()).date)

    def _before(self, newest: Step) -> dt.datetime:
        """Just before the last step that was decided: it may not have begun, and nothing before it is decided again.

        The clock may have been set back since. Where days had another number of steps then, it is the end of that day,
        for the steps of the two cannot be put in one order.
        """
        same = newest.steps == self.timetable.horizon
        beginnings = self.timetable.day(newest.date if same else newest.date + DAY)[newest.step * same :]
        first = next((at for at in beginnings if at is not None), None)
        return self._over if first is None else first - _TICK

    def _mask(self, date: dt.date) -> MaskIt:
        """The mask of a day: suspended unless it is known what was released that day.

        A day is decided by one policy. So the store says which one decided the last day; one that was put in its place
        since then is suspended until the next.
        """
        if not self._must_load and self._today is not None and self._today[0] == date:
            return self._today[1]
        policy = self._schedule.on(date)
        name, day = self._names[policy], date.isoformat()
        slot = self._store.slot(MASKS + name)
        last, by = self._in_charge()
        is_new_day = last < date if last is not None else self._first_day
        if not is_new_day and (last, by) != (date, name):
            self._store.keep_only(slot.name, ())
        if is_new_day and slot.read() is None:
            mask = MaskIt(policy, self._rng, store=slot)
            mask.next_day(day)
        else:
            mask = MaskIt(policy, self._rng, store=slot, day=day)
        self._store.slot(LAST_DAY).write(FORMAT.text({"day": day, "policy": name}))
        if name in self._masks:
            mask.take_over_contexts(self._masks[name])
        self._masks[name] = mask
        self._today, self._must_load = (date, mask), False
        report = mask.report()
        if report.stale:
            _log.warning("habits have changed: %s; learn them again", report.recent)
        return mask

    def position_at(self, instant: dt.datetime) -> int:
        """The position of the step that had begun last at an instant."""
        begun = self.timetable.last(instant)
        return position(begun.date, begun.step)

    def _in_charge(self) -> tuple[dt.date | None, str | None]:
        """The last day that a policy was in charge of, and the fingerprint of the policy."""
        text = self._store.slot(LAST_DAY).read()
        if text is None:
            return None, None
        try:
            content = FORMAT.parse(text)
            return dt.date.fromisoformat(content["day"]), content["policy"]
        except (TypeError, ValueError, KeyError) as error:
            raise FileError("the store is damaged: it does not say which day was the last") from error

    async def _run(self) -> None:
        """Decide step after step, each just before it begins."""
        while True:
            upcoming = self.next_step
            await self.clock.wait_until(upcoming.instant - self._lead)
            now = self.clock.now()
            if now < upcoming.instant - self._lead:  # the clock was set back: another step may come first
                continue
            decided = await self._decide(upcoming)
            while self.clock.now() < upcoming.instant:
                await self.clock.wait_until(upcoming.instant)
            self._over = upcoming.instant
            before = decided[0].position if decided else position(upcoming.date, upcoming.step + 1)
            overdue, self._pending = [each for each in self._pending if each.position < before], []
            for each in (*overdue, *decided):
                self._publish(each)

    async def _decide(self, upcoming: Beginning) -> list[_Decided]:
        """Decide a step, together with other phones of the same file. Returns what is stored."""
        try:
            return await self._store.transact(partial(self._observe, upcoming))  # a step and its message, or neither
        except OSError as error:
            self._must_load = True  # the mask goes on from what is stored
            _log.error("step %s of %s is not published: it cannot be stored: %s", upcoming.step, upcoming.date, error)
            return []

    def _observe(self, upcoming: Beginning) -> list[_Decided]:
        """Decide a step, and before it those that the clock leaves out: nothing can be read at them."""
        decided: list[_Decided] = []
        if self.clock.now() > upcoming.instant:  # it has begun
            return decided
        date, read = upcoming.date, self.reading
        mask = self._mask(date)
        for step, context in (*((step, None) for step in upcoming.skipped), (upcoming.step, read)):
            with contextlib.suppress(StepError):  # the clock was set back to a step that is over
                decided.append(self._keep(date, step, mask.observe(context, step=step), context))
        return decided

    def _keep(self, date: dt.date, step: int, released: str | None, read: str | None) -> _Decided:
        """Have a decision stored, for apps that are slow or come back."""
        place, steps = position(date, step), self.timetable.horizon
        messages = {MASKED: Step(place, date, step, steps, released).encode()}
        if any(app.trusted for app in self.apps.all()):  # or nobody is to know, nor the disk
            messages[RAW] = Step(place, date, step, steps, read, raw=True).encode()
        return _Decided(place, self._store.append(place, messages, self._held))

    def _publish(self, decided: _Decided) -> None:
        self._write(decided)
        if self._on_step is not None:
            self._on_step(Step.decode(decided.messages[MASKED]))

    def _write(self, decided: _Decided) -> None:
        for name, message in decided.messages.items():
            (self.raw if name == RAW else self.masked).write(decided.position, message)
