"""What can go wrong on a phone, as one family.

    ReticentError
    └── ClientError
        ├── StepError          a reading for a step that is over, repeated or not of this day
        ├── FileError          a chain or policy file that is damaged, foreign or too new
        ├── ImpossibleOutput   a released stream that the chain and the policy cannot produce
        ├── TooFewDays         too few days are known to learn habits from (habits.learning)
        ├── TooLarge           an exact search that would not end on a chain of this size
        ├── Occupied           another process runs the same phone (serving.database)
        ├── UnknownApp         there is no app of this name (serving.apps)
        ├── LeftBehind, Closed  a stream cannot be read on (serving.stream)
        ├── Declined           a phone does not take part in a query (counting.conditions)
        ├── NotJoined, AlreadyJoined, BadMembership  about being one of those that are counted (counting.enrolment)
        ├── ForeignAnswer      a server's answer that is not about this phone (counting.participant)
        └── Refused            the phone does not answer this app, or not this question (serving.connection)

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
