"""What can go wrong on a phone, as one family.

    ReticentError
    └── ClientError
        ├── StepError          a reading for a step that is over, repeated or not of this day
        ├── FileError          a chain or policy file that is damaged, foreign or too new
        ├── ImpossibleOutput   a released stream that the chain and the policy cannot produce
        └── TooLarge           an exact search that would not end on a chain of this size

Bad arguments raise `ValueError`; these are about facts that arise while running.
"""

from reticent.errors import ReticentError


class ClientError(ReticentError):
    """Something on the phone's side went wrong."""


class StepError(ClientError):
    """A reading came for a step that is over, was seen before, or lies outside the day."""


class FileError(ClientError):
    """A file does not hold what its reader can trust."""


class ImpossibleOutput(ClientError):
    """An adversary was asked about outputs that cannot occur."""


class TooLarge(ClientError):
    """An exact search was asked for on a chain that is too large for it."""
