"""What can go wrong on the key server, as one family.

    ReticentError
    └── KeysError
        ├── KeyFileError       secrets at rest that are damaged, foreign or too new
        │   └── WrongPassphrase  or sealed with another passphrase
        ├── NoServer           a folder in which no key server was begun
        └── JournalError       a journal that is damaged, foreign, of another version or of another server

Bad arguments raise `ValueError`; these are about facts that arise while running.
"""

from reticent.errors import ReticentError

__all__ = ["JournalError", "KeyFileError", "KeysError", "NoServer", "WrongPassphrase"]


class KeysError(ReticentError):
    """Something on the key server's side went wrong."""


class KeyFileError(KeysError):
    """The bytes do not hold the secrets that they should, or these cannot be read."""


class WrongPassphrase(KeyFileError):
    """The secrets were sealed with another passphrase."""


class NoServer(KeysError, ValueError):
    """There is no key server where one was named: a bad argument as well."""


class JournalError(KeysError):
    """The journal cannot be read, or belongs to another server."""
