"""Real processes, killed at moments of chance: what was told stays told, and nothing else is."""

import contextlib
import datetime as dt
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent_client.apps.connection import connect
from reticent_client.apps.messages import Step
from reticent_client.apps.tokens import Apps
from reticent_client.store import PhoneStore
from reticent_sim.engine import free_address
from tests.client.apps.test_connection import StreamReader
from tests.parties.waiting import block_until

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def worker(store: Path, began: float, address: str) -> Iterator[subprocess.Popen[str]]:
    """A phone in a process, killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.client.apps.worker", str(store), str(began), address],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def begins(position: int) -> dt.datetime:
    """When a half hour begins, by the number of its position."""
    date = dt.date.fromordinal(position >> 20)
    return dt.datetime.combine(date, dt.time(), dt.UTC) + dt.timedelta(minutes=30 * (position & (1 << 20) - 1))


@pytest.mark.slow
@pytest.mark.parametrize(("lives", "seed"), [(25, 2), (25, 3)])
def test_killed_at_any_moment_a_phone_goes_on_where_it_was(tmp_path: Path, lives: int, seed: int) -> None:
    """Two apps, one that stays and one that comes back each time and asks for everything, hear the same."""
    store, chance = tmp_path / "phone.db", random.Random(seed)  # noqa: S311  # when to kill is no secret
    with contextlib.closing(PhoneStore(store)) as opened:
        token = Apps(opened).add("weather")
    address, began = free_address(), time.time()
    printed: list[tuple[str, int, str]] = []
    received: list[Step] = []
    with connect(address, token, timeout=60) as staying, connect(address, token, timeout=60) as returning:
        reader = StreamReader(staying.stream(after=0))
        for _ in range(lives):
            with worker(store, began, address) as process:
                stream = returning.stream(after=0)
                received.append(next(stream))
                until = time.monotonic() + chance.uniform(0.3, 1.2)
                while time.monotonic() < until:
                    received.append(next(stream))
                stream.close()  # type: ignore[attr-defined]
            assert process.stdout is not None
            lines = [line.split() for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            printed += [(moment, int(position), context) for moment, position, context in lines]
            process.stdout.close()
        with worker(store, began, address) as process:  # the app that stays connects again sooner or later
            block_until(lambda: {step.position for step in reader.steps} >= {position for _, position, _ in printed})
        assert process.stdout is not None
        process.stdout.close()
        staying.close()
        reader.thread.join(10)
    contexts: dict[int, set[str | None]] = {}
    for _, position, context in printed:
        contexts.setdefault(position, set()).add(None if context == "None" else context)
    for step in (*received, *reader.steps):
        contexts.setdefault(step.position, set()).add(step.context)
    assert len(contexts) >= 4 * lives
    assert all(len(found) == 1 for found in contexts.values())
    assert {next(iter(found)) for found in contexts.values()} == {"home", None}  # nothing was suspended
    assert all(dt.datetime.fromisoformat(moment) >= begins(position) for moment, position, _ in printed)
    positions = [step.position for step in reader.steps]
    assert positions == sorted(set(positions))


FULL = """
import sys, pathlib, resource, signal
from reticent_client.store import PhoneStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = PhoneStore(sys.argv[1])
place = store.slot("mask")
place.write("first")
size = max(each.stat().st_size for each in pathlib.Path(sys.argv[1]).parent.iterdir())
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, hard))
failures = 0
for number in range(50):
    try:
        store.append(number, {"masked": bytes(20000)}, 100)
    except OSError:
        failures += 1
assert failures, "the disk was never full"
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.append(1000, {"masked": b"again"}, 100)
place.write("second")
assert place.read() == "second" and store.messages()[-1] == (1000, {"masked": b"again"})
store.close()
"""


def test_a_store_goes_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "phone.db"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        assert store.slot("mask").read() == "second"
