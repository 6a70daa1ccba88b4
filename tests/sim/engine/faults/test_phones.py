"""Faults inside a phone: a full disk, and a clock that is wrong."""

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from reticent.clock import ManualClock
from reticent.privacy import Cost
from reticent_client import PhoneStore
from reticent_sim.engine.faults import FullDiskStore, SkewedClock

START = dt.datetime(2027, 1, 4, tzinfo=dt.UTC)


def really_full(path: Path) -> OSError:
    """The error of a store whose file may not grow."""
    store = PhoneStore(path)
    with store.transaction() as run:
        run("PRAGMA max_page_count = 1")
    with pytest.raises(OSError) as caught:  # noqa: PT011  # compared by the caller
        store.slot("mask").write("x" * 100_000)
    store.close()
    return caught.value


def test_the_disk_of_one_phone_is_full_and_the_others_write_on(tmp_path: Path) -> None:
    file = PhoneStore(tmp_path / "phones.db")
    full = False
    store, other = FullDiskStore(file.of("one"), lambda: full), file.of("other")
    store.slot("mask").write("before")
    full = True
    real = really_full(tmp_path / "one.db")
    for write in (
        lambda: store.slot("mask").write("after"),
        lambda: store.slot("mask").change(lambda _: "after"),
        lambda: store.append(0, {"stream": b"message"}, held=1),
        lambda: store.ledger(Cost(1.0, 1e-5)).reserve("query", Cost(0.5, 0.0)),
        lambda: asyncio.run(store.transact(lambda: store.slot("mask").write("after"))),
        lambda: asyncio.run(store.transact(lambda: store.of("one").slot("mask").write("after"))),
    ):
        with pytest.raises(OSError, match="database or disk is full") as caught:
            write()
        assert (type(caught.value), caught.value.errno, caught.value.strerror) == (
            type(real),
            real.errno,
            real.strerror,
        )
        assert caught.value.filename == str(tmp_path / "phones.db")
    assert store.slot("mask").read() == "before"
    assert not store.ledger(Cost(1.0, 1e-5)).entries()
    other.slot("mask").write("another phone's")
    full = False
    with store.transaction():
        store.slot("mask").write("after")
        full = True
        with pytest.raises(OSError, match="full"):
            store.slot("ads").write("too much")
    assert (store.slot("mask").read(), store.slot("ads").read()) == ("after", None)
    assert other.slot("mask").read() == "another phone's"
    file.close()


def test_a_skewed_clock_tells_and_awaits_its_own_time() -> None:
    async def live() -> None:
        clock = ManualClock(START)
        skewed = SkewedClock(clock, lambda: dt.timedelta(minutes=-5))
        assert skewed.now() == START - dt.timedelta(minutes=5)
        waiting = asyncio.create_task(skewed.wait_until(START + dt.timedelta(minutes=5)))
        await clock.move_to(START + dt.timedelta(minutes=9, seconds=59))
        assert not waiting.done()
        await clock.move_to(START + dt.timedelta(minutes=10))
        assert waiting.done()

    asyncio.run(live())
