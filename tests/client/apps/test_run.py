"""`reticent phone run`, run as people run it."""

import contextlib
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from reticent_client.apps.connection import connect
from tests.client.apps.command import DARK, ENVIRONMENT, PROGRAM, QUICK, Ask, Run, Serving, serving
from tests.client.apps.test_connection import CERTIFICATE, KEY
from tests.client.apps.test_phone import damaged

# At work


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
    ids=lambda number: number.name,
)
def test_it_serves_what_is_read_and_ends_when_told(folder: Path, number: signal.Signals) -> None:
    with serving(folder, "quick.npz", "--app", "weather", "--first-day") as phone:
        token = phone.says("app weather: ")
        with connect(phone.address, token, timeout=0) as connection:
            stream = connection.stream()
            phone.write("home\n")
            threading.Thread(target=_repeat, args=(phone, "home\n"), daemon=True).start()
            assert "home" in {next(stream).context for _ in range(2)}
            end = time.monotonic() + 10  # it is written by another thread
            while not any(line.endswith("  home\n") for line in phone.said):
                assert time.monotonic() < end
                time.sleep(0.01)
            code, seconds = phone.stop(number)
            assert (code, seconds < 5) == (0, True)
            with pytest.raises(ConnectionError, match="the phone is unreachable: the phone shuts down"):
                list(stream)
        assert DARK + "\n" not in phone.said
        assert [line[:6] for line in phone.complained] == ["1 day:"]


def _repeat(phone: Serving, text: str) -> None:
    """A sensor that reads the same all the time."""
    with contextlib.suppress(OSError, ValueError):
        while True:
            phone.write(text)
            time.sleep(0.3)


@pytest.mark.slow
def test_killed_and_begun_again_it_goes_on(folder: Path) -> None:
    """With its apps, and not suspended; without its store it is."""
    with serving(folder, "quick.npz", "--app", "weather", "--first-day") as phone:
        token = phone.says("app weather: ")
        phone.write("home\n")
        phone.says("2")  # the first step
        phone.process.kill()
        assert phone.process.wait(10) == -signal.SIGKILL
    with serving(folder, "quick.npz", "--app", "weather") as phone:
        assert phone.says("app weather: ") == "has its token already"
        assert DARK + "\n" not in phone.said
        with connect(phone.address, token, timeout=0) as connection:
            step = connection.current()
            assert step is not None
            assert next(connection.stream(after=0)).position <= step.position
        assert phone.stop()[0] == 0
    (folder / "phone.db").unlink()
    with serving(folder, "quick.npz") as phone:
        phone.says(DARK)
        assert phone.stop()[0] == 0


def test_bad_lines_are_told_and_passed_over(folder: Path) -> None:
    with serving(folder, "quick.npz", "--first-day") as phone:
        assert phone.address
        phone.write("x" * 200 + "\n")
        assert phone.complains("reticent: standard input: ") == "a context has at most 128 bytes of UTF-8: got 200"
        phone.write(b"\xff\xfe\n")
        phone.complains("reticent: standard input: 'utf-8' codec can't decode byte 0xff")
        phone.write(b"y" * 200_000 + b"\n\r\n")
        phone.complains("reticent: standard input: a context has at most 128 bytes of UTF-8: got")
        threading.Thread(target=_repeat, args=(phone, " work \r\n"), daemon=True).start()
        limit = time.monotonic() + 10
        while not any(line.endswith("  work\n") for line in phone.said):
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert phone.stop()[0] == 0
        assert not any("Traceback" in line for line in phone.complained)


@pytest.mark.slow
def test_a_last_line_counts_without_its_end(folder: Path) -> None:
    """And the end of standard input is not the end of the phone."""
    with serving(folder, "quick.npz", "--first-day", "--hold", "1h") as phone:
        assert phone.address
        assert phone.process.stdin is not None
        phone.write("work\nhome")
        phone.process.stdin.close()
        assert phone.complains("reticent: standard input has ended: there are no more readings")
        limit = time.monotonic() + 10
        while not any(line.endswith("  home\n") for line in phone.said):
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert phone.stop()[0] == 0


@pytest.mark.slow
def test_without_standard_input_it_serves_all_the_same(folder: Path) -> None:
    """Its number may be that of a socket then."""
    script = 'exec "$0" phone run quick.npz --first-day --address 127.0.0.1:0 <&-'
    process = subprocess.Popen(
        ["sh", "-c", script, PROGRAM], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        for _ in range(2):  # the greeting, and a step
            assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert b"Traceback" not in errors
    finally:
        process.kill()
        process.communicate(timeout=10)


@pytest.mark.slow
def test_a_certificate_makes_it_speak_tls(folder: Path) -> None:
    (folder / "c.pem").write_bytes(CERTIFICATE)
    (folder / "k.pem").write_bytes(KEY)
    with serving(folder, "quick.npz", "--first-day", "--app", "a", "--certificate", "c.pem", "--key", "k.pem") as phone:
        token = phone.says("app a: ")
        with connect(phone.address, token, root_certificates=CERTIFICATE, timeout=5) as connection:
            assert next(connection.stream()).steps == QUICK
        assert phone.stop()[0] == 0


# Not begun


def test_two_phones_on_one_store(folder: Path, run: Run) -> None:
    with serving(folder, "quick.npz", "--first-day") as phone:
        assert phone.address
        second = run("run", "quick.npz", "--address", "127.0.0.1:0", code=5)
        assert second.stderr == "reticent: another process runs the phone of phone.db\n"
        assert second.stdout == ""
        assert phone.stop()[0] == 0


def test_a_port_that_is_taken(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("run", "quick.npz", "--first-day", "--address", address, code=5)
    assert done.stderr.splitlines()[-1] == (f"reticent: cannot listen at {address}: is it taken, or not an address?")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("text", "reticent: phone.db is damaged, or not a phone's store: file is not a database\n"),
        ("foreign", "reticent: phone.db is not a phone's store\n"),
        ("newer", "reticent: phone.db has format version 2: this program reads 1\n"),
        ("overwritten", "reticent: phone.db is damaged, or not a phone's store: "),
    ],
)
def test_a_store_that_is_none(folder: Path, ask: Ask, kind: str, sentence: str) -> None:
    """For all commands alike."""
    damaged(folder / "phone.db", kind)
    for arguments in (["run", "quick.npz"], ["apps", "add", "weather"], ["apps", "list"]):
        out, errors = ask(*arguments, code=2)
        assert errors.startswith(sentence)
        assert errors.count("\n") == 1
        assert out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.npz"], "cannot read missing.npz: No such file or directory"),
        (["days.csv"], "days.csv: this is not a policy written by Reticent"),
        (["quick.npz", "--zone", "Mars"], "unknown time zone 'Mars'"),
        (["quick.npz", "--hold", "soon"], "--hold is a duration such as 1d, 90min or 30s: got 'soon'"),
        (["quick.npz", "--hold", "0s"], "a reading must count for some time"),
        (
            ["quick.npz", "--weekend", "slow.npz"],
            "all policies of a phone have the same number of steps: these have [4, 43200]",
        ),
        (["quick.npz", "--address", "0.0.0.0:0"], "0.0.0.0:0 can be reached from other machines"),
        (["quick.npz", "--certificate", "c.pem"], "--certificate and --key go together"),
        (["quick.npz", "--store", "nowhere/phone.db"], "nowhere/phone.db: "),
        (["quick.npz", "--store", "."], ".: "),
        (["quick.npz", "--traces", "missing.csv"], "missing.csv: No such file or directory"),
        (["--traces", "days.csv"], "--weekend and --traces need a policy"),
        (["slow.npz", "--was-off", "5h"], "--user, --sensor-off and --was-off mean something only with --traces"),
        (["slow.npz", "--traces", "days.csv", "--zone", "UTC"], "days.csv is a table of slots, which are local times"),
        (["slow.npz", "--traces", "days.csv", "--fast", "0"], "a clock's speed is a positive number: got 0"),
        (["slow.npz", "--traces", "days.csv", "--user", "eve"], "the traces have no user 'eve': they have 'user'"),
        (["slow.npz", "--traces", "days.csv", "--sensor-off", "noon"], "an outage is a local time, a slash and"),
        (["slow.npz", "--traces", "days.csv", "--was-off", "9d"], "days.csv has no reading after 2027-02-09 21:00"),
        (["quick.npz", "--app", ""], "an app's name is 1 to 64 printable characters: got ''"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_one_sentence(ask: Ask, arguments: list[str], sentence: str) -> None:
    out, errors = ask("run", *arguments, code=2)
    assert errors.startswith(f"reticent: {sentence}")
    assert errors.count("\n") == 1
    assert out == ""
