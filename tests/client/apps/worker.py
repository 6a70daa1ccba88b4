"""A phone in a process of its own, on a fast clock that goes on while it is dead: `worker.py STORE BEGAN LISTEN`."""

import asyncio
import contextlib
import datetime as dt
import sys
import time

from reticent.clock import SystemClock
from reticent_client.apps.broker import Broker
from reticent_client.apps.messages import Step
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore
from tests.client.apps.phones import at, tossing

SPEED = 12_000.0
"""Half an hour in 0.15 seconds, and a day in some seven."""
LEAD = dt.timedelta(minutes=10)


async def main(store: str, began: float, address: str) -> None:
    """Live until somebody kills this."""
    clock = SystemClock(at("00:00") + dt.timedelta(seconds=(time.time() - began) * SPEED), SPEED)

    def print_step(step: Step) -> None:
        print(clock.now().isoformat(), step.position, step.context, flush=True)  # noqa: T201  # its parent reads it

    with contextlib.closing(PhoneStore(store)) as kept:
        phone = Phone(
            tossing(),
            store=kept,
            zone=dt.UTC,
            clock=clock,
            lead=LEAD,
            hold=dt.timedelta(days=9),
            first_day=True,
            on_step=print_step,
        )
        async with phone, Broker(phone, address):
            phone.sense("home")
            await phone.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
