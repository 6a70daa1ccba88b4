"""Click-through rates from private counts, from the root of a context hierarchy down."""

from reticent_analyst.errors import LevelBurnt
from reticent_analyst.rates.ads_file import load_ads
from reticent_analyst.rates.comparison import Comparison, compare
from reticent_analyst.rates.estimate import estimate
from reticent_analyst.rates.noise import LevelNoise, NoiseReport, noise_report
from reticent_analyst.rates.terms import EstimateTerms
from reticent_analyst.rates.top_down import LevelProgress, OnLevel

__all__ = [
    "Comparison",
    "EstimateTerms",
    "LevelBurnt",
    "LevelNoise",
    "LevelProgress",
    "NoiseReport",
    "OnLevel",
    "compare",
    "estimate",
    "load_ads",
    "noise_report",
]
