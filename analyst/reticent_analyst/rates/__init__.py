"""Click-through rates from private counts, from the root of a context hierarchy down."""

from reticent_analyst.errors import LevelBurnt
from reticent_analyst.rates.estimate import estimate
from reticent_analyst.rates.terms import EstimateTerms
from reticent_analyst.rates.top_down import LevelProgress, OnLevel

__all__ = ["EstimateTerms", "LevelBurnt", "LevelProgress", "OnLevel", "estimate"]
