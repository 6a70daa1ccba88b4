"""The mathematics of private counting: how much noise a promise needs, the noise itself, budgets, queries, releases."""

from reticent.privacy.cost import Cost, Noise, NoiseKind, composed
from reticent.privacy.counts import AlreadyDecided, CohortSum, Contributions, CountError, Counts, QueryBurnt, estimate
from reticent.privacy.fitting import Norms
from reticent.privacy.gaussian import (
    fixed_point_delta,
    fixed_point_sigma,
    gaussian_delta,
    gaussian_sigma,
    sequence_sigma,
    thesis_sigma,
)
from reticent.privacy.ledger import BudgetExceeded, Contradiction, Entry, Ledger, LedgerError, Quote, UnreadableLedger
from reticent.privacy.query import Counter, Query
from reticent.privacy.release import Release
from reticent.privacy.samplers import discrete_gaussian, discrete_laplace
from reticent.privacy.shares import gaussian_share, share_variance, skellam_share
from reticent.privacy.skellam import skellam_delta, skellam_variance
from reticent.privacy.skellam_bound import comparable_gaussian, skellam_renyi

__all__ = [
    "AlreadyDecided",
    "BudgetExceeded",
    "CohortSum",
    "Contradiction",
    "Contributions",
    "Cost",
    "CountError",
    "Counter",
    "Counts",
    "Entry",
    "Ledger",
    "LedgerError",
    "Noise",
    "NoiseKind",
    "Norms",
    "Query",
    "QueryBurnt",
    "Quote",
    "Release",
    "UnreadableLedger",
    "comparable_gaussian",
    "composed",
    "discrete_gaussian",
    "discrete_laplace",
    "estimate",
    "fixed_point_delta",
    "fixed_point_sigma",
    "gaussian_delta",
    "gaussian_share",
    "gaussian_sigma",
    "sequence_sigma",
    "share_variance",
    "skellam_delta",
    "skellam_renyi",
    "skellam_share",
    "skellam_variance",
    "thesis_sigma",
]
