"""The process of a server: its signals, its output, its open files, its core dumps, its passphrase."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import getpass
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reticent.console.logs import change_level

__all__ = [
    "collect_garbage_rarely",
    "forbid_core_dumps",
    "handle_signals",
    "open_many_files",
    "passphrase",
    "print_line",
    "run",
]

_MAX_BYTES = 4096
"""Bytes of the longest passphrase."""

_FILES = 65536
"""Open files, and so connections, that a server requests from the system."""

_NEW_OBJECTS = 50_000
"""Objects that may be made before Python looks for garbage among them: some hundred calls in flight make 10,000."""

_PR_SET_DUMPABLE = 4
"""Of Linux's prctl."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def handle_signals() -> None:
    """Handle signals until `run` does: SIGTERM exits with code 0, SIGUSR1 and SIGUSR2 change the level of the log."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGUSR1, lambda *_: change_level(1))
    signal.signal(signal.SIGUSR2, lambda *_: change_level(-1))


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run a server until it ends.

    SIGINT or SIGTERM sets the event: the server should then stop. A second signal ends the process at once. SIGUSR1
    has it log in more detail, SIGUSR2 in less.
    """
    open_many_files()
    collect_garbage_rarely()
    asyncio.run(_run_until_signal(main))


async def _run_until_signal(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    ends = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        stop.set()
        for each in ends:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in ends:
        loop.add_signal_handler(each, on_signal)
    loop.add_signal_handler(signal.SIGUSR1, change_level, 1)
    loop.add_signal_handler(signal.SIGUSR2, change_level, -1)
    await main(stop)


def open_many_files() -> None:
    """Raise the limit of open files of this process as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if wanted > soft:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def collect_garbage_rarely() -> None:
    """Have Python search for cyclic garbage less often, and never among the objects that there are now.

    Its own settings cost a server a tenth of its time: they find the objects of the calls in flight, over and over.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 20, 20)


def forbid_core_dumps() -> None:
    """Let the system write no core dump of this process, whose memory holds secrets.

    Linux ignores the limit if it pipes dumps to a program, but then heeds the attribute. The attribute also keeps other
    processes of the same user from attaching a debugger. A process that this one starts inherits the limit only.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def passphrase(file: Path | None, *, new: bool = False) -> str:
    """The passphrase from a file, or else typed at the terminal.

    Args:
        file: A file of one line that only its owner can read.
        new: Ask twice, because the passphrase is new.
    """
    if file is not None:
        return _passphrase_in(file)
    if not sys.stdin or not sys.stdin.isatty():
        raise ValueError("there is no terminal to type the passphrase: name a file that holds it")
    typed = getpass.getpass("Passphrase: ")
    if not typed:
        raise ValueError("the passphrase must not be empty")
    if new and getpass.getpass("Repeat the passphrase: ") != typed:
        raise ValueError("the two passphrases differ")
    return typed


def _passphrase_in(path: Path) -> str:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path} is not a regular file")
        if state.st_uid != os.geteuid():
            raise ValueError(f"{path} must belong to the user who runs this program")
        if state.st_mode & _OTHERS:
            raise ValueError(
                f"other users can reach {path} (mode {stat.S_IMODE(state.st_mode):04o}): run chmod 600 on it"
            )
        line = file.read(_MAX_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")
    with contextlib.suppress(UnicodeDecodeError):  # the error would hold the passphrase
        if 0 < len(line) <= _MAX_BYTES and b"\n" not in line:
            return line.decode()
    raise ValueError(f"{path} must hold the passphrase: one line of UTF-8, at most {_MAX_BYTES} bytes")


def print_line(text: str) -> None:
    """Print a line at once; a server continues if nobody reads its output."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
