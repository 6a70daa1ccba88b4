"""The aggregation server: announces queries, collects what phones contribute, adds it up, and never reads it.

An analyst has `Analyst`, which asks real phones through such a server, and `Question` and `plan`, to know beforehand
what to expect. These are imported when they are used: the server needs no SciPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from reticent_agg.errors import AggregationError, BadAnswer, BadStore
from reticent_agg.server import AggregationServer

if TYPE_CHECKING:
    from reticent_agg.asking.analyst import Analyst, Terms
    from reticent_agg.asking.handle import Handle, NeverDecided, NotDecided, Progress
    from reticent_agg.asking.plan import Plan, plan
    from reticent_agg.asking.question import Question, QuestionSequence

_LATER = {
    "Analyst": "analyst",
    "Handle": "handle",
    "NeverDecided": "handle",
    "NotDecided": "handle",
    "Plan": "plan",
    "Progress": "handle",
    "Question": "question",
    "QuestionSequence": "question",
    "Terms": "analyst",
    "plan": "plan",
}

__all__ = [
    "AggregationError",
    "AggregationServer",
    "Analyst",
    "BadAnswer",
    "BadStore",
    "Handle",
    "NeverDecided",
    "NotDecided",
    "Plan",
    "Progress",
    "Question",
    "QuestionSequence",
    "Terms",
    "plan",
]


def __getattr__(name: str) -> Any:
    """What belongs to an analyst, when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"reticent_agg.asking.{_LATER[name]}"), name)
