"""Errors of the engine.

ReticentError
├── LaunchError              a server or a command cannot be run as requested
│   ├── ServerExited         a server exited when it should serve
│   ├── ServerTimeout        a server did not start or exit in time; a TimeoutError, too
│   └── CommandFailed        a command exited with an error
└── WorkerDied               a worker of a simulation ended too early
"""

from __future__ import annotations

from typing import Any

from reticent.errors import ExitCode, ReticentError

__all__ = ["CommandFailed", "LaunchError", "ServerExited", "ServerTimeout", "WorkerDied"]


class LaunchError(ReticentError):
    """A server or a command cannot be run as requested."""


class ServerExited(LaunchError):
    """A server exited when it should serve; with the end of its log."""


class ServerTimeout(LaunchError, TimeoutError):
    """A server did not start or exit in time; with the end of its log."""


class CommandFailed(LaunchError):
    """A command exited with an error, or not in time; with its error output."""


class WorkerDied(ReticentError):
    """A worker ended before it replied. The other workers still run.

    Args:
        number: Of the worker.
        how: It ended; the rest of the sentence.
    """

    exit_code = ExitCode.SYSTEM

    def __init__(self, number: int, how: str) -> None:
        super().__init__(f"worker {number} {how}")
        self.number, self.how = number, how
        self.replies: dict[int, Any] = {}
        """The replies of the other workers to the same call."""
