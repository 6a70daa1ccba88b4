"""The exceptions that Reticent raises on purpose, and the exit codes of its commands.

    ReticentError                a proper request that cannot be fulfilled
    └── MissingExtra             it needs an extra that is not installed

Every role derives its own family from `ReticentError`. Bad arguments are a plain `ValueError`.
"""

from enum import IntEnum

__all__ = ["ExitCode", "MissingExtra", "ReticentError"]


class ExitCode(IntEnum):
    """The exit code of a command: the same codes for all commands. docs/exit-codes.md explains them."""

    DONE = 0
    BAD_ANSWER = 1
    """The command succeeded, and its answer is bad."""
    BAD_INPUT = 2
    """Wrong usage, a bad argument, or a file that is missing, damaged, foreign or of another version."""
    REFUSED = 3
    """A proper request was refused, by a server, a budget, the user or the state of the phone."""
    RETRY_LATER = 4
    """A server was unreachable or busy, or the time ran out."""
    IN_USE = 5
    """Another process runs the store or the server, or the address is taken."""
    WRONG_PASSPHRASE = 6
    SYSTEM = 7
    """The system failed: a full disk, too many open files."""
    DEFECT = 70
    """A mistake in Reticent; a traceback says where."""
    STOPPED = 130
    """Stopped from the keyboard."""
    BROKEN_PIPE = 141
    """The reader of the output ended first."""


class ReticentError(Exception):
    """The base of all exceptions of Reticent."""

    exit_code = ExitCode.REFUSED
    """The exit code of a command that raises this."""


class MissingExtra(ReticentError, ImportError):
    """A command or function needs a library of an extra.

    Args:
        wanted: The command or function, as the user calls it.
        extra: The extra that brings the library.
        module: The library.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, wanted: str, extra: str, module: str) -> None:
        super().__init__(f"{wanted} needs {module}: pip install 'reticent[{extra}]'", name=module)
        self.extra = extra
