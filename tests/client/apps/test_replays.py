"""`reticent phone run --replay`: days that were, told once more."""

import contextlib
from pathlib import Path

import pytest

from reticent_client.apps.connection import connect
from reticent_client.store import PhoneStore
from tests.client.apps.command import Run, serving


def test_a_replay_tells_the_days_and_ends(run: Run) -> None:
    done = run("run", "slow.npz", "--replay", "days.csv", "--speed", "200000", "--address", "127.0.0.1:0")
    greeting, *lines = done.stdout.splitlines()
    assert greeting.startswith("serving at 127.0.0.1:")
    assert lines == [
        "2027-02-01 00:00  home",
        "2027-02-01 06:00  -",
        "2027-02-01 12:00  work",
        "2027-02-01 18:00  -",
        "2027-02-02 00:00  work",
        "2027-02-02 06:00  -",
        "2027-02-02 12:00  -",
        "2027-02-02 18:00  home",
    ]
    assert done.stderr.startswith("2 days: released 4 of 8 steps (50%)")


def test_a_replay_leaves_the_store_as_it_was(folder: Path, run: Run) -> None:
    """Its apps may listen; one that is new may as well, for as long as it runs."""
    token = run("apps", "add", "weather").stdout.strip()
    before = _content(folder / "phone.db")
    with serving(folder, "slow.npz", "--replay", "days.csv", "--speed", "60000", "--app", "guest") as phone:
        guest = phone.says("app guest: ")
        for each in (token, guest):
            with connect(phone.address, each) as connection:
                steps = connection.stream(after=0)
                assert [next(steps).context for _ in range(2)] == ["home", None]
        assert phone.process.wait(30) == 0
    assert _content(folder / "phone.db") == before


def _content(path: Path) -> list[object]:
    with contextlib.closing(PhoneStore(path)) as store:
        return [store.slot("apps").read(), store.slot("day").read(), store.messages()]


@pytest.mark.parametrize("speed", ["1000000", "100000000"])
def test_a_replay_loses_no_step_however_fast(run: Run, speed: str) -> None:
    done = run("run", "slow.npz", "--replay", "days.csv", "--speed", speed, "--address", "127.0.0.1:0")
    assert len(done.stdout.splitlines()) == 9
    assert done.stderr.startswith("2 days: released 4 of 8 steps (50%)")


def test_quiet_says_nothing_of_what_is_released(run: Run) -> None:
    done = run("run", "slow.npz", "--replay", "days.csv", "--speed", "1e6", "--address", "127.0.0.1:0", "--quiet")
    assert len(done.stdout.splitlines()) == 1
