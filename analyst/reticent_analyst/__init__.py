"""The analyst: plan a query, announce it through an aggregation server, and read its release."""

from reticent.errors import ReticentError
from reticent.privacy import Release
from reticent.tls.certificates import Certificate, CertificateError
from reticent_analyst.analyst import Analyst, Terms
from reticent_analyst.client import Timeouts
from reticent_analyst.errors import AnalystError, BadReply, NeverDecided, NotConfirmed, NotDecided
from reticent_analyst.handle import Handle, Progress
from reticent_analyst.intervals import Statistic, statistics_of, to_csv
from reticent_analyst.plan import Plan, plan
from reticent_analyst.question import Question, QuestionSequence

__all__ = [
    "Analyst",
    "AnalystError",
    "BadReply",
    "Certificate",
    "CertificateError",
    "Handle",
    "NeverDecided",
    "NotConfirmed",
    "NotDecided",
    "Plan",
    "Progress",
    "Question",
    "QuestionSequence",
    "Release",
    "ReticentError",
    "Statistic",
    "Terms",
    "Timeouts",
    "plan",
    "statistics_of",
    "to_csv",
]
