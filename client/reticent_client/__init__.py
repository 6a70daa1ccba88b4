"""What a phone runs and an app embeds: policies that decide what of a user's stream of contexts may be released.

>>> from reticent_client import MaskIt, MarkovChain, hybrid
>>> chain = MarkovChain(["cafe", "hospital"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
>>> policy = hybrid(chain, sensitive={"hospital"}, delta=0.25)
>>> round(policy.utility, 3)
0.667
"""

from reticent_client.adversary import Adversary
from reticent_client.audit import Audit, Gain, audit, breaches
from reticent_client.chain import MarkovChain
from reticent_client.checks import (
    adaptive,
    ceiling,
    hybrid,
    mask_sensitive,
    optimal,
    probabilistic,
    simulatable,
)
from reticent_client.errors import ClientError, FileError, ImpossibleOutput, StepError, TooLarge
from reticent_client.habits.daily import Daily, LearnedDay, LearningAdversary, daily
from reticent_client.habits.staleness import Recent
from reticent_client.maskit import MaskIt
from reticent_client.policy import Policy
from reticent_client.problem import TOLERANCE, split_delta
from reticent_client.report import Report
from reticent_client.schedule import Schedule
from reticent_client.store import FileStore, Store

__all__ = [
    "TOLERANCE",
    "Adversary",
    "Audit",
    "ClientError",
    "Daily",
    "FileError",
    "FileStore",
    "Gain",
    "ImpossibleOutput",
    "LearnedDay",
    "LearningAdversary",
    "MarkovChain",
    "MaskIt",
    "Policy",
    "Recent",
    "Report",
    "Schedule",
    "StepError",
    "Store",
    "TooLarge",
    "adaptive",
    "audit",
    "breaches",
    "ceiling",
    "daily",
    "hybrid",
    "mask_sensitive",
    "optimal",
    "probabilistic",
    "simulatable",
    "split_delta",
]
