"""Phones without a broker, and the steps that they publish."""

import contextlib
import datetime as dt
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from reticent.clock import ManualClock
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step
from reticent_client.store import PhoneStore
from tests.client.apps.phones import releasing


class PublishedSteps(list[tuple[dt.datetime, Step]]):
    """The steps that a phone has published, each with its time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def add(self, step: Step) -> None:
        self.append((self.clock.now(), step))

    @property
    def steps(self) -> list[tuple[int, str | None]]:
        return [(step.step, step.context) for _, step in self]


def phone_of(
    store: PhoneStore | None, clock: ManualClock, published: PublishedSteps | None = None, **options: Any
) -> MaskRunner:
    """A phone on a store, or on one of its own."""
    policy = options.pop("policy", None) or releasing()
    on_step = None if published is None else published.add
    return MaskRunner(policy, store=store, clock=clock, **{"zone": dt.UTC, "on_step": on_step} | options)


@contextlib.asynccontextmanager
async def phone_on(
    path: Path, clock: ManualClock, published: PublishedSteps | None = None, **options: Any
) -> AsyncGenerator[MaskRunner]:
    """A phone that runs on the store of a file, which is closed in the end."""
    with contextlib.closing(PhoneStore(path)) as store:
        async with phone_of(store, clock, published, **options) as phone:
            yield phone
