"""Errors of the engine.

ReticentError
└── LaunchError              a server or a command cannot be run as requested
    ├── ServerExited         a server exited when it should serve
    ├── ServerTimeout        a server did not start or exit in time; a TimeoutError, too
    └── CommandFailed        a command exited with an error
"""

from __future__ import annotations

from reticent.errors import ReticentError

__all__ = ["CommandFailed", "LaunchError", "ServerExited", "ServerTimeout"]


class LaunchError(ReticentError):
    """A server or a command cannot be run as requested."""


class ServerExited(LaunchError):
    """A server exited when it should serve; with the end of its log."""


class ServerTimeout(LaunchError, TimeoutError):
    """A server did not start or exit in time; with the end of its log."""


class CommandFailed(LaunchError):
    """A command exited with an error, or not in time; with its error output."""
