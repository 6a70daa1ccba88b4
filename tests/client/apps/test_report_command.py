"""`reticent phone report`: what a phone's store says of the user's habits, while the phone runs and afterwards."""

import contextlib
import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reticent.clock import ManualClock
from reticent.storage.sql import InUse
from reticent_client.apps.mask_runner import MaskRunner
from reticent_client.cli.report import report
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.staleness import FIRST_DAYS, MIN_DAYS
from reticent_client.store import PhoneStore
from tests.client.apps.phones import at, limited, releasing
from tests.client.apps.published_steps import phone_on
from tests.client.apps.test_phone import damaged

STEPS = 4
NEW = "elsewhere"
"""A context that the policies do not know."""

Read = Callable[..., tuple[int, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a phone's store will be."""
    return tmp_path / "phone.db"


@pytest.fixture
def read(path: Path, capsys: pytest.CaptureFixture[str]) -> Read:
    """The code and the output of the command."""

    def read(*, as_json: bool = False) -> tuple[int, Any]:
        code = report(store=path, as_json=as_json)
        text = capsys.readouterr().out
        return code, json.loads(text) if as_json else text

    return read


async def live(phone: MaskRunner, clock: ManualClock, context: str, days: int) -> None:
    """Be in one context for so many days, and see the next begin."""
    for _ in range(days * STEPS):
        phone.sense(context)
        await clock.move_to(phone.next_step.instant)


@limited
async def _lived(path: Path, context: str, days: int) -> None:
    """A phone's life, from a midnight on."""
    clock = ManualClock(at("00:00"))
    async with phone_on(path, clock, policy=releasing(STEPS), first_day=True) as phone:
        await live(phone, clock, context, days)


def test_a_phone_that_runs_is_reported(path: Path, read: Read) -> None:
    """While it holds the claim, and from the day on that makes the change clear."""

    @limited
    async def run() -> None:
        clock = ManualClock(at("00:00"))
        policy = releasing(STEPS)
        async with phone_on(path, clock, policy=policy, first_day=True) as phone:
            with contextlib.closing(PhoneStore(path)) as other, pytest.raises(InUse), other.claim():
                pass
            await live(phone, clock, "home", FIRST_DAYS)
            assert read() == (0, f"policy {policy.fingerprint()[:8]}, last on 2027-02-15: {phone.reports()[0]}\n")
            await live(phone, clock, NEW, MIN_DAYS)
            code, text = read()
            assert code == 1
            expected = replace(phone.reports()[0], off_model_contexts=())  # which only the process knows
            assert text == f"policy {policy.fingerprint()[:8]}, last on 2027-02-20: {expected}\n"
            assert "habits have changed" in text
            await live(phone, clock, "home", 1)  # and it was not disturbed
            assert phone.reports()[0].off_model == MIN_DAYS * STEPS

    run()


def test_a_phone_that_has_stopped_is_reported_as_before(path: Path, read: Read) -> None:
    _lived(path, NEW, MIN_DAYS + 1)
    before = path.read_bytes()
    assert read()[0] == 1
    assert read() == read()
    assert path.read_bytes() == before


def test_machines_read_the_same(path: Path, read: Read) -> None:
    _lived(path, NEW, MIN_DAYS + 1)
    code, (found,) = read(as_json=True)
    assert code == 1
    assert (found["policy"], found["day"]) == (releasing(STEPS).fingerprint(), "2027-02-07")
    assert found["report"]["off_model"] == (MIN_DAYS + 1) * STEPS
    assert "off_model_contexts" not in found["report"]  # which are not on the disk
    recent = found["report"]["recent"]
    assert (recent["stale"], recent["off_model_rate"], recent["usual"]) == (True, 1.0, None)


def test_each_policy_of_a_schedule_is_reported(path: Path, read: Read) -> None:
    """Each has days of its own: the working days have changed clearly, and of the weekends too few are known."""

    @limited
    async def run() -> None:
        clock = ManualClock(at("00:00"))
        schedule = Schedule({"weekday": releasing(STEPS), "weekend": releasing(STEPS, hidden="work")})
        async with phone_on(path, clock, policy=schedule, first_day=True) as phone:
            await live(phone, clock, NEW, 8)
            assert len(phone.reports()) == 2

    run()
    code, found = read(as_json=True)
    assert code == 1
    assert [each["day"] for each in found] == ["2027-02-09", "2027-02-07"]
    assert [each["report"]["recent"]["days"] for each in found] == [6, 1]  # the Sunday is over on the next Saturday
    assert [each["report"]["recent"]["stale"] for each in found] == [True, False]
    assert len(read()[1].splitlines()) == 2


def test_a_store_without_a_step_says_so(path: Path, read: Read) -> None:
    """As after an app was added, before the phone began."""
    PhoneStore(path).close()
    assert read() == (0, "no step was decided yet\n")
    assert read(as_json=True) == (0, [])


def test_a_store_that_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(ValueError, match=r"^there is no phone store at .*phone\.db$"):
        report(store=path)
    assert list(path.parent.iterdir()) == []


def test_a_folder_is_no_store(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ValueError, match="there is no phone store at"):
        report(store=path)


@pytest.mark.parametrize("kind", ["text", "overwritten", "foreign", "newer"])
def test_what_is_no_store_is_refused(path: Path, kind: str) -> None:
    """By a ValueError, for the code of other errors means that habits have changed."""
    damaged(path, kind)
    with pytest.raises(ValueError, match=r"phone\.db"):
        report(store=path)


def test_a_damaged_state_is_refused_by_name(path: Path) -> None:
    _lived(path, "home", 1)
    with contextlib.closing(PhoneStore(path)) as store:
        place = store.slot(f"mask/{releasing(STEPS).fingerprint()}")
        text = place.read()
        assert text is not None
        place.write(text.replace('"released": ', '"released": 1'))
    with pytest.raises(ValueError, match=r"phone\.db: the stored state is damaged: its digest does not fit"):
        report(store=path)


def test_the_store_stays_the_owners_alone(path: Path) -> None:
    _lived(path, "home", 1)
    report(store=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
