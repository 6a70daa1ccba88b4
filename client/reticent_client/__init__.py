"""What a phone runs and an app embeds: policies that decide what of a user's stream of contexts may be released.

>>> from reticent_client import MaskIt, MarkovChain, hybrid
>>> chain = MarkovChain(["cafe", "hospital"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
>>> policy = hybrid(chain, sensitive={"hospital"}, delta=0.25)
>>> round(policy.utility, 3)
0.667
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reticent_client.adversary import Adversary
from reticent_client.audit import Audit, Gain, audit, breaches
from reticent_client.chain import MarkovChain
from reticent_client.errors import ClientError, FileError, ImpossibleOutput, StepError, TooLarge
from reticent_client.habits.daily import Daily, LearnedDay, LearningAdversary, daily
from reticent_client.habits.staleness import Recent
from reticent_client.maskit import MaskIt
from reticent_client.planning.checks import (
    adaptive,
    ceiling,
    hybrid,
    mask_sensitive,
    optimal,
    probabilistic,
    simulatable,
)
from reticent_client.policy import Policy
from reticent_client.problem import TOLERANCE, split_delta
from reticent_client.report import Report
from reticent_client.schedule import Schedule
from reticent_client.store import FileStore, Store

if TYPE_CHECKING:
    from reticent_client.counting.conditions import Declined, Participation, Situation
    from reticent_client.counting.participant import Participant
    from reticent_client.serving.broker import Broker
    from reticent_client.serving.connection import Connection, connect
    from reticent_client.serving.database import SqliteStore
    from reticent_client.serving.phone import Phone
    from reticent_client.serving.wire import Step

__all__ = [
    "TOLERANCE",
    "Adversary",
    "Audit",
    "Broker",
    "ClientError",
    "Connection",
    "Daily",
    "Declined",
    "FileError",
    "FileStore",
    "Gain",
    "ImpossibleOutput",
    "LearnedDay",
    "LearningAdversary",
    "MarkovChain",
    "MaskIt",
    "Participant",
    "Participation",
    "Phone",
    "Policy",
    "Recent",
    "Report",
    "Schedule",
    "Situation",
    "SqliteStore",
    "Step",
    "StepError",
    "Store",
    "TooLarge",
    "adaptive",
    "audit",
    "breaches",
    "ceiling",
    "connect",
    "daily",
    "hybrid",
    "mask_sensitive",
    "optimal",
    "probabilistic",
    "simulatable",
    "split_delta",
]

_ON_USE = {
    "Broker": "serving.broker",
    "Connection": "serving.connection",
    "Declined": "counting.conditions",
    "Participant": "counting.participant",
    "Participation": "counting.conditions",
    "Phone": "serving.phone",
    "Situation": "counting.conditions",
    "SqliteStore": "serving.database",
    "Step": "serving.wire",
    "connect": "serving.connection",
}


def __getattr__(name: str) -> Any:
    """What speaks over the wire is imported when it is used: whoever computes policies needs no gRPC."""
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"reticent_client.{_ON_USE[name]}"), name)
