"""No process that holds a secret key leaves a core dump."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent_keys.receipt_workers import ReceiptWorkers, _ReceiptProcess
from reticent_keys.receipts import Expectation, Receipts
from tests.keys.processes import site

pytestmark = pytest.mark.slow  # real processes, some seconds in all

DUMPABLE = """
import ctypes, resource
from reticent.console.process import forbid_core_dumps
if {forbid}:
    forbid_core_dumps()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)[0])
"""


@pytest.fixture(autouse=True)
def _unlimited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes start with the highest limit that there is, and dump into a folder of the test."""
    former = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (former[1], former[1]))
    monkeypatch.chdir(tmp_path)
    yield
    resource.setrlimit(resource.RLIMIT_CORE, former)


def has_dumped(process: int) -> bool:
    """Whether a child of this process leaves a core dump when it crashes."""
    os.kill(process, signal.SIGABRT)
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGABRT
    return os.WCOREDUMP(status)


def test_a_process_forbids_them_by_its_limit_and_its_attribute() -> None:
    found = []
    for forbid in (True, False):
        command = [sys.executable, "-c", DUMPABLE.format(forbid=forbid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(tuple(map(int, done.stdout.split())))
    assert found == [(0, 0), (1, resource.getrlimit(resource.RLIMIT_CORE)[0])]


def test_a_key_server_that_crashes_leaves_none(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True); import time; time.sleep(99)"])
    can_dump = has_dumped(other.pid)
    other.wait()
    assert can_dump == (resource.getrlimit(resource.RLIMIT_CORE)[1] != 0)
    with site(tmp_path) as place:
        assert place.keys.pid
        assert not has_dumped(place.keys.pid)


def test_a_process_that_checks_receipts_leaves_none_when_it_crashes() -> None:
    with ReceiptWorkers(2) as workers:
        workers.submit(Expectation(b"", "", 0, 0, 0, b""), Receipts([], [])).result()
        process: _ReceiptProcess = workers._idle.get()
        assert not has_dumped(process._process.pid)
        process.end()
