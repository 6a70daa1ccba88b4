"""What can go wrong on the key server, as one family.

    ReticentError
    └── KeysError
        └── KeyFileError       a key pair at rest that is damaged, foreign or too new
            └── WrongPassphrase  or sealed with another passphrase

Bad arguments raise `ValueError`; these are about facts that arise while running.
"""

from reticent.errors import ReticentError

__all__ = ["KeyFileError", "KeysError", "WrongPassphrase"]


class KeysError(ReticentError):
    """Something on the key server's side went wrong."""


class KeyFileError(KeysError):
    """The bytes do not hold a key pair that can be read."""


class WrongPassphrase(KeyFileError):
    """The key pair was sealed with another passphrase."""
