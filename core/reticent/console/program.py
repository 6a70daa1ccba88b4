"""The program `reticent`: which subcommands there are, and how each run ends.

A role is imported only when its subcommand is called. A run ends with an `ExitCode`, and an error is one sentence on
standard error.
"""

import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from reticent import __version__
from reticent.console.text import print_note
from reticent.errors import ExitCode, MissingExtra, ReticentError

__all__ = ["COMMANDS", "Command", "main"]

_BAD_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
_IN_USE = {errno.EADDRINUSE, errno.EBUSY}


@dataclass(frozen=True)
class Command:
    """A subcommand: its cyclopts app, and the extra that it needs."""

    name: str
    app: str  # "module:attribute"
    help: str
    extra: str


COMMANDS = (
    Command(
        name="mask",
        app="reticent_client.cli.mask:app",
        help="Compute, run, explain and audit what a phone releases or suppresses.",
        extra="cli",
    ),
    Command(
        name="phone",
        app="reticent_client.cli.phone:app",
        help="Run a phone: mask contexts, serve apps, take part in counts.",
        extra="cli",
    ),
    Command(
        name="certs",
        app="reticent.tls.cli:app",
        help="Make the certificates of servers and analysts.",
        extra="cli",
    ),
    Command(
        name="keys",
        app="reticent_keys.cli:app",
        help="Run a key server: enrol phones, countersign queries, decrypt sums.",
        extra="keys",
    ),
    Command(
        name="agg",
        app="reticent_agg.cli:app",
        help="Run an aggregation server: announce queries, collect and add contributions.",
        extra="agg",
    ),
    Command(
        name="ads",
        app="reticent_agg.ads.cli:app",
        help="Run an ad service: load a catalogue and rates, and send phones ads for a generalised context.",
        extra="agg",
    ),
    Command(
        name="count",
        app="reticent_analyst.cli:app",
        help="Count phones: plan a query, announce it, and read its release.",
        extra="analyst",
    ),
    Command(
        name="rates",
        app="reticent_analyst.rates.cli:app",
        help="Estimate click-through rates from private counts, and compare them.",
        extra="analyst",
    ),
    Command(
        name="demo",
        app="reticent_sim.demo:app",
        help="Simulate a thousand phones for some days, and write a report.",
        extra="sim",
    ),
    Command(
        name="sandbox",
        app="reticent_sim.sandbox:app",
        help="Run two servers, phones and an analyst on this machine, to try commands with.",
        extra="sim",
    ),
    Command(
        name="simulate",
        app="reticent_sim.simulator:app",
        help="Simulate thousands of phones with real servers, and write a report.",
        extra="sim",
    ),
    Command(
        name="experiment",
        app="reticent_sim.cli:app",
        help="Reproduce the figures and tables of the sources.",
        extra="sim",
    ),
)

# The libraries of each extra, by the names under which they are imported.
_CLI = ("cyclopts", "rich", "tzdata")
_SERVER = ("scipy", "grpc_health", "phe", "prometheus_client", "psycopg")
EXTRAS = {
    "plan": ("scipy",),
    "cli": _CLI,
    "analyst": (*_CLI, "scipy"),
    "plot": ("matplotlib",),
    "agg": (*_CLI, "grpc_health", "prometheus_client"),
    "keys": (*_CLI, "grpc_health", "phe", "prometheus_client"),
    "postgres": ("psycopg",),
    "server": (*_CLI, *_SERVER),
    "sim": (*_CLI, *_SERVER, "matplotlib"),
    "cluster": (*_CLI, *_SERVER, "matplotlib", "ray"),
    "frames": ("pandas", "pyarrow"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `reticent` with these arguments, or the process's own; returns the exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC would write its own lines into the logs
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _open_missing_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  # every end has a code
        code = _ended_by(error)
    for stream in (sys.stdout, sys.stderr):
        _discard_lost_text(stream)
    return code


def _open_missing_streams() -> None:
    """Discard the output if the parent process has closed the stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(_null_device(), "w"))


def _discard_lost_text(stream: TextIO) -> None:
    """Discard text that cannot be written. Otherwise the interpreter fails at its end, with an exit code of its own."""
    try:
        stream.flush()
    except OSError:
        os.dup2(_null_device(), stream.fileno())


def _null_device() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _ended_by(error: BaseException) -> ExitCode:
    """Report what has ended a run; returns the exit code."""
    code = _code_of(error)
    if code is ExitCode.STOPPED:
        print_note("stopped")
    elif code is ExitCode.DEFECT:
        sys.excepthook(type(error), error, error.__traceback__)  # a traceback, or a line in the log of a server
    elif code not in {ExitCode.DONE, ExitCode.BROKEN_PIPE}:
        print_note(_sentence(error))
    return code


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and not isinstance(error, ReticentError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _code_of(error: BaseException) -> ExitCode:
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.STOPPED
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):  # rich raises SystemExit
        return ExitCode.BROKEN_PIPE
    if isinstance(error, SystemExit) and not error.code:  # a server was stopped before it served
        return ExitCode.DONE
    if isinstance(error, ReticentError):
        return error.exit_code
    if isinstance(error, OSError) and not isinstance(error, _BAD_FILE):
        return ExitCode.IN_USE if error.errno in _IN_USE else ExitCode.SYSTEM
    return ExitCode.BAD_INPUT if isinstance(error, ValueError | OSError) else ExitCode.DEFECT


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:  # needs no extra
        print(f"reticent {__version__}")  # noqa: T201  # the output of --version
        return ExitCode.DONE
    called = next((each for each in COMMANDS if arguments[:1] == [each.name]), None)
    wanted = "the command line" if called is None else f"reticent {called.name}"
    _require("cli" if called is None else called.extra, wanted)
    try:
        # cyclopts is in an extra: import it only now.
        run = _load("reticent.console._program:run")
        app = None if called is None else _load(called.app)
        code: int = run(COMMANDS, called, app, arguments)
    except ModuleNotFoundError as error:
        raise _explained(error, wanted) from error
    return code


def _load(place: str) -> Any:
    module, attribute = place.split(":")
    return getattr(importlib.import_module(module), attribute)


def _require(extra: str, wanted: str) -> None:
    for library in EXTRAS[extra]:
        if importlib.util.find_spec(library) is None:
            raise MissingExtra(wanted, extra, library)


def _explained(error: ModuleNotFoundError, wanted: str) -> ImportError:
    """The error for a library that only some uses of a subcommand need."""
    library = (error.name or "").partition(".")[0]
    extra = next((extra for extra, brought in EXTRAS.items() if library in brought), None)
    return error if extra is None else MissingExtra(wanted, extra, library)


if __name__ == "__main__":
    sys.exit(main())
