"""The program `reticent`: which subcommands there are, and how each run ends.

A role is imported only when its subcommand is called. A run ends with one of these codes:

    0    done
    1    done, and the answer is bad (an audit found a breach), or Reticent refuses
    2    not done: wrong usage, bad input, an unreadable file, an extra that is not installed
    130  stopped from the keyboard

Errors are one sentence on standard error.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reticent import __version__
from reticent.console.text import printable
from reticent.errors import MissingExtra, ReticentError

__all__ = ["BAD_ANSWER", "COMMANDS", "DONE", "NOT_DONE", "STOPPED", "Command", "main"]

DONE, BAD_ANSWER, NOT_DONE, STOPPED = 0, 1, 2, 130


@dataclass(frozen=True)
class Command:
    """One subcommand: where its cyclopts app is, and what must be installed for it."""

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
        help="Take part in counts of which nobody learns more than sums.",
        extra="cli",
    ),
    Command(
        name="certs",
        app="reticent.tls.cli:app",
        help="Make the certificates by which servers and analysts know each other.",
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
        help="Run an aggregation server: ask phones, collect and add up what they say, have it decided.",
        extra="agg",
    ),
    Command(
        name="count",
        app="reticent_analyst.cli:app",
        help="Count phones: plan a query, announce it, and read its release.",
        extra="analyst",
    ),
    Command(
        name="demo",
        app="reticent_sim.demo:app",
        help="Compare the checks on twenty people for a month.",
        extra="sim",
    ),
    Command(
        name="experiment",
        app="reticent_sim.experiments.cli:app",
        help="Make the figures and tables of the sources anew.",
        extra="sim",
    ),
)

# The libraries that each extra brings, as they are imported.
_CLI = ("cyclopts", "rich", "tzdata")
_SERVER = ("scipy", "grpc_health", "phe")
EXTRAS = {
    "plan": ("scipy",),
    "cli": _CLI,
    "analyst": (*_CLI, "scipy"),
    "agg": (*_CLI, "grpc_health"),
    "keys": (*_CLI, "grpc_health", "phe"),
    "server": (*_CLI, *_SERVER),
    "sim": (*_CLI, *_SERVER, "matplotlib"),
    "frames": ("pandas", "pyarrow"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `reticent` with these arguments, or the process's own, and returns its exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or gRPC writes lines of its own into the logs
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _say("stopped", STOPPED)
    except BrokenPipeError:  # whoever read our output has stopped: there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_DONE
    except OSError as error:
        return _say(f"{error.filename}: {error.strerror}" if error.filename else error, NOT_DONE)
    except (MissingExtra, ValueError) as error:
        return _say(error, NOT_DONE)
    except ReticentError as error:
        return _say(error, BAD_ANSWER)
    return code


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:  # the one answer that needs no extra
        print(f"reticent {__version__}")  # noqa: T201  # printing is what was asked
        return DONE
    called = next((each for each in COMMANDS if arguments[:1] == [each.name]), None)
    wanted = "the command line" if called is None else f"reticent {called.name}"
    _require("cli" if called is None else called.extra, wanted)
    try:
        # Cyclopts is itself an extra, so the module that imports it is imported here.
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
    """What to tell the user about a library that only some uses of a subcommand ask for."""
    library = (error.name or "").partition(".")[0]
    extra = next((extra for extra, brought in EXTRAS.items() if library in brought), None)
    return error if extra is None else MissingExtra(wanted, extra, library)


def _say(error: Exception | str, code: int) -> int:
    print(f"reticent: {printable(str(error))}", file=sys.stderr)  # noqa: T201  # the user's own terminal, which obeys what others sent
    return code


if __name__ == "__main__":
    sys.exit(main())
