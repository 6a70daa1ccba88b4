"""`reticent sandbox`: the printed commands work, and nothing is left behind, whatever ends it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reticent.console import program
from reticent.privacy import Counter, Query
from reticent_sim.sandbox import _counters

PROGRAM = Path(sys.executable).with_name("reticent")
TIMEOUT, SOON = 120.0, 20.0  # seconds
PHONES = 10


@contextlib.contextmanager
def sandbox(place: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, as in a terminal of its own; its temporary folder is inside the place."""
    output = place / "out.txt"
    (place / "tmp").mkdir()
    with output.open("w") as out:
        command = [PROGRAM, "sandbox", "--phones", str(PHONES), *arguments]
        environment = {**os.environ, "TMPDIR": str(place / "tmp")}
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT)


def output_of(process: subprocess.Popen[str], place: Path) -> str:
    """What it prints until its phones take part."""
    end = time.monotonic() + TIMEOUT
    while "Stop with ctrl-C." not in (text := (place / "out.txt").read_text()):
        assert process.poll() is None, text
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text


def left(place: Path) -> list[str]:
    """Files in the temporary folder, and processes that were started with a path inside it."""
    found = [str(path) for path in (place / "tmp").iterdir()]
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(place) in line:
                found.append(line)
    return found


def nothing_is_left(place: Path) -> bool:
    """Whether all is gone soon."""
    end = time.monotonic() + SOON
    while left(place) and time.monotonic() < end:
        time.sleep(0.05)
    return not left(place)


def run(commands: Sequence[str]) -> list[str]:
    """What printed commands print when they are pasted into a shell."""
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    outputs = []
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={**os.environ, "PATH": path, "COLUMNS": "100"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        outputs.append(done.stdout)
    return outputs


@pytest.mark.slow
def test_all_printed_commands_work_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with sandbox(tmp_path, "--ads") as process:
        text = output_of(process, tmp_path)
        commands = [line.strip() for line in text.splitlines() if line.startswith("  reticent ")]
        count, status, phone, keys, _, joined, announced, contributed, result, ad, estimated, rates = run(commands)
        assert f"gym: {PHONES} phones" in count
        assert f"contributors  {PHONES} " in count
        assert "released" in status
        end = time.monotonic() + TIMEOUT
        while "released" not in phone and time.monotonic() < end:  # the phone learns of it in its next round
            time.sleep(0.2)
            [phone] = run([commands[2]])
        assert f"released: spent ({PHONES} contributions)" in phone
        assert f"{PHONES} members, of {PHONES} ever enrolled" in keys
        assert "is a member" in joined
        assert f"swim: {PHONES + 1} phones" in announced
        assert "swim: contributed at (1, 1e-06); acknowledged" in contributed
        assert f"contributors  {PHONES + 1} " in result
        assert "cafe: shown" in ad
        assert "cost    (4, 1e-05) for each phone" in estimated
        assert estimated.endswith(rates)
        os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole group
        assert process.wait(TIMEOUT) == 0
    assert (tmp_path / "out.txt").read_text() == text
    assert nothing_is_left(tmp_path), left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("starting", [True, False], ids=["starting", "running"])
def test_no_signal_leaves_anything_behind(tmp_path: Path, number: signal.Signals, starting: bool) -> None:
    with sandbox(tmp_path) as process:
        if starting:
            end = time.monotonic() + TIMEOUT
            while not list((tmp_path / "tmp").glob("*/keys.log")):
                assert time.monotonic() < end
                time.sleep(0.02)
            time.sleep(0.1)  # the server is being started
        else:
            output_of(process, tmp_path)
        assert left(tmp_path)
        process.send_signal(number)
        process.wait(TIMEOUT)
    assert nothing_is_left(tmp_path), left(tmp_path)


@pytest.mark.slow
def test_a_folder_of_the_users_own_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    with sandbox(tmp_path, "--folder", folder) as process:
        assert f"{folder} (stays)" in output_of(process, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    assert nothing_is_left(tmp_path), left(tmp_path)
    assert {"certs", "keys", "aggregation", "phones.db", "gym.toml"} <= {path.name for path in folder.iterdir()}


def test_a_folder_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").touch()
    assert program.main(["sandbox", "--folder", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("phones", ["9", "1001"])
def test_too_few_and_too_many_phones_are_refused(phones: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["sandbox", "--phones", phones]) == 2
    assert "--phones" in capsys.readouterr().err


def test_made_up_numbers_lie_within_the_bounds_and_in_one_range_of_a_histogram() -> None:
    names = ["km[-inf,0)", "km[0,2)", "km[2,inf)"]
    query = Query(
        id="walks",
        counters=[Counter("walks", -2, 3), *(Counter(name, 0, 1) for name in names)],
        epsilon=1.0,
        delta=1e-6,
        l2_squared=10,
        l1=4,
        noise="skellam",
        population=20,
        cohorts=1,
        min_contributions=10,
        liars=1,
        key_id="0" * 64,
        closes_after=60,
    )
    made_up = [_counters(phone)(query) for phone in range(100)]
    assert {numbers["walks"] for numbers in made_up} == {-2.0, -1.0, 0.0, 1.0, 2.0, 3.0}
    assert {numbers["km"] for numbers in made_up} == {-1.0, 0.0, 2.0}
    assert all(set(numbers) == {"walks", "km"} and all(map(math.isfinite, numbers.values())) for numbers in made_up)
