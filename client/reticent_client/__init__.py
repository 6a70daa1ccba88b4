"""The library of a phone, for apps to embed: policies decide which of a user's contexts may be released.

>>> from reticent_client import MaskIt, MarkovChain, hybrid
>>> chain = MarkovChain(["cafe", "hospital"], [0.5, 0.5], [[[0.5, 0.5], [0.5, 0.5]]])
>>> policy = hybrid(chain, sensitive={"hospital"}, delta=0.25)
>>> round(policy.utility, 3)
0.667
"""

from typing import TYPE_CHECKING

from reticent.errors import ReticentError
from reticent.lazy_imports import lazy_names
from reticent_client.errors import (
    AdsNotAllowed,
    AlreadyJoined,
    AppRefused,
    BadMembership,
    ClientError,
    CounterNotAllowed,
    CounterOutOfBounds,
    Declined,
    FileError,
    ForeignReply,
    ImpossibleOutput,
    NotJoined,
    Reason,
    StepError,
    TooFewDays,
    TooLarge,
    TooManyReports,
    UnknownApp,
)
from reticent_client.habits.daily import Daily, LearnedDay, LearningAdversary, daily
from reticent_client.mask.adversary import Adversary
from reticent_client.mask.audit import Audit, Gain, audit, breaches
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.checks import registry
from reticent_client.mask.checks.optimal import ceiling
from reticent_client.mask.checks.registry import *  # noqa: F403  # the registry says which checks there are
from reticent_client.mask.maskit import MaskIt
from reticent_client.mask.policy import Policy
from reticent_client.mask.problem import TOLERANCE, split_delta
from reticent_client.mask.report import MaskReport
from reticent_client.mask.schedule import Schedule
from reticent_client.mask.staleness import Recent
from reticent_client.mask.state_store import FileStore, Store

if TYPE_CHECKING:
    from reticent.address import AddressError
    from reticent.protocol.invitation import Invitation
    from reticent.storage.sql import InUse
    from reticent_client.ads.messages import ShownAd
    from reticent_client.ads.settings import AdSettings
    from reticent_client.apps.broker import Broker
    from reticent_client.apps.connection import Connection, connect
    from reticent_client.apps.messages import Step
    from reticent_client.counting.consent import AppReports, Participation, Situation
    from reticent_client.counting.participant import Participant
    from reticent_client.counting.records import ContributionState
    from reticent_client.counting.session import Round
    from reticent_client.phone import Phone
    from reticent_client.store import PhoneStore
else:  # computing policies needs no gRPC
    __getattr__ = lazy_names(
        __name__,
        {
            "AdSettings": "reticent_client.ads.settings",
            "AddressError": "reticent.address",
            "AppReports": "reticent_client.counting.consent",
            "Broker": "reticent_client.apps.broker",
            "Connection": "reticent_client.apps.connection",
            "ContributionState": "reticent_client.counting.records",
            "InUse": "reticent.storage.sql",
            "Invitation": "reticent.protocol.invitation",
            "Participant": "reticent_client.counting.participant",
            "Participation": "reticent_client.counting.consent",
            "Phone": "reticent_client.phone",
            "PhoneStore": "reticent_client.store",
            "Round": "reticent_client.counting.session",
            "ShownAd": "reticent_client.ads.messages",
            "Situation": "reticent_client.counting.consent",
            "Step": "reticent_client.apps.messages",
            "connect": "reticent_client.apps.connection",
        },
    )

__all__ = [
    "TOLERANCE",
    "AdSettings",
    "AddressError",
    "AdsNotAllowed",
    "Adversary",
    "AlreadyJoined",
    "AppRefused",
    "AppReports",
    "Audit",
    "BadMembership",
    "Broker",
    "ClientError",
    "Connection",
    "ContributionState",
    "CounterNotAllowed",
    "CounterOutOfBounds",
    "Daily",
    "Declined",
    "FileError",
    "FileStore",
    "ForeignReply",
    "Gain",
    "ImpossibleOutput",
    "InUse",
    "Invitation",
    "LearnedDay",
    "LearningAdversary",
    "MarkovChain",
    "MaskIt",
    "MaskReport",
    "NotJoined",
    "Participant",
    "Participation",
    "Phone",
    "PhoneStore",
    "Policy",
    "Reason",
    "Recent",
    "ReticentError",
    "Round",
    "Schedule",
    "ShownAd",
    "Situation",
    "Step",
    "StepError",
    "Store",
    "TooFewDays",
    "TooLarge",
    "TooManyReports",
    "UnknownApp",
    "audit",
    "breaches",
    "ceiling",
    "connect",
    "daily",
    "split_delta",
]
__all__ += registry.__all__
