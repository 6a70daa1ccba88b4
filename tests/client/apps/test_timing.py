"""When bytes leave the phone, and how many, says nothing about the day: two days look alike on the wire."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from reticent.clock import ManualClock
from reticent.randomness import seeded
from reticent.v1 import phone_pb2
from reticent_client import MarkovChain, mask_sensitive
from reticent_client.apps.broker import Broker
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import SIZE, Step, position
from reticent_client.apps.tokens import APPS, Apps
from reticent_client.mask.policy import VectorPolicy
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore
from tests.client.apps.phones import MONDAY, App, at, calling, limited
from tests.parties.waiting import until

LONG = "x" * 120
CHAIN = MarkovChain.uniform(["home", "hospital", LONG], 8)
HALF = VectorPolicy(mask_sensitive(CHAIN, sensitive={"hospital"}).provenance, np.full((8, 3), 0.5))
CALM: Sequence[str | None] = ["home"] * 8
BUSY: Sequence[str | None] = [LONG, "hospital", "hospital", LONG, None, "elsewhere", "hospital", "home"]

HEADERS, DATA, RESET, AWAY = 1, 0, 3, 7
UPKEEP = {4, 6, 8}  # settings, pings and windows: the connection's own affairs, which no step causes
PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

Frame = tuple[dt.datetime, str, int, int]
"""When, in which direction, of which kind, and of how many bytes."""


@dataclass
class Wire:
    """Stands between an app and a broker, and notes every frame by the phone's clock."""

    clock: ManualClock
    target: tuple[str, int]
    frames: list[Frame] = field(default_factory=list)
    carrying: set["asyncio.Task[None]"] = field(default_factory=set)
    ends: list[asyncio.StreamWriter] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def tapped(self) -> AsyncGenerator[str, None]:
        """The address of the wire."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self.carrying:
                task.cancel()
            await asyncio.gather(*self.carrying, return_exceptions=True)
            for end in self.ends:
                end.close()
            await asyncio.gather(*(end.wait_closed() for end in self.ends), return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self.target)
        self.ends += [writer, back]
        self.carrying |= {
            asyncio.create_task(self._carry(reader, back, "to the phone", PREFACE)),
            asyncio.create_task(self._carry(there, writer, "to the app", 0)),
        }

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str, preface: int
    ) -> None:
        """Frame by frame, so that what is noted does not depend on how the kernel cuts a stream."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            sink.write(await source.readexactly(preface))
            while True:
                head = await source.readexactly(9)
                body = await source.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] not in UPKEEP:
                    self.frames.append((self.clock.now(), direction, head[3], len(body)))
                sink.write(head + body)


@dataclass
class Listener:
    """An app that listens for as long as it can."""

    mask: MaskRunner
    call: Any
    missed: int  # what was written before it came
    steps: list[Step] = field(default_factory=list)

    async def listen(self) -> None:
        async for step in self.call:
            self.steps.append(step)

    @property
    def up_to_date(self) -> bool:
        return len(self.steps) == self.mask.masked._written - self.missed


@contextlib.asynccontextmanager
async def listening(mask: MaskRunner, app: App, after: int | None, missed: int) -> AsyncGenerator[Listener, None]:
    """Such an app, at work."""
    listener = Listener(mask, await app.listen(after), missed)
    task = asyncio.create_task(listener.listen())
    try:
        yield listener
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def day(
    contexts: Sequence[str | None], seed: int, listed: str, token: str, kind: type[MaskRunner]
) -> list[Frame]:
    """What two apps and the phone exchange on a day: one app from the start, one that comes at noon and goes again."""
    clock, rng = ManualClock(at("00:00") - dt.timedelta(minutes=30)), seeded(seed)
    with contextlib.closing(PhoneStore()) as store:
        store.slot(APPS).write(listed)
        phone = Phone(store=store, clock=clock)
        phone.mask = mask = kind(
            HALF, store=store, clock=clock, zone=dt.UTC, first_day=True, rng=rng, hold=dt.timedelta(hours=3)
        )
        async with phone, Broker(phone) as broker, contextlib.AsyncExitStack() as stack:
            host, _, port = broker.address.rpartition(":")
            wire = Wire(clock, (host, int(port)))
            app = await stack.enter_async_context(calling(await stack.enter_async_context(wire.tapped()), token))
            early = await stack.enter_async_context(listening(mask, app, None, 0))
            late: Listener | None = None
            for step, context in enumerate(contexts):
                begins = at("00:00") + dt.timedelta(hours=3 * step)
                # Some time after the step before was told, and before this one is decided.
                await clock.move_to(begins - dt.timedelta(seconds=float(rng.uniform(2, 1200))))
                phone.sense(context)
                await clock.move_to(begins)
                await until(lambda: early.up_to_date and (late is None or late.up_to_date))  # noqa: B023
                await clock.move_to(begins + dt.timedelta(minutes=10))
                if mask.masked.last is not None:
                    await app.current()
                if step == 3:
                    seen = position(MONDAY, 1)
                    missed = sum(place <= seen for place in mask.masked._positions)
                    late = await stack.enter_async_context(listening(mask, app, seen, missed))
                    await until(lambda: late is None or late.up_to_date)  # noqa: B023
                if step == 6 and late is not None:
                    late.call.cancel()
                    await until(lambda: broker.streams == 1)
                    late = None
            return list(wire.frames)


async def two_days(kind: type[MaskRunner] = MaskRunner) -> tuple[list[Frame], list[Frame]]:
    """A calm day and a busy one, for the same app."""
    with contextlib.closing(PhoneStore()) as store:
        place = store.slot(APPS)
        token = Apps(store).add("weather")
        listed = place.read() or ""
    return await day(CALM, 1, listed, token, kind), await day(BUSY, 2, listed, token, kind)


@limited
async def test_two_days_cannot_be_told_apart_on_the_wire() -> None:
    """The same frames, of the same sizes, at the same times."""
    calm, busy = await two_days()
    assert calm == busy
    messages = [frame for frame in calm if frame[1:3] == ("to the app", DATA) and frame[3]]
    assert {size for *_, size in messages} == {SIZE + 5}  # and 5 bytes of gRPC's own
    assert len(messages) == 8 + 8 + 5  # one app hears 8 steps and asks 8 times, the other hears 5
    begun = {at("00:00") + dt.timedelta(hours=3 * step) for step in range(8)}
    requested = {begins + dt.timedelta(minutes=10) for begins in begun}
    assert {moment for moment, *_ in messages} == begun | requested
    assert HEADERS in {kind for _, _, kind, _ in calm}


# What must be noticed


def without_padding(step: Step) -> bytes:
    """The message as it would be."""
    message = phone_pb2.Step.FromString(ENCODE(step))
    message.ClearField("padding")
    return message.SerializeToString()


ENCODE: Callable[[Step], bytes] = Step.encode


@limited
async def test_messages_without_padding_would_be_noticed() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "encode", without_padding)
        calm, busy = await two_days()
    assert calm != busy
    assert [frame[:3] for frame in calm] == [frame[:3] for frame in busy]


class Eager(MaskRunner):
    """Tells a step when it is read."""

    def sense(self, context: str | None) -> None:
        super().sense(context)
        upcoming = self.next_step
        for decided in self._observe(upcoming):
            self._publish(decided)
        self._over = upcoming.instant

    async def _run(self) -> None:
        await asyncio.Event().wait()


class Silent(MaskRunner):
    """Tells only what it releases."""

    def _publish(self, decided: Any) -> None:
        if Step.decode(decided.messages["masked"]).context is not None:
            super()._publish(decided)


@pytest.mark.parametrize("kind", [Eager, Silent])
@limited
async def test_phones_that_tell_at_other_times_would_be_noticed(kind: type[MaskRunner]) -> None:
    calm, busy = await two_days(kind)
    assert [frame[0] for frame in calm] != [frame[0] for frame in busy]
