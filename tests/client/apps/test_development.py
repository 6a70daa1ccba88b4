"""`reticent phone run --traces`: a phone to develop against, on a fast clock, with a store."""

import contextlib
import datetime as dt
import json
import signal
from itertools import product
from pathlib import Path

import pytest

from reticent_client.apps.connection import connect
from reticent_client.apps.trace_sensor import Outage
from reticent_client.habits.sampling import Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.store import PhoneStore
from tests.client.apps.command import Ask, Run, serving

pytestmark = pytest.mark.slow  # real processes

PORT = ("--address", "127.0.0.1:0")
DAYS = ("run", "slow.npz", "--traces", "days.csv")
RELEASED = [
    "2027-02-01 00:00  home",
    "2027-02-01 06:00  -",
    "2027-02-01 12:00  work",
    "2027-02-01 18:00  -",
    "2027-02-02 00:00  work",
    "2027-02-02 06:00  -",
    "2027-02-02 12:00  -",
    "2027-02-02 18:00  home",
]
"""What the policy makes of the two days, which releases home and work."""


@pytest.fixture
def sensor(folder: Path) -> Path:
    """Readings at odd times of two days, some of them on the hour, in two hours none."""
    moments = product(("2027-02-01", "2027-02-02"), range(24), ("00", "25"))
    times = [f"{day}T{hour:02}:{minute}" for day, hour, minute in moments]
    rows = [f"ada,{time},{('home', 'work', 'elsewhere')[k // 5 % 3]}\n" for k, time in enumerate(times) if k // 12 % 5]
    (folder / "sensor.csv").write_text("user,time,context\n" + "".join(rows))
    return folder / "sensor.csv"


@pytest.mark.parametrize("fast", ["200000", "100000000"])
def test_days_pass_on_a_fast_clock_and_lose_no_step(run: Run, fast: str) -> None:
    done = run(*DAYS, "--fast", fast, *PORT)
    greeting, *told = done.stdout.splitlines()
    assert greeting.startswith("serving at 127.0.0.1:")
    assert told == RELEASED
    ended, report = done.stderr.splitlines()
    assert ended == "reticent: the traces have ended"
    assert report.startswith("2 days: released 4 of 6 contexts (67%)")


def test_its_store_is_a_phone_s_store(run: Run) -> None:
    """The report of a phone in development is there afterwards, as of any phone."""
    run(*DAYS, "--fast", "1e7", *PORT)
    (found,) = json.loads(run("report", "--json").stdout)
    assert (found["day"], found["report"]["released"], found["report"]["off_model"]) == ("2027-02-02", 4, 1)


def test_a_restart_continues_the_days_whatever_killed_the_phone(folder: Path) -> None:
    """Each step is decided once, and its context is the same as without a restart."""
    told: list[str] = []
    for attempt in range(20):
        with serving(folder, *DAYS[1:], "--fast", "20000") as phone:
            phone.says("serving at ")
            if attempt < 3:
                phone.says("2027-")
                phone.stop(signal.SIGKILL if attempt % 2 else signal.SIGTERM)
            else:
                assert phone.process.wait(30) == 0
        told += [line.rstrip("\n") for line in phone.said if line.startswith("2027-")]
        if attempt >= 3:
            break
    assert sorted(set(told)) == sorted(RELEASED)
    assert [line for k, line in enumerate(told) if line not in told[:k]] == RELEASED
    with contextlib.closing(PhoneStore(folder / "phone.db")) as store:
        assert len(store.messages()) == len(RELEASED)


def test_steps_are_missed_while_the_phone_was_off(folder: Path, run: Run) -> None:
    with serving(folder, *DAYS[1:], "--fast", "20000") as phone:
        phone.says("2027-02-01 00:00")
        phone.stop()
    done = run(*DAYS, "--fast", "1e7", "--was-off", "1d", *PORT)
    told = [line for line in done.stdout.splitlines() if line.startswith("2027-")]
    assert told[-1] == RELEASED[-1]
    assert not any(line.startswith("2027-02-01 12:00") for line in told)
    (found,) = json.loads(run("report", "--json").stdout)
    assert found["report"]["missed"] >= 3


def test_the_answers_are_those_of_real_time(folder: Path, sensor: Path, run: Run) -> None:
    """A trusted app receives each context by the rule of a phone: the last reading at the decision of the step."""
    token = run("apps", "add", "diary", "--trusted", "--store", "phone.db").stdout.strip()
    address = f"unix:{folder / 'phone.sock'}"
    with serving(folder, "slow.npz", "--traces", "sensor.csv", "--fast", "40000", "--address", address) as phone:
        assert phone.address == address
        with connect(address, token) as connection:
            stream = connection.stream(after=0)
            heard = [next(stream) for _ in range(8)]
        assert phone.process.wait(30) == 0
    days = Sampling(dt.timedelta(hours=6), min_filled=0).days(read_traces(sensor)).days
    assert [step.context for step in heard] == [label for day in days for label in day.labels]
    assert all(step.raw for step in heard)


def test_several_apps_connect_and_one_that_is_new(folder: Path, run: Run) -> None:
    tokens = [run("apps", "add", name).stdout.strip() for name in ("weather", "music")]
    with serving(folder, *DAYS[1:], "--fast", "40000", "--app", "guest") as phone:
        for token in (*tokens, phone.says("app guest: ")):
            with connect(phone.address, token) as connection:
                heard = connection.stream(after=0)
                assert [next(heard).context for _ in range(2)] == ["home", None]
        assert phone.process.wait(30) == 0


def test_a_sensor_fails(run: Run, sensor: Path) -> None:
    """Its last reading counts for a while; then nothing is released until it reads again."""
    out = ("--sensor-off", "2027-02-01T01:00/2027-02-01T17:00", "--sensor-off", "2027-02-02T00:00/2027-02-03T00:00")
    done = run("run", "slow.npz", "--traces", str(sensor), "--fast", "1e7", "--hold", "5h", *out, *PORT)
    told = [line.split("  ")[1] for line in done.stdout.splitlines() if line.startswith("2027-")]
    assert [context != "-" for context in told] == [False] * 3 + [True] * 2 + [False] * 4
    assert "0 of 7 gaps released" in done.stderr  # at 18 o'clock and at midnight it had read shortly before
    all_told = run("run", "slow.npz", "--traces", str(sensor), "--fast", "1e7", "--store", "all.db", *PORT).stdout
    assert len(all_told.splitlines()) == 1 + 9  # to the step after the last reading


def test_an_outage_is_read_strictly() -> None:
    one, two = "2027-02-01T01:00", "2027-02-02T02:00"
    for text in ("", one, "noon/night", f"{two}/{one}", f"{one}Z/{two}Z"):
        with pytest.raises(ValueError, match="an outage is a local time, a slash and a later one"):
            Outage.parse(text)


def test_stores_of_real_time_and_of_development_are_not_mixed(folder: Path, ask: Ask) -> None:
    """The one would be silent for years, and the other would contribute to counts of another time."""
    with serving(folder, "quick.npz", "--first-day") as phone:
        phone.says("20")
        phone.stop()
    assert ask(*DAYS, *PORT, code=2)[1] == (
        "reticent: phone.db is the store of a phone in real time: --traces needs another --store\n"
    )
    ask(*DAYS, *PORT, "--fast", "1e7", "--store", "trial.db", "--quiet")
    assert ask("contribute", "--store", "trial.db", code=2)[1] == (
        "reticent: trial.db is the store of a phone in development, which takes part in no counts\n"
    )
    assert ask("run", "slow.npz", "--store", "trial.db", code=2)[1] == (
        "reticent: trial.db is the store of a phone in development: use --traces, or another --store\n"
    )
    assert ask(*DAYS, *PORT, "--fast", "1e7", "--store", "trial.db", code=2)[1] == (
        "reticent: days.csv has no reading after 2027-02-02 18:00, the time of trial.db\n"
    )


def test_quiet_says_nothing_of_what_is_released(run: Run) -> None:
    done = run(*DAYS, "--fast", "1e6", "--quiet", *PORT)
    assert len(done.stdout.splitlines()) == 1
