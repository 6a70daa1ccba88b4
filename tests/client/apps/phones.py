"""What the tests of the serving phone share: clocks, policies, phones and the apps that listen to them."""

import asyncio
import contextlib
import datetime as dt
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, cast

import grpc
import numpy as np

from reticent.clock import ManualClock
from reticent.v1 import phone_pb2
from reticent_client import MarkovChain, Phone, Policy, mask_sensitive, probabilistic
from reticent_client.apps.broker import SERVICE, Broker
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step
from reticent_client.mask.policy import VectorPolicy
from tests.parties.waiting import until

P = ParamSpec("P")

LIMIT = 60.0
"""Seconds after which a test has failed, rather than hang."""

MONDAY = dt.date(2027, 2, 1)
LABELS = ("home", "work", "hospital")


def at(time: str, date: dt.date = MONDAY) -> dt.datetime:
    """A time of day in UTC."""
    return dt.datetime.combine(date, dt.time.fromisoformat(time), dt.UTC)


def limited(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that runs in an event loop of its own, for so long and no longer."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def guarded() -> None:
            async with asyncio.timeout(LIMIT):
                await test(*args, **kwargs)

        asyncio.run(guarded())

    return run


def releasing(horizon: int = 48, hidden: str = "hospital") -> Policy:
    """Releases all contexts but one."""
    return mask_sensitive(MarkovChain.uniform(LABELS, horizon), sensitive={hidden})


def tossing(horizon: int = 48) -> VectorPolicy:
    """Releases home and work half of the time, by coins."""
    origin = probabilistic(MarkovChain.uniform(LABELS, horizon), sensitive={"hospital"}, delta=0.1).provenance
    return VectorPolicy(origin, np.full((horizon, len(LABELS)), 0.5))


@dataclass(frozen=True)
class App:
    """An app on the same machine, with what the proto says and nothing else."""

    channel: grpc.aio.Channel
    token: str | None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def subscribe(self, after: int | None = None) -> Any:
        """A stream, from which steps can be read."""
        method = self.channel.unary_stream(
            f"/{SERVICE}/Subscribe",
            request_serializer=phone_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=Step.decode,
        )
        return method(phone_pb2.SubscribeRequest(after=after), metadata=cast("Any", self.metadata))

    async def listen(self, after: int | None = None) -> Any:
        """A stream that has been accepted: from here on it misses nothing."""
        call = self.subscribe(after)
        await call.initial_metadata()
        return call

    async def current(self) -> Step:
        """The step that began last."""
        method = self.channel.unary_unary(
            f"/{SERVICE}/Current",
            request_serializer=phone_pb2.CurrentRequest.SerializeToString,
            response_deserializer=Step.decode,
        )
        step: Step = await method(phone_pb2.CurrentRequest(), metadata=cast("Any", self.metadata))
        return step

    def raw(self, method: str, message: bytes, metadata: tuple[tuple[str, str], ...] | None = None) -> Any:
        """A call with any bytes for a request."""
        call: Any = self.channel.unary_unary(f"/{SERVICE}/{method}")
        return call(message, metadata=self.metadata if metadata is None else metadata)


@contextlib.asynccontextmanager
async def calling(address: str, token: str | None, **options: int) -> AsyncGenerator[App, None]:
    """An app with a connection of its own."""
    alone = {"grpc.use_local_subchannel_pool": 1} | {f"grpc.{name}": value for name, value in options.items()}
    async with grpc.aio.insecure_channel(address, options=list(alone.items())) as channel:
        yield App(channel, token)


def mask_of(phone: Phone) -> MaskRunner:
    """The mask of a phone that has a policy."""
    assert phone.mask is not None
    return phone.mask


@dataclass
class ServedPhone:
    """A phone that runs on a clock of the test, its broker, and a way to make apps."""

    phone: Phone
    broker: Broker
    clock: ManualClock
    stack: contextlib.AsyncExitStack

    @property
    def mask(self) -> MaskRunner:
        return mask_of(self.phone)

    async def enter(self, name: str) -> App:
        """An app that stays until the end."""
        return await self.stack.enter_async_context(self.app(name))

    @contextlib.asynccontextmanager
    async def app(self, name: str = "weather", *, trusted: bool = False) -> AsyncGenerator[App, None]:
        """An app that the user has given a token."""
        async with calling(self.broker.address, self.phone.apps.add(name, trusted=trusted)) as app:
            yield app

    async def live(self, context: str | None, steps: int = 1) -> None:
        """Be in a context for some steps."""
        for _ in range(steps):
            await self.sense_before(context)
            await self.clock.move_to(self.mask.next_step.instant)

    async def sense_before(self, context: str | None, seconds: float = 10) -> None:
        """Read a context some seconds before the next step begins."""
        await self.clock.move_to(self.mask.next_step.instant - dt.timedelta(seconds=seconds))
        self.phone.sense(context)


@contextlib.asynccontextmanager
async def served_phone(
    policy: Policy | None = None, *, start: dt.datetime | None = None, address: str = "127.0.0.1:0", **options: Any
) -> AsyncGenerator[ServedPhone, None]:
    """A phone and its broker, on the first day, at noon unless said otherwise."""
    clock = ManualClock(at("12:00") if start is None else start)
    first: dict[str, Any] = {"first_day": True, "zone": dt.UTC} | options
    async with (
        Phone(releasing() if policy is None else policy, clock=clock, **first) as phone,
        Broker(phone, address) as broker,
        contextlib.AsyncExitStack() as stack,
    ):
        yield ServedPhone(phone, broker, clock, stack)


async def read(call: Any, count: int) -> list[Step]:
    """The next steps of a stream."""
    return [await asyncio.wait_for(call.read(), 10) for _ in range(count)]


async def status(awaitable: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """How a call is refused."""
    try:
        answer = await asyncio.wait_for(awaitable, 10)
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"nobody refused: {answer}")


def told(steps: list[Any]) -> list[tuple[int, str | None]]:
    """What some messages say."""
    return [(step.step, step.context) for step in steps]


async def quiet(home: ServedPhone) -> None:
    """Nobody listens any more, and nothing is left of those who did."""
    await until(lambda: home.broker.streams == 0)
    assert not home.broker._open
