"""The phone by its clock: what it tells and when, and what it stores."""

import asyncio
import datetime as dt
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import ManualClock
from reticent.storage.sql import InUse
from reticent_client import Schedule
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.errors import FileError
from reticent_client.mask.timetable import time_zone
from reticent_client.store import PhoneStore, StoreSlot
from tests.client.apps.phones import at, limited, releasing, served_phone, tossing
from tests.client.apps.published_steps import PublishedSteps, phone_of, phone_on

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


@pytest.fixture
def clock() -> ManualClock:
    """A Monday, noon."""
    return ManualClock(at("12:00"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PhoneStore]:
    """A store that is new."""
    with closing(PhoneStore(tmp_path / "phone.db")) as store:
        yield store


# Steps leave when they begin


@limited
async def test_each_step_leaves_when_it_begins() -> None:
    clock = ManualClock(at("11:50"))
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True) as phone:
        for context in ("home", "hospital", "work", None):
            phone.sense(context)
            await clock.move_to(phone.next_step.instant)
    assert published.steps == [(24, "home"), (25, None), (26, "work"), (27, None)]
    assert [moment for moment, _ in published] == [at("12:00"), at("12:30"), at("13:00"), at("13:30")]


@limited
async def test_a_reading_counts_for_one_step_unless_said_otherwise() -> None:
    """The last one before the decision counts, if it is not older than that."""
    ten = dt.timedelta(minutes=10)
    for hold, expected in [(None, ["home", None, None]), (HOUR, ["home", "home", None]), (ten, [None] * 3)]:
        clock = ManualClock(at("12:00"))
        published = PublishedSteps(clock)
        async with phone_of(None, clock, published, first_day=True, hold=hold) as phone:
            phone.sense("work")
            phone.sense("home")
            await clock.move_to(at("13:30"))
        assert [context for _, context in published.steps] == expected


@limited
async def test_a_reading_after_the_decision_counts_for_the_next_step(clock: ManualClock) -> None:
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True) as phone:
        phone.sense("home")
        await clock.move_to(at("12:30") - dt.timedelta(milliseconds=500))
        phone.sense("work")
        await clock.move_to(at("13:00"))
    assert published.steps == [(25, "home"), (26, "work")]


@limited
async def test_a_phone_that_slept_misses_what_began_meanwhile(clock: ManualClock) -> None:
    """It does not tell them late, and goes on."""
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True) as phone:
        phone.sense("home")
        await asyncio.sleep(0.01)
        clock._now = at("15:10")
        await clock.move_to(at("15:20"))
        phone.sense("work")
        await clock.move_to(at("15:30"))
        assert [report.missed for report in phone.reports()] == [31]
    assert published.steps == [(31, "work")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hold": dt.timedelta()}, r"^a reading must count for some time: got 0:00:00$"),
        ({"lead": dt.timedelta(minutes=30)}, r"^the lead must be shorter than a step of 0:30:00: got 0:30:00$"),
        ({"lead": -dt.timedelta(seconds=1)}, r"^the lead must be shorter than a step"),
        ({"held_days": 0}, r"^the stream must be held for at least one day: got 0$"),
        (
            {"policy": Schedule({"weekday": releasing(48), "weekend": releasing(24)})},
            r"^all policies of a phone have the same number of steps: these have \[24, 48\]$",
        ),
    ],
)
def test_bad_arguments_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskRunner(options.pop("policy", None) or releasing(), **options)


@limited
async def test_bad_readings_are_refused_and_end_what_was_read_before(clock: ManualClock) -> None:
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True) as phone:
        phone.sense("home")
        for bad in (7, b"home", "x" * 129, "\ud800"):
            with pytest.raises(ValueError, match=r"^a context "):
                phone.sense(bad)  # type: ignore[arg-type]
        await clock.move_to(at("12:30"))
    assert published.steps == [(25, None)]  # wherever the user is, it is not there any more


# Days on which the clock jumps


@limited
async def test_steps_that_the_clock_leaves_out_are_told_as_nothing_with_the_next_one() -> None:
    clock = ManualClock(dt.datetime(2027, 3, 28, 0, 20, tzinfo=dt.UTC))  # 1:20 in Paris, and 2:00 will be 3:00
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True, zone=time_zone("Europe/Paris")) as phone:
        for _ in range(3):
            phone.sense("home")
            await clock.move_to(phone.next_step.instant)
    assert published.steps == [(3, "home"), (4, None), (5, None), (6, "home"), (7, "home")]
    assert [f"{moment:%H:%M}" for moment, _ in published] == ["00:30", "01:00", "01:00", "01:00", "01:30"]


@limited
async def test_a_repeated_hour_is_told_once() -> None:
    clock = ManualClock(dt.datetime(2027, 10, 30, 23, 50, tzinfo=dt.UTC))  # 1:50 in Paris, and 3:00 will be 2:00
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True, zone=time_zone("Europe/Paris")) as phone:
        for _ in range(12):
            phone.sense("home")
            await clock.move_to(clock.now() + dt.timedelta(minutes=15))
    assert [(f"{moment:%H:%M}", step.step) for moment, step in published] == [
        ("00:00", 4),
        ("00:30", 5),
        ("02:00", 6),
        ("02:30", 7),
    ]


@limited
async def test_a_restart_in_a_repeated_hour_decides_nothing_again(store: PhoneStore) -> None:
    clock = ManualClock(dt.datetime(2027, 10, 30, 23, 50, tzinfo=dt.UTC))
    published = PublishedSteps(clock)
    paris = time_zone("Europe/Paris")
    for _ in range(10):
        async with phone_of(store, clock, published, policy=tossing(), first_day=True, zone=paris) as phone:
            phone.sense("home")
            await clock.move_to(clock.now() + dt.timedelta(minutes=20))
    assert [step for step, _ in published.steps] == [4, 5, 6, 7, 8]


@limited
async def test_a_day_that_does_not_exist_is_not_told() -> None:
    clock = ManualClock(dt.datetime(2011, 12, 30, 9, 50, tzinfo=dt.UTC))  # ten minutes before it would begin
    published = PublishedSteps(clock)
    async with phone_of(None, clock, published, first_day=True, zone=time_zone("Pacific/Apia")) as phone:
        phone.sense("home")
        await clock.move_to(clock.now() + dt.timedelta(minutes=11))
    assert [(step.date, step.step, step.context) for _, step in published] == [(dt.date(2011, 12, 31), 0, "home")]


# The store


@limited
async def test_two_phones_cannot_run_on_one_store(store: PhoneStore, clock: ManualClock, tmp_path: Path) -> None:
    async with phone_of(store, clock, first_day=True):
        with pytest.raises(InUse, match=r"^another process runs the phone of .*phone.db$"):
            async with phone_on(tmp_path / "phone.db", clock):
                raise AssertionError("unreachable")
    async with phone_on(tmp_path / "phone.db", clock):
        pass


@limited
async def test_nobody_else_can_read_what_is_stored(tmp_path: Path, clock: ManualClock) -> None:
    """Whatever the umask."""
    before = os.umask(0)
    try:
        with closing(PhoneStore(tmp_path / "phone.db")) as store:
            async with phone_of(store, clock, first_day=True) as phone:
                phone.apps.add("weather")
                phone.sense("home")
                await clock.move_to(at("13:00"))
                modes = {each.name: each.stat().st_mode & 0o777 for each in os.scandir(tmp_path)}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["phone.db", "phone.db-wal", "phone.db-shm", "phone.db.lock"], 0o600)


def damaged(path: Path, kind: str) -> None:
    """A file that is no store of ours."""
    match kind:
        case "text":
            path.write_text("day,step,context\n" * 100)
        case "cut":
            PhoneStore(path).close()
            path.write_bytes(path.read_bytes()[:4096] + b"\x00" * 100)
        case "overwritten":
            PhoneStore(path).close()
            path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8092)
        case "foreign" | "newer":
            database = sqlite3.connect(path)
            database.execute("CREATE TABLE notes (text TEXT)")
            if kind == "newer":
                database.execute("PRAGMA application_id = 0x52455443")
                database.execute("PRAGMA user_version = 2")
            database.close()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("text", "is damaged, or not a phone's store: file is not a database$"),
        ("cut", "is damaged, or not a phone's store: "),
        ("overwritten", "is damaged, or not a phone's store: "),
        ("foreign", "is not a phone's store$"),
        ("newer", "has format version 2: this program reads 1$"),
    ],
)
@limited
async def test_a_file_that_is_no_store_is_one_sentence(
    tmp_path: Path, clock: ManualClock, kind: str, message: str
) -> None:
    path = tmp_path / "phone.db"
    damaged(path, kind)
    content = path.read_bytes()
    with pytest.raises(FileError, match=message):
        async with phone_on(path, clock):
            raise AssertionError("unreachable")
    assert path.read_bytes() == content


@pytest.mark.parametrize("text", ["", "7", "[]", '["yesterday", "x"]', "{", '[null, "x"]'])
@limited
async def test_a_damaged_note_of_the_day_is_one_sentence(store: PhoneStore, clock: ManualClock, text: str) -> None:
    store.slot("day").write(text)
    with pytest.raises(FileError, match=r"^the store is damaged: it does not say which day was the last$"):
        async with phone_of(store, clock):
            raise AssertionError("unreachable")


@pytest.mark.parametrize("part", ["write", "commit"])
@limited
async def test_a_step_that_cannot_be_stored_is_not_told(
    store: PhoneStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """The phone goes on with the next one."""
    published = PublishedSteps(clock)
    execute = store.database._execute

    def full(*_: Any) -> None:
        raise OSError(None, "database or disk is full", "phone.db")

    def no_commit(statement: str, values: Sequence[Any] = ()) -> Any:
        return full() if statement == "COMMIT" else execute(statement, values)

    async with phone_of(store, clock, published, first_day=True) as phone:
        for broken in (False, True, False):
            with monkeypatch.context() as patch:
                if broken and part == "write":
                    patch.setattr(StoreSlot, "write", full)
                elif broken:
                    patch.setattr(store.database, "_execute", no_commit)
                phone.sense("home")
                await clock.move_to(phone.next_step.instant)
    assert [step for step, _ in published.steps] == [25, 27]
    assert "step 26 of 2027-02-01 is not published: it cannot be stored: " in caplog.text


@limited
async def test_only_so_many_days_are_held() -> None:
    async with served_phone(releasing(4), held_days=2) as home:
        await home.live("home", 50)
        assert len(home.mask.masked._messages) == 8
        assert len(home.phone.store.messages()) <= 8 + 4 + 1
