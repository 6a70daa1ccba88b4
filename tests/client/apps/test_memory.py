"""A phone that runs for a month takes no more memory and no more disk than after its first days."""

import contextlib
import gc
import resource
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reticent_client.store import PhoneStore
from tests.client.apps.phones import ServedPhone, limited, read, served_phone, tossing
from tests.client.apps.test_bad_apps import Staller
from tests.parties.waiting import until

KILOBYTE, MEGABYTE = 1024, 1024 * 1024


@dataclass(frozen=True)
class Size:
    """How much a phone takes."""

    python: int  # bytes of objects
    process: int  # bytes of the whole process at its largest
    disk: int
    messages: int
    tasks: int

    @classmethod
    def of(cls, home: ServedPhone, folder: Path) -> "Size":
        """Now."""
        gc.collect()
        unit = 1 if sys.platform == "darwin" else KILOBYTE
        return cls(
            tracemalloc.get_traced_memory()[0],
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
            sum(path.stat().st_size for path in folder.glob("phone.db*")),
            len(home.phone.store.messages()),
            home.broker.streams,
        )


async def live(home: ServedPhone, calls: list[Any], days: int) -> None:
    """Some days, on which everybody hears everything but the one who stalls."""
    horizon = home.mask.timetable.horizon
    for step in range(days * horizon):
        await home.live(("home", "work", "hospital", None)[step % 4])
        for call in calls:
            await read(call, 1)


@pytest.mark.parametrize(
    ("steps", "warm", "days"), [(8, 3, 12), pytest.param(48, 8, 30, marks=pytest.mark.slow)], ids=["12 days", "a month"]
)
@limited
async def test_neither_memory_nor_disk_grows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int, warm: int, days: int
) -> None:
    """Once the days that are held are full; with apps that listen, ask, stall, and come and go."""
    store = PhoneStore(tmp_path / "phone.db")
    async with served_phone(tossing(steps), store=store, held_days=warm - 1) as home:
        apps = [await home.enter(f"app {n}") for n in range(3)]
        calls = [await app.listen() for app in apps]
        staller = Staller(home.broker.address, home.phone.apps.add("staller"))
        await until(lambda: home.broker.streams == 4)
        tracemalloc.start()
        try:
            await live(home, calls, warm)
            before = Size.of(home, tmp_path)
            for _ in range(days - warm):
                await live(home, calls, 1)
                await apps[0].current()
                passing = await apps[1].listen(0 if home.mask.masked._dropped < 0 else None)
                passing.cancel()
            await until(lambda: home.broker.streams == 4)
            after = Size.of(home, tmp_path)
        finally:
            tracemalloc.stop()
        staller.socket.close()
        await until(lambda: home.broker.streams == 3)
    store.close()
    assert after.python - before.python < 300 * KILOBYTE
    assert after.process - before.process < 8 * MEGABYTE
    assert after.disk < 6 * MEGABYTE  # most of it the log that SQLite writes ahead, and reuses at four
    assert after.messages == (warm - 1) * steps
    assert caplog.text == ""  # the phone does not complain of apps that are gone
    assert after.tasks == before.tasks


@limited
async def test_a_stream_that_is_kept_whole_would_be_noticed(tmp_path: Path) -> None:
    """Held for ever, twelve days of it are more than three."""
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        async with served_phone(tossing(8), store=store, held_days=1000) as home:
            await live(home, [], 3)
            before = Size.of(home, tmp_path)
            await live(home, [], 9)
            assert Size.of(home, tmp_path).messages > before.messages
