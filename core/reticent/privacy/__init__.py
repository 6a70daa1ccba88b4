"""The mathematics of private counting: mechanisms of noise, queries, releases, and budgets."""

from reticent.privacy._bins import Bin
from reticent.privacy._canonical import MAX_INTEGER
from reticent.privacy._cost import Cost, Noise, composed, sum_of_costs
from reticent.privacy._counter import Counter
from reticent.privacy._counts import (
    OUTLIER_DEVIATIONS,
    OUTLIER_PHONES,
    AlreadyDecided,
    CohortSum,
    Contributions,
    CountError,
    Counts,
    QueryBurnt,
    estimate,
    variance_of_normal_median,
)
from reticent.privacy._fitting import Norms
from reticent.privacy._ledger import (
    SELF,
    BudgetExceeded,
    Composition,
    Contradiction,
    Entry,
    Ledger,
    LedgerError,
    Quote,
    UnreadableLedger,
)
from reticent.privacy._limits import DEFAULT_BUDGET, QueryLimits, min_liars
from reticent.privacy._query import COST_RANGES, MAX_FRACTION_BITS, Query
from reticent.privacy._release import Release
from reticent.privacy._sparse import SparseRows
from reticent.privacy.mechanisms import MECHANISMS, Mechanism, NoiseKind, Unit, mechanism_of
from reticent.privacy.mechanisms._samplers import discrete_gaussian, discrete_laplace
from reticent.privacy.mechanisms._skellam_bound import comparable_gaussian, skellam_renyi
from reticent.privacy.mechanisms.gaussian import (
    THESIS_EPSILON,
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
from reticent.randomness import is_seeded, secure, seeded

__all__ = [
    "COST_RANGES",
    "DEFAULT_BUDGET",
    "MAX_FRACTION_BITS",
    "MAX_INTEGER",
    "MECHANISMS",
    "OUTLIER_DEVIATIONS",
    "OUTLIER_PHONES",
    "SELF",
    "THESIS_EPSILON",
    "AlreadyDecided",
    "Bin",
    "BudgetExceeded",
    "CohortSum",
    "Composition",
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
    "QueryLimits",
    "Quote",
    "Release",
    "SparseRows",
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
    "is_seeded",
    "mechanism_of",
    "min_liars",
    "secure",
    "seeded",
    "sequence_sigma",
    "share_variance",
    "skellam_delta",
    "skellam_renyi",
    "skellam_share",
    "skellam_variance",
    "sum_of_costs",
    "thesis_sigma",
    "variance_of_normal_median",
]
