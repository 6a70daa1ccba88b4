"""The errors of the key server.

    ReticentError
    └── KeysError
        ├── KeyFileError       a file with secrets is missing, damaged, foreign or too new
        │   └── WrongPassphrase  or sealed with another passphrase
        ├── NoServer           a folder holds no key server
        └── JournalError       a journal is damaged, foreign, of another version or of another server

Bad arguments raise `ValueError`.
"""

from reticent.errors import ExitCode, ReticentError

__all__ = ["JournalError", "KeyFileError", "KeysError", "NoServer", "WrongPassphrase"]


class KeysError(ReticentError):
    """The key server failed."""


class KeyFileError(KeysError):
    """A file does not hold the secrets that it should, or they cannot be read."""

    exit_code = ExitCode.BAD_INPUT


class WrongPassphrase(KeyFileError):
    """The secrets were sealed with another passphrase."""

    exit_code = ExitCode.WRONG_PASSPHRASE


class NoServer(KeysError, ValueError):
    """A folder holds no key server: a bad argument as well."""

    exit_code = ExitCode.BAD_INPUT


class JournalError(KeysError):
    """The journal cannot be read, or belongs to another server."""

    exit_code = ExitCode.BAD_INPUT
