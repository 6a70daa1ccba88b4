"""Many phones in one file: they wait for the disk together, and each publishes only what is on disk."""

import asyncio
import contextlib
import datetime as dt
import sqlite3
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import ManualClock
from reticent_client import Participation, Phone
from reticent_client.apps.messages import Step
from reticent_client.apps.tokens import APPS
from reticent_client.errors import FileError
from reticent_client.store import PhoneStore
from tests.client.apps.phones import at, limited, mask_of, releasing

PHONES = 100


@dataclass
class Household:
    """Phones of one file, what they publish, and the commits of the file."""

    store: PhoneStore
    clock: ManualClock = field(default_factory=lambda: ManualClock(at("12:00")))
    published: list[tuple[int, int]] = field(default_factory=list)  # phone, step
    commits: int = 0
    on_commit: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._execute = self.store.database._execute
        vars(self.store.database)["_execute"] = self._counted

    def _counted(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if statement == "COMMIT":
            self.commits += 1
            self.on_commit()
        return self._execute(statement, values)

    def phone(self, number: int, **options: Any) -> Phone:
        return Phone(
            releasing(),
            store=self.store.of(f"phone {number}"),
            clock=self.clock,
            zone=dt.UTC,
            first_day=True,
            on_step=partial(self._note, number),
            **options,
        )

    def _note(self, number: int, step: Step) -> None:
        with closing(sqlite3.connect(str(self.store.path))) as other:  # sees what a phone finds after a kill
            found = other.execute(
                "SELECT count(*) FROM messages WHERE phone = ? AND position = ?", (f"phone {number}", step.position)
            )
            assert found.fetchone() == (1,)
        self.published.append((number, step.step))

    @contextlib.asynccontextmanager
    async def phones(self, count: int = PHONES, **options: Any) -> AsyncGenerator[list[Phone], None]:
        """So many phones, which start together."""
        async with contextlib.AsyncExitStack() as stack:
            phones = [self.phone(number, **options) for number in range(count)]
            await asyncio.gather(*map(stack.enter_async_context, phones))
            yield phones

    async def live(self, phones: list[Phone]) -> None:
        """Pass a step."""
        for phone in phones:
            phone.sense("home")
        await self.clock.move_to(mask_of(phones[0]).next_step.instant)

    def stored(self, number: int) -> list[int]:
        """The steps of a phone that are on disk."""
        return [Step.decode(each["masked"]).step for _, each in self.store.of(f"phone {number}").messages()]


@pytest.fixture
def household(tmp_path: Path) -> Iterator[Household]:
    with closing(PhoneStore(tmp_path / "phones.db")) as store:
        yield Household(store)


@limited
async def test_a_step_of_many_phones_is_few_commits_and_leaves_after_them(household: Household) -> None:
    async with household.phones() as phones:
        for step in (25, 26):
            household.commits = 0
            await household.live(phones)
            assert household.commits == 1
            assert household.published == [(number, step) for number in range(PHONES)]
            household.published.clear()


@pytest.mark.parametrize(("participation", "commits"), [(None, 1), (Participation(), 2)])
@limited
async def test_phones_that_start_together_share_commits(
    household: Household, participation: Participation | None, commits: int
) -> None:
    """One for the masks, and one for what the users allow in counts."""
    async with household.phones(participation=participation):
        assert household.commits == commits


@limited
async def test_a_phone_starts_with_one_commit(household: Household) -> None:
    for _ in range(2):
        household.commits = 0
        async with household.phone(0):
            assert household.commits == 1


@limited
async def test_no_phone_publishes_a_step_whose_commit_fails(
    household: Household, caplog: pytest.LogCaptureFixture
) -> None:
    """All go on with the next one."""

    def fail() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with household.phones(10) as phones:
        household.on_commit = fail
        await household.live(phones)
        assert household.published == []
        assert household.stored(0) == []
        household.on_commit = lambda: None
        await household.live(phones)
    assert household.published == [(number, 26) for number in range(10)]
    assert caplog.text.count("step 25 of 2027-02-01 is not published: it cannot be stored: ") == 10


@limited
async def test_a_phone_that_cannot_store_its_step_loses_no_step_of_others(
    household: Household, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = PhoneStore.append

    def full_for_one(store: PhoneStore, *arguments: Any) -> Any:
        kept = append(store, *arguments)
        if store.phone == "phone 3":
            raise OSError(None, "the message does not fit")
        return kept

    async with household.phones(10) as phones:
        with monkeypatch.context() as patch:
            patch.setattr(PhoneStore, "append", full_for_one)
            await household.live(phones)
        assert household.published == [(number, 25) for number in range(10) if number != 3]
        assert household.stored(3) == []
        assert [mask_of(phone).reports()[0].released for phone in phones] == [1] * 10  # until the next step
        household.published.clear()
        await household.live(phones)
        assert household.published == [(number, 26) for number in range(10)]
        reports = [mask_of(phone).reports()[0] for phone in phones]
        assert [report.released for report in reports] == [2, 2, 2, 1, *[2] * 6]  # by what is stored
    assert caplog.text.count("is not published: it cannot be stored: ") == 1


@limited
async def test_a_damaged_phone_stops_alone(household: Household) -> None:
    async with household.phones(4) as phones:
        household.store.of("phone 2").slot(APPS).write("damaged")
        await household.live(phones)
        with pytest.raises(FileError, match=r"^the list of apps is damaged$"):
            await mask_of(phones[2]).wait()
        with contextlib.suppress(FileError):
            await phones[2].__aexit__(None, None, None)
    assert household.published == [(number, 25) for number in (0, 1, 3)]
    assert household.stored(2) == []


@limited
async def test_a_phone_that_stops_meanwhile_writes_nothing_later(
    household: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops when its step waits for those of others; its claim is free, and theirs are published."""
    transact = PhoneStore.transact
    freed = []

    async with household.phones(4) as phones:
        first = mask_of(phones[0])

        async def stop() -> None:
            await first.__aexit__(None, None, None)
            with household.store.of("phone 0").claim():
                freed.append(household.stored(0))

        async def stopping(store: PhoneStore, change: Callable[[], Any]) -> Any:
            if store.phone == "phone 0":
                stopped.append(asyncio.ensure_future(stop()))  # which begins before the group is made
            return await transact(store, change)

        stopped: list[Any] = []
        monkeypatch.setattr(PhoneStore, "transact", stopping)
        await household.live(phones)
        await asyncio.gather(*stopped)
    assert freed == [[]] == [household.stored(0)]
    assert household.published == [(number, 25) for number in (1, 2, 3)]
