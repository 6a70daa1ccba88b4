"""How a server's process ends, and where it takes its passphrase from."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.console.process import handle_signals, passphrase

SERVER = """
    import asyncio, sys
    from reticent.console.process import print_line, run

    async def main(stop):
        print_line("ready")
        await stop.wait()
        print_line("stopping")
        await asyncio.sleep(float(sys.argv[1]))
        print_line("stopped")

    run(main)
    print_line("done")
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_signals_are_handled_before_a_server_runs() -> None:
    """Such as while a standby waits."""
    handled = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before, level = [signal.getsignal(each) for each in handled], logging.getLogger().level
    try:
        logging.getLogger().setLevel("INFO")
        handle_signals()
        levels = []
        for each in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2):
            os.kill(os.getpid(), each)
            levels.append(logging.getLogger().level)
        assert levels == [logging.DEBUG, logging.INFO, logging.WARNING]
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert not ended.value.code
    finally:
        logging.getLogger().setLevel(level)
        for each, handler in zip(handled, before, strict=True):
            signal.signal(each, handler)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_in_good_order(how: signal.Signals) -> None:
    with start(SERVER, "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(how)
        out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("stopping\nstopped\ndone\n", "", 0)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_who_asks_twice_need_not_wait(how: signal.Signals) -> None:
    with start(SERVER, "1000") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(how)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(how)
        process.communicate(timeout=20)
    assert process.returncode == -how


def test_what_a_server_fails_of_is_not_lost() -> None:
    code = """
        from reticent.console.process import run

        async def main(stop):
            raise KeyError("lost")

        run(main)
    """
    with start(code) as process:
        _, err = process.communicate(timeout=20)
    assert "KeyError: 'lost'" in err
    assert process.returncode == 1


def test_a_server_goes_on_when_nobody_listens() -> None:
    with start(SERVER, "0") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        err = process.stderr.read()
        process.wait(timeout=20)
    assert "Traceback" not in err


def test_a_server_may_have_many_connections() -> None:
    code = """
        import resource
        from reticent.console.process import run

        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        async def main(stop):
            print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

        run(main)
    """
    with start(code) as process:
        out, _ = process.communicate(timeout=20)
    assert int(out) > 1000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "passphrase"
    path.touch(mode=0o600)
    return path


@pytest.mark.parametrize(
    ("content", "held"),
    [
        (b"one two", "one two"),
        (b"one two\n", "one two"),
        (b"one two\r\n", "one two"),
        (b" \xc3\xa4 \n", " ä "),
        (b"a" * 4096, "a" * 4096),
        (b"a\x0cb\xe2\x80\xa8c\n", "a\x0cb\u2028c"),
    ],
)
def test_a_passphrase_is_the_line_of_a_file(file: Path, content: bytes, held: str) -> None:
    file.write_bytes(content)
    assert passphrase(file) == held


@pytest.mark.parametrize("content", [b"", b"\n", b"one\ntwo\n", b"\xff\xfesecret", b"a" * 4097, b"\nsecret", b"a\n\n"])
def test_a_file_that_holds_no_passphrase_is_refused_without_showing_it(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"passphrase must hold the passphrase: one line") as caught:
        passphrase(file)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644, 0o666, 0o777])
def test_a_file_that_others_can_reach_is_refused(file: Path, mode: int) -> None:
    file.write_text("secret")
    file.chmod(mode)
    with pytest.raises(ValueError, match=rf"\(mode {mode:04o}\): run chmod 600 on it"):
        passphrase(file)


def test_a_file_that_cannot_be_written_will_do(file: Path) -> None:
    file.write_text("secret")
    file.chmod(0o400)
    assert passphrase(file) == "secret"


def test_a_file_of_somebody_else_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("secret")
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(ValueError, match="must belong to the user"):
        passphrase(file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        passphrase(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        passphrase(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ValueError, match="pipe is not a regular file"):  # and nobody waits for somebody to write to it
        passphrase(tmp_path / "pipe")


def test_without_a_terminal_a_file_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(ValueError, match="no terminal"):
            passphrase(None)
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="no terminal"):
        passphrase(None)


ASK = """
    import sys
    from reticent.console.process import passphrase

    try:
        print("GOT", passphrase(None, new=sys.argv[1] == "new").upper())
    except ValueError as error:
        print("REFUSED", error)
"""


@pytest.mark.parametrize(
    ("how", "typed", "answer"),
    [
        ("old", ["a long one"], "GOT A LONG ONE"),
        ("old", [""], "REFUSED the passphrase must not be empty"),
        ("new", ["a long one", "a long one"], "GOT A LONG ONE"),
        ("new", ["a long one", "another"], "REFUSED the two passphrases differ"),
    ],
)
def test_who_sits_at_the_terminal_is_asked(how: str, typed: list[str], answer: str) -> None:
    """And what is typed does not show."""
    shown = "".join(at_a_terminal(how, typed))
    assert answer in shown
    assert "a long one" not in shown


def at_a_terminal(how: str, typed: list[str]) -> Iterator[str]:
    """What is shown to somebody who answers each question."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", textwrap.dedent(ASK), how]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        waiting = list(typed)
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1000).decode():
                yield part
                if part.rstrip(" ").endswith(":"):
                    time.sleep(0.1)  # until it no longer shows what is typed
                    os.write(ours, f"{waiting.pop(0)}\n".encode())
        process.wait(timeout=20)
    os.close(ours)


LOGGING = """
    import logging
    from reticent.console.logs import start_logging
    from reticent.console.process import print_line, run

    async def main(stop):
        print_line("ready")
        await stop.wait()
        for level in ("debug", "info", "warning", "error"):
            logging.getLogger("test").log(getattr(logging, level.upper()), "a line")

    start_logging("info", False)
    run(main)
"""


@pytest.mark.parametrize(
    ("signals", "levels", "written"),
    [
        (["USR1"], ["debug"], ["debug", "info", "warning", "error"]),
        (["USR1", "USR1", "USR2"], ["debug", "debug", "info"], ["info", "warning", "error"]),
        (["USR2"] * 3 + ["USR1"], ["warning", "error", "error", "warning"], ["warning", "error"]),
    ],
    ids=["more", "more and less", "less and more"],
)
def test_a_signal_changes_the_detail_of_the_logs(signals: list[str], levels: list[str], written: list[str]) -> None:
    with start(LOGGING) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        for name, level in zip(signals, levels, strict=True):
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.stderr.readline().endswith(f" {level} reticent.console.logs: the log level is {level}\n")
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read().splitlines()
        process.wait(timeout=20)
    assert [line.split()[1] for line in rest] == written


GARBAGE = """
    import gc, weakref
    from reticent.console.process import run

    class Node:
        pass

    async def main(stop):
        examined = len(gc.get_objects())
        node = Node()
        node.itself = node
        left = weakref.ref(node)
        del node
        kept = []
        while left() is not None and len(kept) < 1_000_000:
            kept.append([])
        print(gc.get_freeze_count() > 10 * examined, len(kept))

    run(main)
"""


def test_a_server_seldom_looks_for_garbage_and_finds_it() -> None:
    with start(GARBAGE) as process:
        printed, errors = process.communicate(timeout=60)
    assert (printed.split()[0], errors) == ("True", "")
    assert 10_000 < int(printed.split()[1]) <= 100_000
