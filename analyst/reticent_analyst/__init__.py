"""The analyst: plan a query, announce it through an aggregation server, and read its release."""

from reticent.privacy import Release
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
    "Handle",
    "NeverDecided",
    "NotConfirmed",
    "NotDecided",
    "Plan",
    "Progress",
    "Question",
    "QuestionSequence",
    "Release",
    "Statistic",
    "Terms",
    "Timeouts",
    "plan",
    "statistics_of",
    "to_csv",
]
