"""The progress on standard error, with and without a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reticent.privacy import CohortSum, Query
from reticent.protocol import Refusal, Refused
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent_analyst.progress_display import ProgressDisplay
from tests.analyst.clocks import SteppedClock
from tests.analyst.command import KNOWN, PROGRAM, QUESTION
from tests.parties.counting_server import DEADLINE, CountingServer
from tests.parties.waiting import block_until

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

STOPPED = 130


def begun(server: CountingServer, folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process of `reticent count`."""
    (folder / "gym.toml").write_text(QUESTION)
    where = ["--address", server.address, "--certs", str(server.folder), "--analyst", "ann"]
    where += ["--identity", server.signer.public.hex()]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([PROGRAM, "count", *arguments, *where], text=True, cwd=folder, **(streams | options))


def test_a_line_is_written_after_a_moment_and_again_for_a_new_subject() -> None:
    written, clock = io.StringIO(), SteppedClock()
    display = ProgressDisplay(written, first=0.3, every=60.0, monotonic=clock.monotonic)

    def after(seconds: float) -> str:
        clock.sleep(seconds)
        display.write_line()
        return written.getvalue()

    display.show("first")
    assert after(0.2) == ""
    display.show("")
    assert after(0.2) == ""  # it was over soon
    display.show("collecting: ", "1")
    assert after(0.2) == ""
    display.show("collecting: ", "2\x1b[2K")
    assert after(0.2) == "collecting: 2\\x1b[2K\n"
    display.show("collecting: ", "3")
    assert after(50.0) == "collecting: 2\\x1b[2K\n"
    display.show("closing: ", "0 of 3")
    assert after(0.2) == "collecting: 2\\x1b[2K\nclosing: 0 of 3\n"


def test_a_line_is_repeated_now_and_then() -> None:
    written, clock = io.StringIO(), SteppedClock()
    display = ProgressDisplay(written, first=2.0, every=30.0, monotonic=clock.monotonic)
    display.show("collecting: ", "1")
    for _ in range(100):
        clock.sleep(1.0)
        display.write_line()
    assert written.getvalue().count("collecting: 1\n") == 4  # after 2, 32, 62 and 92 seconds


def test_lines_are_written_by_a_thread() -> None:
    written = io.StringIO()
    with ProgressDisplay(written, first=0.0) as display:
        display.show("collecting: ", "1")
        block_until(lambda: written.getvalue() == "collecting: 1\n")


def test_an_unavailable_key_server_is_named_without_a_terminal(server: CountingServer, tmp_path: Path) -> None:
    server.refusals = [Refused(Refusal.UNAVAILABLE, KEY_SERVER_UNAVAILABLE)] * 6
    with begun(server, tmp_path, "new", "gym.toml", "--yes", "--json") as process:
        guard = threading.Timer(DEADLINE, process.kill)
        guard.start()
        assert process.stderr is not None
        assert re.fullmatch(r"waiting for the key server \(\d s\)\n", process.stderr.readline())
        block_until(lambda: "gym" in server.statuses)
        query = Query.from_bytes(server.statuses["gym"].query)
        server.collecting(query, 7)
        assert any(line.startswith("collecting: 21 phones; closes in") for line in process.stderr)
        server.decided(query, KNOWN)
        out, _ = process.communicate(timeout=DEADLINE)
        guard.cancel()
    assert json.loads(out)["value"] == [63.0]


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("command", ["new", "result"])
def test_the_query_continues_after_an_interrupt(
    server: CountingServer, tmp_path: Path, command: str, is_terminal: bool
) -> None:
    if command == "result":
        with begun(server, tmp_path, "new", "gym.toml", "--yes", "--no-wait") as process:
            assert process.wait(DEADLINE) == 0
    ours, theirs = pty.openpty()
    arguments = ["new", "gym.toml", "--yes"] if command == "new" else ["result", "gym"]
    looks = server.calls.count("status")
    with begun(server, tmp_path, *arguments, **({"stderr": theirs} if is_terminal else {})) as process:
        block_until(lambda: server.calls.count("status") > looks + 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    os.close(theirs)
    err = os.read(ours, 1 << 20).decode() if is_terminal else err
    os.close(ours)
    assert process.returncode == STOPPED
    assert err.splitlines()[-1].endswith("stopped; the query continues: reticent count result gym")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "text", ["x\x1b[2K\rgym", "[/red] :smile: [bold]x", "{task.nothing}", "\N{RIGHT-TO-LEFT OVERRIDE}x"]
)
def test_text_of_others_cannot_control_the_terminal(server: CountingServer, tmp_path: Path, text: str) -> None:
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    with begun(server, tmp_path, "new", "gym.toml", "--yes", "--no-wait") as process:
        process.communicate(timeout=DEADLINE)
    template = Query.from_bytes(server.statuses["gym"].query)
    query = replace(template, id=text)
    server.refuse(query, text)
    for arguments, stream in ((["status"], "out"), (["status", text], "err"), (["result", text], "err")):
        with begun(server, tmp_path, *arguments) as process:
            out, err = process.communicate(timeout=DEADLINE)
        stream_text = out if stream == "out" else err
        assert shown in " ".join(stream_text.split()) or shown in stream_text
        assert all(each.isprintable() or each == "\n" for each in out + err)
        assert "Traceback" not in err
    server.refused.clear()
    server.decided(query, [CohortSum(2, None)] * query.cohorts)
    with begun(server, tmp_path, "result", text) as process:
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out) == (1, "")
    assert all(each.isprintable() or each == "\n" for each in err)


def test_a_lost_query_exits_with_1(server: CountingServer, tmp_path: Path) -> None:
    with begun(server, tmp_path, "new", "gym.toml", "--yes", "--no-wait") as process:
        process.communicate(timeout=DEADLINE)
    server.lost(Query.from_bytes(server.statuses["gym"].query))
    with begun(server, tmp_path, "result", "gym") as process:
        _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert err.startswith("reticent: 'gym' can no longer be decided: the key server was restored from a backup")
    with begun(server, tmp_path, "status") as process:
        out, _ = process.communicate(timeout=DEADLINE)
    assert "gym: can no longer be decided: the key server was restored from a backup" in " ".join(out.split())


def test_an_impossible_plan_is_one_sentence_at_once(tmp_path: Path) -> None:
    question = QUESTION.replace("cohorts = 3\nmin_contributions = 12\n", "").replace("absent", "lying = 0.6\nabsent")
    (tmp_path / "gym.toml").write_text(question)
    for options, message in (
        (["--population", "1000000"], "no number of cohorts up to 5001 tolerates 600000 liars"),
        (["--population", "10", "--key-bits", "7"], "a key has one of these lengths"),
        (["--population", "1" + "0" * 400], "population must be at most"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "reticent", "count", "plan", "gym.toml", *options],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
