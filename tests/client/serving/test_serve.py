"""`reticent mask serve` and `reticent mask apps`, run as people run them."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reticent import cli
from reticent_client.serving.connection import Refused, connect
from reticent_client.serving.database import SqliteStore
from tests.client.commands import furnish
from tests.client.serving.phones import telling
from tests.client.serving.test_connection import CERTIFICATE, KEY
from tests.client.serving.test_phone import damaged

PROGRAM = Path(sys.executable).with_name("reticent")
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC"}
DARK = (
    "nothing is released until tomorrow, for it is not known what was released today "
    "(if the store is new and nothing was, --first-day says so)"
)
QUICK = 43_200
"""Steps a day: one every two seconds."""

Ask = Callable[..., tuple[str, str]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policies, and days to replay."""
    folder = tmp_path_factory.mktemp("furnished")
    furnish(folder)
    telling(QUICK).save(folder / "quick.npz")
    telling(4).save(folder / "slow.npz")
    days = [("2027-02-01", ["home", "hospital", "work", ""]), ("2027-02-02", ["work", "", "elsewhere", "home"])]
    text = [f"{day},{step},{context}\n" for day, contexts in days for step, context in enumerate(contexts)]
    (folder / "days.csv").write_text("day,step,context\n" + "".join(text))
    return folder


@pytest.fixture
def folder(furnished: Path, tmp_path: Path) -> Path:
    """A folder with all that, for one test."""
    return shutil.copytree(furnished, tmp_path / "folder")


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs the program in that folder until it ends."""

    def run(*arguments: str, code: int = 0, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAM, "mask", *arguments],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """What the program says on standard output and on standard error, asked in this process."""
    monkeypatch.chdir(folder)

    def ask(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert cli.main(["mask", *arguments]) == code
        said = capsys.readouterr()
        return said.out, said.err

    return ask


class Serving:
    """The program at work."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "mask", "serve", *arguments, "--address", "127.0.0.1:0"],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.complained: list[str] = []
        self.threads = [
            threading.Thread(target=target.extend, args=(stream,), daemon=True)
            for target, stream in ((self.said, self.process.stdout), (self.complained, self.process.stderr))
        ]
        for thread in self.threads:
            thread.start()

    def says(self, start: str, seconds: float = 20) -> str:
        """The rest of the first line that begins so, once there is one."""
        return self._first(self.said, start, seconds)

    def complains(self, start: str, seconds: float = 20) -> str:
        """The same on standard error."""
        return self._first(self.complained, start, seconds)

    def _first(self, texts: list[str], start: str, seconds: float) -> str:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            for text in list(texts):
                if text.startswith(start):
                    return text[len(start) :].rstrip("\n")
            assert self.process.poll() is None or time.monotonic() < limit - 1, self.complained
            time.sleep(0.01)
        raise AssertionError(f"no {start!r} in {texts}")

    @property
    def address(self) -> str:
        return self.says("serving at ").partition(",")[0]

    def write(self, text: str | bytes) -> None:
        """Let the user's sensors speak."""
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), text if isinstance(text, bytes) else text.encode())

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """The exit code, and how long it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(20)
        for thread in self.threads:
            thread.join(5)
        return code, time.monotonic() - began


@contextlib.contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    """The program at work, killed in the end if it still is."""
    served = Serving(folder, *arguments)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.wait(10)
        for thread in served.threads:
            thread.join(5)
        for stream in (served.process.stdin, served.process.stdout, served.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


# At work


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_it_serves_what_is_read_and_ends_when_told(folder: Path, number: signal.Signals) -> None:
    with serving(folder, "quick.npz", "--app", "weather", "--first-day") as phone:
        token = phone.says("app weather: ")
        with connect(phone.address, token, patience=0) as connection:
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
            with pytest.raises(ConnectionError, match="the phone is not there: the phone shuts down"):
                list(stream)
        assert DARK + "\n" not in phone.said
        assert [line[:6] for line in phone.complained] == ["1 day:"]


def _repeat(phone: Serving, text: str) -> None:
    """A sensor that reads the same all the time."""
    with contextlib.suppress(OSError, ValueError):
        while True:
            phone.write(text)
            time.sleep(0.3)


def test_killed_and_begun_again_it_goes_on(folder: Path) -> None:
    """With its apps, and not dark; without its store it is."""
    with serving(folder, "quick.npz", "--app", "weather", "--first-day") as phone:
        token = phone.says("app weather: ")
        phone.write("home\n")
        phone.says("2")  # the first step
        phone.process.kill()
        assert phone.process.wait(10) == -signal.SIGKILL
    with serving(folder, "quick.npz", "--app", "weather") as phone:
        assert phone.says("app weather: ") == "has its token already"
        assert DARK + "\n" not in phone.said
        with connect(phone.address, token, patience=0) as connection:
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
        assert phone.complains("reticent: standard input: ") == (
            f"a context has at most 128 bytes of UTF-8: '{'x' * 40}'... has 200"
        )
        phone.write(b"\xff\xfe\n")
        phone.complains("reticent: standard input: 'utf-8' codec can't decode byte 0xff")
        phone.write(b"y" * 200_000 + b"\n\r\n")
        phone.complains("reticent: standard input: a context has at most 128 bytes of UTF-8: 'yyyy")
        threading.Thread(target=_repeat, args=(phone, " work \r\n"), daemon=True).start()
        limit = time.monotonic() + 10
        while not any(line.endswith("  work\n") for line in phone.said):
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert phone.stop()[0] == 0
        assert not any("Traceback" in line for line in phone.complained)


def test_a_last_line_counts_without_its_end(folder: Path) -> None:
    """And the end of standard input is not the end of the phone."""
    with serving(folder, "quick.npz", "--first-day", "--hold", "1h") as phone:
        assert phone.address
        assert phone.process.stdin is not None
        phone.write("work\nhome")
        phone.process.stdin.close()
        limit = time.monotonic() + 10
        while not any(line.endswith("  home\n") for line in phone.said):
            assert time.monotonic() < limit
            time.sleep(0.02)
        assert phone.stop()[0] == 0


def test_without_standard_input_it_serves_all_the_same(folder: Path) -> None:
    """Its number may be that of a socket then."""
    script = 'exec "$0" mask serve quick.npz --first-day --address 127.0.0.1:0 <&-'
    process = subprocess.Popen(
        ["sh", "-c", script, PROGRAM], cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        for _ in range(2):  # the greeting, and a step
            assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, complained = process.communicate(timeout=20)
        assert process.returncode == 0
        assert b"Traceback" not in complained
    finally:
        process.kill()
        process.communicate(timeout=10)


# Not begun


def test_two_phones_on_one_store(folder: Path, run: Run) -> None:
    with serving(folder, "quick.npz", "--first-day") as phone:
        assert phone.address
        second = run("serve", "quick.npz", "--address", "127.0.0.1:0", code=1)
        assert second.stderr == "reticent: another process runs the phone of phone.db\n"
        assert second.stdout == ""
        assert phone.stop()[0] == 0


def test_a_port_that_is_taken(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", "quick.npz", "--first-day", "--address", address, code=1)
    assert done.stderr.splitlines()[-1] == (f"reticent: cannot listen at {address}: is it taken, or not an address?")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("text", "reticent: phone.db is damaged, or not a phone's store: file is not a database\n"),
        ("foreign", "reticent: phone.db is not a phone's store\n"),
        ("newer", "reticent: phone.db has format version 3: this program reads 2\n"),
        ("overwritten", "reticent: phone.db is damaged, or not a phone's store: "),
    ],
)
def test_a_store_that_is_none(folder: Path, ask: Ask, kind: str, sentence: str) -> None:
    """For all commands alike."""
    damaged(folder / "phone.db", kind)
    for arguments in (["serve", "quick.npz"], ["apps", "add", "weather"], ["apps", "list"]):
        out, complained = ask(*arguments, code=1)
        assert complained.startswith(sentence)
        assert complained.count("\n") == 1
        assert out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["missing.npz"], "cannot read missing.npz: No such file or directory"),
        (["days.csv"], "days.csv: this is not a policy written by Reticent"),
        (["quick.npz", "--zone", "Mars"], "unknown time zone 'Mars'"),
        (["quick.npz", "--hold", "soon"], "--hold is a length of time such as 1d, 90min or 30s: got 'soon'"),
        (["quick.npz", "--hold", "0s"], "a reading must count for some time"),
        (
            ["quick.npz", "--weekend", "slow.npz"],
            "all policies of a phone have the same number of steps: these have [4, 43200]",
        ),
        (["quick.npz", "--address", "0.0.0.0:0"], "0.0.0.0:0 can be reached from other machines"),
        (["quick.npz", "--certificate", "c.pem"], "--certificate and --key go together"),
        (["quick.npz", "--store", "nowhere/phone.db"], "nowhere/phone.db: "),
        (["quick.npz", "--store", "."], ".: "),
        (["quick.npz", "--replay", "missing.csv"], "missing.csv: No such file or directory"),
        (
            ["slow.npz", "--replay", "days.csv", "--first-day"],
            "--first-day, --hold and --zone mean nothing to a replay",
        ),
        (["slow.npz", "--replay", "days.csv", "--speed", "0"], "a clock's speed is a positive number: got 0"),
        (["private.npz", "--replay", "days.csv"], "days.csv:5: step 3 lies outside the day of 3 steps"),
        (["quick.npz", "--app", ""], "an app's name is 1 to 64 printable characters: got ''"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_one_sentence(ask: Ask, arguments: list[str], sentence: str) -> None:
    out, complained = ask("serve", *arguments, code=2)
    assert complained.startswith(f"reticent: {sentence}")
    assert complained.count("\n") == 1
    assert out == ""


# Replays


def test_a_replay_tells_the_days_and_ends(run: Run) -> None:
    done = run("serve", "slow.npz", "--replay", "days.csv", "--speed", "200000", "--address", "127.0.0.1:0")
    greeting, *told = done.stdout.splitlines()
    assert greeting.startswith("serving at 127.0.0.1:")
    assert told == [
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
                heard = connection.stream(after=0)
                assert [next(heard).context for _ in range(2)] == ["home", None]
        assert phone.process.wait(30) == 0
    assert _content(folder / "phone.db") == before


def _content(path: Path) -> list[object]:
    with contextlib.closing(SqliteStore(path)) as store:
        return [store.read("apps"), store.read("day"), store.messages()]


@pytest.mark.parametrize("speed", ["1000000", "100000000"])
def test_a_replay_loses_no_step_however_fast(run: Run, speed: str) -> None:
    done = run("serve", "slow.npz", "--replay", "days.csv", "--speed", speed, "--address", "127.0.0.1:0")
    assert len(done.stdout.splitlines()) == 9
    assert done.stderr.startswith("2 days: released 4 of 8 steps (50%)")


def test_quiet_says_nothing_of_what_is_released(run: Run) -> None:
    done = run("serve", "slow.npz", "--replay", "days.csv", "--speed", "1e6", "--address", "127.0.0.1:0", "--quiet")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.slow
def test_a_certificate_makes_it_speak_tls(folder: Path) -> None:
    (folder / "c.pem").write_bytes(CERTIFICATE)
    (folder / "k.pem").write_bytes(KEY)
    with serving(folder, "quick.npz", "--first-day", "--app", "a", "--certificate", "c.pem", "--key", "k.pem") as phone:
        token = phone.says("app a: ")
        with connect(phone.address, token, root_certificates=CERTIFICATE, patience=5) as connection:
            assert next(connection.stream()).steps == QUICK
        assert phone.stop()[0] == 0


# Apps


def test_apps_come_and_go(folder: Path, ask: Ask) -> None:
    for asked in (["list"], ["list", "--json"], ["remove", "weather"]):  # a name that was mistyped makes no file
        assert ask("apps", *asked, code=2) == ("", "reticent: there is no phone's store at phone.db\n")
    assert not (folder / "phone.db").exists()
    added = (["weather"], ["my diary", "--trusted"], ["weather"])
    tokens = [ask("apps", "add", *each)[0] for each in added]
    assert len(set(tokens)) == 3
    assert all(len(token) == 44 for token in tokens)
    assert ask("apps", "list")[0] == "my diary (trusted: is told every context)\nweather\n"
    assert json.loads(ask("apps", "list", "--json")[0]) == [
        {"name": "my diary", "trusted": True},
        {"name": "weather", "trusted": False},
    ]
    stored = b"".join(path.read_bytes() for path in folder.glob("phone.db*"))
    assert not any(token.strip().encode() in stored for token in tokens)
    ask("apps", "remove", "weather")
    unknown = "reticent: there is no app 'weather': known are 'my diary'\n"
    assert ask("apps", "remove", "weather", code=1) == ("", unknown)
    ask("apps", "remove", "my diary")
    assert ask("apps", "list") == ("", "")
    assert ask("apps", "list", "--json") == ("[]\n", "")


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "\x1b[31m"])
def test_a_name_that_could_deceive_is_refused(ask: Ask, name: str) -> None:
    refusal = f"reticent: an app's name is 1 to 64 printable characters: got {name!r}\n"
    assert ask("apps", "add", name, code=2) == ("", refusal)


@pytest.mark.slow
def test_a_token_that_is_taken_back_ends_a_stream_of_a_running_phone(folder: Path, run: Run) -> None:
    with serving(folder, "quick.npz", "--first-day") as phone:
        address = phone.address
        token = run("apps", "add", "weather").stdout.strip()
        with connect(address, token) as connection:
            stream = connection.stream()
            next(stream)
            run("apps", "remove", "weather")
            with pytest.raises(Refused, match="the token was taken back"):
                list(stream)
        assert phone.stop()[0] == 0
