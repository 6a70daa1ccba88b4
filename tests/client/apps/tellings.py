"""Phones without a broker, and what they tell."""

import contextlib
import datetime as dt
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from reticent.clock import ManualClock
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.apps.messages import Step
from reticent_client.store import PhoneStore
from tests.client.apps.phones import telling


class Told(list[tuple[dt.datetime, Step]]):
    """What a phone has told, and when."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def hear(self, step: Step) -> None:
        self.append((self.clock.now(), step))

    @property
    def steps(self) -> list[tuple[int, str | None]]:
        return [(step.step, step.context) for _, step in self]


def phone_of(store: PhoneStore | None, clock: ManualClock, told: Told | None = None, **options: Any) -> MaskRunner:
    """A phone on a store, or on one of its own."""
    policy = options.pop("policy", None) or telling()
    listener = None if told is None else told.hear
    return MaskRunner(policy, store=store, clock=clock, **{"zone": dt.UTC, "listener": listener} | options)


@contextlib.asynccontextmanager
async def phone_on(
    path: Path, clock: ManualClock, told: Told | None = None, **options: Any
) -> AsyncGenerator[MaskRunner]:
    """A phone that runs on the store of a file, which is closed in the end."""
    with contextlib.closing(PhoneStore(path)) as store:
        async with phone_of(store, clock, told, **options) as phone:
            yield phone
