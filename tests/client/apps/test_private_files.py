"""What a phone leaves on the disk: no context that was not released, unless an app is trusted with it."""

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from reticent.clock import ManualClock
from reticent.storage import database
from reticent_client import MarkovChain, MaskIt, Phone, PhoneStore, Policy, mask_sensitive
from reticent_client.apps.messages import RAW
from reticent_client.apps.tokens import Apps
from reticent_client.mask.state_store import FileStore
from tests.client.apps.command import Ask, serving
from tests.client.apps.phones import ServedPhone, at, limited, mask_of, releasing, served_phone

SENSITIVE, UNKNOWN, BROKEN = "oncology-ward", "debt-counsellor", "courtroom" + "x" * 128
"""A context that is suppressed, one that the chain does not know, and one that is too long: they occur nowhere else."""
DAY = ["home", SENSITIVE, "work", UNKNOWN, SENSITIVE, UNKNOWN, "home", "work"]


def on_disk(folder: Path) -> dict[str, list[str]]:
    """The files that contain any of the contexts, whatever they are."""
    assert any(folder.iterdir())
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            if labels := [each for each in (SENSITIVE, UNKNOWN, BROKEN[:9]) if each.encode() in content]:
                found[path.name] = labels
    return found


async def live(home: ServedPhone, days: int = 1) -> None:
    """Spend some days; the chain rules the sensitive context out at every other step."""
    for _ in range(days):
        for context in DAY:
            await home.live(context)


def policy(horizon: int = len(DAY)) -> Policy:
    """Suppresses the sensitive context, which the chain rules out on every other step."""
    chain = MarkovChain.uniform(("home", "work", SENSITIVE), horizon)
    transitions = chain.transitions.copy()
    transitions[::2] = [0.5, 0.5, 0]
    return mask_sensitive(MarkovChain(chain.contexts, chain.initial, transitions), sensitive={SENSITIVE})


@pytest.mark.parametrize("moment", ["running", "stopped", "copied"])
def test_no_context_is_on_disk_without_a_trusted_app(tmp_path: Path, moment: str) -> None:
    """In no file: not in the database, nor in its log, nor in a copy of it."""

    @limited
    async def run() -> None:
        store = PhoneStore(tmp_path / "phone.db")
        async with served_phone(policy(), start=at("00:00"), store=store) as home:
            home.phone.apps.add("weather")
            await live(home, 3)
            report = home.mask.reports()[0]
            assert report.off_model > 0
            assert dict(report.off_model_contexts).keys() == {SENSITIVE, UNKNOWN}  # for the user, in memory
            if moment == "running":
                assert on_disk(tmp_path) == {}
            if moment == "copied":
                store.database.backup(tmp_path / "copy.db")
        store.close()
        assert on_disk(tmp_path) == {}

    run()


def test_a_restarted_phone_still_counts_the_steps_off_the_model(tmp_path: Path) -> None:
    """Their number is kept, their contexts are not."""
    state = FileStore(tmp_path / "state")
    mask = MaskIt(releasing(3), store=state)
    mask.next_day()
    mask.observe(UNKNOWN)
    assert mask.report().off_model_contexts == ((UNKNOWN, 1),)
    assert on_disk(tmp_path) == {}
    again = MaskIt(releasing(3), store=state).report()
    assert (again.off_model, again.off_model_contexts) == (1, ())


@pytest.mark.parametrize("how", ["removed", "no longer trusted"])
@limited
async def test_contexts_leave_the_disk_with_the_last_trusted_app(tmp_path: Path, how: str) -> None:
    """At once, and not only when the log of the database happens to be written anew."""
    store = PhoneStore(tmp_path / "phone.db")
    async with served_phone(policy(), start=at("00:00"), store=store) as home:
        home.phone.apps.add("diary", trusted=True)
        home.phone.apps.add("other diary", trusted=True)
        await live(home)
        home.phone.apps.remove("other diary")
        assert SENSITIVE in {label for labels in on_disk(tmp_path).values() for label in labels}  # one is trusted still
        home.phone.apps.remove("diary") if how == "removed" else home.phone.apps.add("diary")
        assert on_disk(tmp_path) == {}
        await live(home)
        assert on_disk(tmp_path) == {}
    store.close()
    assert on_disk(tmp_path) == {}


@limited
async def test_contexts_leave_the_disk_of_a_running_phone_by_a_command(folder: Path, ask: Ask) -> None:
    """The command is another process's, as far as the database can tell."""
    (folder / "phone").mkdir()
    path = folder / "phone" / "phone.db"
    clock = ManualClock(at("00:00"))
    with contextlib.closing(PhoneStore(path)) as store:
        Apps(store).add("diary", trusted=True)
        async with Phone(releasing(4), store=store, clock=clock, first_day=True) as phone:
            mask = mask_of(phone)
            for context in (SENSITIVE, "home", UNKNOWN, SENSITIVE):
                phone.sense(context)
                await clock.move_to(mask.next_step.instant)
            assert on_disk(path.parent) != {}
            ask("apps", "remove", "diary", "--store", str(path))
            assert on_disk(path.parent) == {}
            phone.sense(SENSITIVE)
            await clock.move_to(mask.next_step.instant)
    assert on_disk(path.parent) == {}


@pytest.mark.slow
def test_the_output_of_a_process_names_no_context_that_was_not_released(folder: Path) -> None:
    """Both outputs of a phone are usually kept in a log."""
    with serving(folder, "quick.npz", "--first-day", "--zone", "UTC") as phone:
        phone.says("serving at ")
        for label in (SENSITIVE, UNKNOWN, "hospital", BROKEN):
            phone.write(f"{label}\n")
        phone.complains("reticent: standard input: a context has at most 128 bytes")
        for _ in range(4):
            phone.write(f"{UNKNOWN}\n")
            time.sleep(1)  # half a step
        code, _ = phone.stop()
        written = "".join((*phone.said, *phone.complained))
    assert code == 0
    assert "off-model" in written
    assert [label for label in (SENSITIVE, UNKNOWN, "courtroom", "hospital") if label in written] == []


def test_contexts_that_cannot_be_erased_now_are_erased_later_and_the_user_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process reads the store, its log cannot be overwritten."""
    monkeypatch.setattr(database, "_ERASING", 50)
    path = tmp_path / "phone.db"
    with contextlib.closing(PhoneStore(path)) as store:
        apps = Apps(store)
        apps.add("diary", trusted=True)
        store.append(1, {RAW: SENSITIVE.encode()}, held=8)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM messages").fetchall()
            apps.remove("diary")
            assert on_disk(tmp_path)
            assert "are erased when another process closes" in caplog.text
    assert not on_disk(tmp_path)
