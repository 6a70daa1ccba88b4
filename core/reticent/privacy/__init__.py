"""The mathematics of private counting: how much noise a promise needs, the noise itself, budgets, queries, releases."""

from reticent.privacy.cost import Cost, Noise, composed
from reticent.privacy.counts import AlreadyDecided, CohortSum, Contributions, CountError, Counts, QueryBurnt, estimate
from reticent.privacy.fitting import Norms
from reticent.privacy.ledger import BudgetExceeded, Contradiction, Entry, Ledger, LedgerError, Quote, UnreadableLedger
from reticent.privacy.mechanisms import MECHANISMS, Mechanism, NoiseKind, Unit, mechanism_of
from reticent.privacy.mechanisms._samplers import discrete_gaussian, discrete_laplace
from reticent.privacy.mechanisms._skellam_bound import comparable_gaussian, skellam_renyi
from reticent.privacy.mechanisms.gaussian import (
    fixed_point_delta,
    fixed_point_sigma,
    gaussian_delta,
    gaussian_share,
    gaussian_sigma,
    sequence_sigma,
    thesis_sigma,
)
from reticent.privacy.mechanisms.mechanism import share_variance
from reticent.privacy.mechanisms.skellam import skellam_delta, skellam_share, skellam_variance
from reticent.privacy.query import Counter, Query
from reticent.privacy.release import Release

__all__ = [
    "MECHANISMS",
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
    "Mechanism",
    "Noise",
    "NoiseKind",
    "Norms",
    "Query",
    "QueryBurnt",
    "Quote",
    "Release",
    "Unit",
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
    "mechanism_of",
    "sequence_sigma",
    "share_variance",
    "skellam_delta",
    "skellam_renyi",
    "skellam_share",
    "skellam_variance",
    "thesis_sigma",
]
