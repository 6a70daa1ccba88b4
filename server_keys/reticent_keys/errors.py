"""The errors of the key server.

    ReticentError
    └── KeysError
        ├── KeyFileError       a file with secrets is missing, damaged, foreign or too new
        │   └── WrongPassphrase  or sealed with another passphrase
        ├── NoServer           a folder holds no key server
        └── JournalError       a journal is damaged, foreign, of another version or of another server

Bad arguments raise `ValueError`.
"""

from reticent.errors import ReticentError

__all__ = ["JournalError", "KeyFileError", "KeysError", "NoServer", "WrongPassphrase"]


class KeysError(ReticentError):
    """The key server failed."""


class KeyFileError(KeysError):
    """A file does not hold the secrets that it should, or they cannot be read."""


class WrongPassphrase(KeyFileError):
    """The secrets were sealed with another passphrase."""


class NoServer(KeysError, ValueError):
    """A folder holds no key server: a bad argument as well."""


class JournalError(KeysError):
    """The journal cannot be read, or belongs to another server."""
