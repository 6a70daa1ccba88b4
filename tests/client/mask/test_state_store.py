"""What a mask keeps where, when it may speak, and who may ask at the same time."""

import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from reticent.randomness import seeded
from reticent.storage import files
from reticent_client import FileError, FileStore, MarkovChain, MaskIt, StepError
from reticent_client.mask.chain import Floats
from reticent_client.mask.policy import Memory, VectorPolicy
from tests.client.mask.masks import commute, vector

DAY = ["home", "bus", "bus", "work", "work"]


class Notes:
    """A store in memory, which can fail, and remembers all it was told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.full = False

    def read(self) -> str | None:
        return self.texts[-1] if self.texts else None

    def write(self, text: str) -> None:
        if self.full:
            raise OSError("no space")
        self.texts.append(text)


def begun(store: Notes | FileStore, seed: int = 0) -> MaskIt:
    """A mask whose first day has begun, and that tosses for everything."""
    mask = MaskIt(vector(commute(), np.full((5, 4), 0.5)), seeded(seed), store=store)
    mask.next_day()
    return mask


# When something is stored


def test_stored_before_it_is_said() -> None:
    """At the moment of the answer the store holds the state after it."""
    store = Notes()
    mask = begun(store)
    for label in DAY:
        count = len(store.texts)
        mask.observe(label)
        assert len(store.texts) == count + 1
        assert store.texts[-1] == mask.snapshot()


def test_a_day_is_stored_once() -> None:
    """Nothing of it is published before it has ended."""
    store = Notes()
    mask = begun(store)
    count = len(store.texts)
    mask.filter_day(DAY)
    assert len(store.texts) == count + 1
    assert store.texts[-1] == mask.snapshot()


def test_an_empty_store_is_suspended_until_the_next_day() -> None:
    """It may have been lost: nobody knows what was released today."""
    mask = MaskIt(vector(commute()), store=Notes())
    assert mask.suspended
    assert [mask.observe(label) for label in DAY] == [None] * 5
    assert mask.report().suspended == 5
    mask.next_day()
    assert mask.filter_day(DAY) == DAY


def test_a_store_lost_in_the_middle_of_a_day() -> None:
    """The steps before were missed, the rest is suspended; the next day is as ever."""
    mask = MaskIt(vector(commute()), store=Notes())
    assert mask.observe("bus", step=2) is None
    assert mask.observe("work") is None
    report = mask.report()
    assert (report.missed, report.suspended) == (2, 2)
    mask.next_day()
    assert mask.filter_day(DAY) == DAY


def test_suspension_survives_a_restart() -> None:
    """A second restart does not make the memory known."""
    store = Notes()
    MaskIt(vector(commute()), store=store)
    mask = MaskIt(vector(commute()), store=store)
    assert mask.observe("home", step=0) is None
    mask.next_day()
    assert not MaskIt(vector(commute()), store=store).suspended


def test_resumes_where_it_was() -> None:
    """The next step goes on; the last may be asked for again and is not decided again."""
    seen = set()
    for seed in range(20):
        store = Notes()
        mask = begun(store, seed)
        mask.observe("home")
        outcome = mask.observe("bus")
        again = MaskIt(mask.policy, seeded(seed, "again"), store=store)
        assert again.observe("bus", step=1) == outcome
        assert again.observe("bus", step=2) in {"bus", None}
        assert MaskIt(mask.policy, store=store).step == 3
        seen.add(outcome)
    assert seen == {"bus", None}


def test_a_restart_must_say_which_step_it_is() -> None:
    """Once: then the next step is the next step again."""
    store = Notes()
    begun(store).observe("home")
    mask = MaskIt(vector(commute(), np.full((5, 4), 0.5)), store=store)
    with pytest.raises(StepError, match="step= must say which step this is: 1 is the next"):
        mask.observe("bus")
    mask.observe("bus", step=2)
    mask.observe("bus")
    assert mask.step == 4


def test_what_could_not_be_stored_is_not_said() -> None:
    """The decision stands: asked again, the answer is the same, and only then is it said."""
    outcomes = []
    for seed in range(20):
        store = Notes()
        mask = begun(store, seed)
        store.full = True
        with pytest.raises(OSError, match="no space"):
            mask.observe("home")
        with pytest.raises(StepError, match="step= must say"):
            mask.observe("home")
        with pytest.raises(OSError, match="no space"):
            mask.observe("home", step=0)
        decided = mask.snapshot()
        store.full = False
        outcomes.append(mask.observe("home", step=0))
        assert mask.snapshot() == decided == store.texts[-1]
        assert mask.observe("bus") in {"bus", None}
    assert set(outcomes) == {"home", None}


def test_a_step_that_was_never_stored_may_be_left_behind() -> None:
    """Nobody saw it; the policy remembers it."""
    store = Notes()
    mask = MaskIt(vector(commute()), store=store)
    mask.next_day()
    store.full = True
    with pytest.raises(OSError, match="no space"):
        mask.observe("home", step=0)
    store.full = False
    assert mask.observe("bus", step=1) == "bus"


def test_another_policys_store_is_refused() -> None:
    """Rather than taken for an empty one."""
    store = Notes()
    begun(store)
    with pytest.raises(FileError, match="belongs to another policy: begin with an empty store"):
        MaskIt(vector(commute()), store=store)


# Which day it is


def test_a_restart_within_the_day() -> None:
    """The stored state is today's."""
    store = Notes()
    mask = MaskIt(vector(commute()), store=store, day="monday")
    mask.next_day("tuesday")
    mask.observe("home")
    again = MaskIt(vector(commute()), store=store, day="tuesday")
    assert (again.step, again.day) == (1, "tuesday")
    assert again.observe("bus", step=1) == "bus"


def test_a_restart_on_another_day() -> None:
    """The stored day is over, and what was left of it was missed."""
    store = Notes()
    mask = MaskIt(vector(commute()), store=store)
    mask.next_day("tuesday")
    mask.observe("home")
    again = MaskIt(vector(commute()), store=store, day="wednesday")
    assert (again.step, again.day) == (0, "wednesday")
    assert again.report().missed == 4
    assert again.observe("home", step=0) == "home"
    assert MaskIt(vector(commute()), store=store, day="wednesday").step == 1


def test_a_phone_installed_in_the_middle_of_a_day() -> None:
    """It is suspended until tomorrow, however often it restarts."""
    store = Notes()
    for step in range(3):
        mask = MaskIt(vector(commute()), store=store, day="monday")
        assert mask.observe("home", step=step) is None
    assert MaskIt(vector(commute()), store=store, day="tuesday").observe("home", step=0) == "home"


def test_a_day_begins_once() -> None:
    """Else its steps would be decided twice."""
    mask = MaskIt(vector(commute()))
    mask.next_day("monday")
    mask.observe("home")
    with pytest.raises(StepError, match="the day 'monday' has begun already: the next step is 1"):
        mask.next_day("monday")
    assert mask.step == 1


# Files


def test_a_file_store(tmp_path: Path) -> None:
    """One file, which only its owner may read, replaced whole."""
    store = FileStore(tmp_path / "mask.json")
    assert store.read() is None
    store.write("one \u2603")
    store.write("two \u2603")
    assert store.read() == "two \u2603"
    assert [path.name for path in tmp_path.iterdir()] == ["mask.json"]
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_a_mask_in_a_file(tmp_path: Path) -> None:
    """It goes on after every step as if nothing had been."""
    store = FileStore(tmp_path / "mask.json")
    MaskIt(vector(commute()), store=store).next_day()
    outputs = [MaskIt(vector(commute()), store=store).observe(label, step=t) for t, label in enumerate(DAY)]
    assert outputs == DAY


def test_a_store_that_is_no_text(tmp_path: Path) -> None:
    """Or somebody else's."""
    path = tmp_path / "mask.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match=r"mask\.json is damaged: it holds no text"):
        MaskIt(vector(commute()), store=FileStore(path))
    path.write_text("{}")
    with pytest.raises(FileError, match="not a stored state written by Reticent"):
        MaskIt(vector(commute()), store=FileStore(path))


def test_the_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the content, then the name, then the folder: a loss of power leaves the old or the new."""
    events: list[str] = []
    path = tmp_path / "file"
    path.write_text("old")
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        events.append(f"sync while it is {path.read_text()}")
        sync(descriptor)

    def replaced(draft: Path, target: Path) -> Path:
        events.append("replace")
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    files.replace(path, b"new")
    assert events == ["sync while it is old", "replace", "sync while it is new"]


# Threads


class Slow(VectorPolicy):
    """Gives every other thread a chance to come in between."""

    inside = 0
    most = 0

    def suppression(self, t: int, memory: Memory) -> Floats:
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.0005)
        self.inside -= 1
        return super().suppression(t, memory)


def test_one_call_at_a_time() -> None:
    """Many threads ask at once: every step is decided once, and no more than there are."""
    chain = MarkovChain.uniform(["x", "y"], 20)
    policy = Slow(vector(chain).provenance, np.full((20, 2), 0.5))
    mask = MaskIt(policy)
    refused: list[StepError] = []
    ready = threading.Barrier(8)

    def observe() -> None:
        ready.wait()
        for _ in range(5):
            try:
                mask.observe("x")
            except StepError as error:
                refused.append(error)

    threads = [threading.Thread(target=observe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert policy.most == 1
    assert mask.step == 20
    assert len(refused) == 8 * 5 - 20
    report = mask.report()
    assert report.released + report.suppressed == 20
