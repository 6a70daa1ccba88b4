"""A program as a process: how it ends, what it says when it begins, and where it has its passphrase from."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

__all__ = ["open_many_files", "passphrase", "print_line", "run"]

_MAX_BYTES = 4096
"""Bytes of a passphrase."""

_FILES = 65536
"""Open files, and so connections, that a server asks the system for."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run a server until it ends.

    SIGINT and SIGTERM set the event, on which it should. A second one ends the process at once.
    """
    open_many_files()
    asyncio.run(_until_told(main))


async def _until_told(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    ends = (signal.SIGINT, signal.SIGTERM)

    def told() -> None:
        stop.set()
        for each in ends:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in ends:
        loop.add_signal_handler(each, told)
    await main(stop)


def open_many_files() -> None:
    """Let this process have as many connections as the system allows it."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    if wanted > least:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def passphrase(file: Path | None, *, new: bool = False) -> str:
    """The passphrase that a file holds, or else the one that whoever sits at the terminal types.

    Args:
        file: Its one line is the passphrase. Nobody but the user may be able to read it.
        new: It is being chosen: it is asked for twice.
    """
    if file is not None:
        return _passphrase_in(file)
    if not sys.stdin or not sys.stdin.isatty():
        raise ValueError("there is no terminal to ask for the passphrase: name a file that holds it")
    typed = getpass.getpass("Passphrase: ")
    if not typed:
        raise ValueError("the passphrase must not be empty")
    if new and getpass.getpass("The same again: ") != typed:
        raise ValueError("the two passphrases are not the same")
    return typed


def _passphrase_in(path: Path) -> str:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise ValueError(f"{path} is no file")
        if state.st_uid != os.geteuid():
            raise ValueError(f"{path} must belong to the user that runs this, and does not")
        if state.st_mode & _OTHERS:
            raise ValueError(f"{path} can be reached by others (mode {stat.S_IMODE(state.st_mode):04o}): chmod 600 it")
        line = file.read(_MAX_BYTES + 2).removesuffix(b"\n").removesuffix(b"\r")
    with contextlib.suppress(UnicodeDecodeError):  # which would carry the passphrase
        if 0 < len(line) <= _MAX_BYTES and b"\n" not in line:
            return line.decode()
    raise ValueError(f"{path} must hold one line, the passphrase, in UTF-8, of no more than {_MAX_BYTES} bytes")


def print_line(text: str) -> None:
    """Tell whoever started the process a line, at once; a server goes on when nobody listens."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
