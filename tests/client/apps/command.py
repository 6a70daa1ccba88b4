"""`reticent phone run` as a process, and how tests run it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("reticent")
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC"}
DARK = (
    "nothing is released until tomorrow: the store does not say what was released today "
    "(start a new phone with --first-day)"
)
QUICK = 43_200
"""Steps a day: one every two seconds."""

Ask = Callable[..., tuple[str, str]]
Run = Callable[..., subprocess.CompletedProcess[str]]


class Serving:
    """The program at work."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        address = () if "--address" in arguments else ("--address", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [PROGRAM, "phone", "run", *arguments, *address],
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
