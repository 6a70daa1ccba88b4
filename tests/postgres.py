"""A PostgreSQL server of the tests' own: one throw-away cluster a session, one database a test."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
import pytest

USER, PASSWORD = "reticent", "correct horse battery"  # of a server that dies with the tests
SETTINGS = (
    "fsync=off",  # what survives a loss of power is PostgreSQL's business
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "shared_buffers=16MB",
    "deadlock_timeout=50ms",
    "timezone=Asia/Kolkata",  # nothing may depend on it
)
STARTED = 60.0
"""Seconds until it answers."""

_numbers = itertools.count()


@dataclass
class Server:
    """A server on a folder; it can be stopped and started again at the same address."""

    folder: Path
    port: int
    programs: Path
    settings: Sequence[str] = SETTINGS

    def start(self) -> None:
        """Start it, and wait until it answers; after a kill, when its processes have ended."""
        options = " ".join(f"-c {each}" for each in (*self.settings, f"unix_socket_directories={self.folder}"))
        deadline = time.monotonic() + STARTED
        while True:
            try:
                self._control("start", "-w", "-t", f"{STARTED:.0f}", "-o", f"-p {self.port} {options}")
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def stop(self, mode: str = "fast") -> None:
        """Stop it; mode "immediate" is a crash."""
        self._control("stop", "-w", "-m", mode)

    def kill(self) -> None:
        """Kill it at once, with all its processes."""
        main = self.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while _answers(self.port) or any(_runs(int(pid)) for pid in children):
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """Of the main process, while it runs."""
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def url(self, name: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{USER}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/{name}"

    def run(self, statement: str) -> None:
        """Run a statement outside of any transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The address of a new database, which is dropped afterwards."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def _control(self, command: str, *arguments: str) -> None:
        log = self.folder / "log"
        _run(self.programs / "pg_ctl", "-D", self.folder / "data", "-l", log, "-s", command, *arguments)


@cache
def programs() -> Path | None:
    """The folder of PostgreSQL's programs; None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).resolve().parent if named else None


def new_server(settings: Sequence[str] = SETTINGS) -> Server:
    """A server with a cluster of its own, which is stopped and deleted when this process ends, in whatever way."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    (folder / "password").write_text(PASSWORD)
    if os.geteuid() == 0:
        for path in (folder, folder / "password"):
            shutil.chown(path, _user())
    data, password = folder / "data", folder / "password"
    _run(found / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--pwfile", password, "-N")
    server = Server(folder, _free_port(), found, settings)
    _end_with_this_process(server)
    server.start()
    return server


@cache
def server() -> Server:
    """The server of this session."""
    return new_server()


def _run(*command: str | Path) -> None:
    """Run a program as an unprivileged user."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile("w+") as output:  # a server inherits it: a pipe would stay open
        done = subprocess.run(
            [*_unprivileged(), *map(str, command)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=environment,
        )
        output.seek(0)
        assert done.returncode == 0, f"{command}: {output.read()}"


@cache
def _user() -> str:
    users = {line.partition(":")[0] for line in Path("/etc/passwd").read_text().splitlines()}
    return "postgres" if "postgres" in users else "nobody"


def _end_with_this_process(server: Server) -> None:
    """Have another process stop a server and delete its folder when the pipe from this one closes."""
    stop = [*_unprivileged(), str(server.programs / "pg_ctl"), "-D", str(server.folder / "data"), "-m", "immediate"]
    script = 'folder=$1; shift; cat; "$@" stop; rm -rf "$folder"'
    _guards.append(
        subprocess.Popen(
            ["sh", "-c", script, "sh", str(server.folder), *stop],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # an interrupt from the keyboard is not for it
        )
    )


_guards: list[subprocess.Popen[bytes]] = []


def _unprivileged() -> list[str]:
    """The beginning of a command that runs as an unprivileged user: PostgreSQL refuses to run as root."""
    return ["runuser", "-u", _user(), "--"] if os.geteuid() == 0 else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _runs(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
