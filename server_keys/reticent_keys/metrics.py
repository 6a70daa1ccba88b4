"""The metrics of a key server's process, for Prometheus. docs/operations/README.md explains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily

from reticent.rpc.metrics import SECONDS
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.journal import Journal, KeyState

__all__ = ["CLOCK_SKEW", "DECIDE_SECONDS", "DECISIONS", "REGISTRY", "STORE_SECONDS", "journal_metrics"]

_HOUR, _DAY = 3600, 86400

REGISTRY = CollectorRegistry()
"""Of the metrics that change with events."""
DECISIONS = Counter(
    "reticent_decisions", "Cohorts decided by this process, by outcome.", labelnames=["outcome"], registry=REGISTRY
)
for _outcome in (wire.RELEASED, wire.BURNT, wire.VOID):
    DECISIONS.labels(wire.Outcome.Name(_outcome).lower())  # so that the first decision is a change
DECIDE_SECONDS = Histogram(
    "reticent_decide_seconds",
    "Seconds from the head of a request to decide a cohort until its decision is recorded.",
    buckets=SECONDS,
    registry=REGISTRY,
)
CLOCK_SKEW = Histogram(
    "reticent_phone_clock_skew_seconds",
    "How far a phone's clock is ahead, inferred from the time of its renewal. A phone that was off seems to be behind.",
    buckets=(-30 * _DAY, -7 * _DAY, -_DAY, -_HOUR, -300, 300, _HOUR, _DAY, 7 * _DAY, 30 * _DAY),
    registry=REGISTRY,
)
STORE_SECONDS = Histogram(
    "reticent_store_seconds",
    "Seconds of a method of the journal. One that writes is one transaction.",
    labelnames=["method"],
    buckets=SECONDS,
    registry=REGISTRY,
)


def journal_metrics(journal: Journal, now: Now) -> Callable[[], Iterator[Metric]]:
    """A function that reads metrics from the journal."""

    def read() -> Iterator[Metric]:
        present = milliseconds(now())
        yield GaugeMetricFamily(
            "reticent_phones_enrolled", "Phones that can be dealt to queries.", journal.member_count(present)
        )
        keys = GaugeMetricFamily("reticent_keys", "Key pairs, by state.", labels=["state"])
        states = [key.state for key in journal.keys(*KeyState)]
        for state in KeyState:
            keys.add_metric([state.name.lower()], states.count(state))
        yield keys
        yield GaugeMetricFamily(
            "reticent_queries_undecided",
            "Countersigned queries with undecided cohorts that can still be decided.",
            len(journal.undecided_queries(present)),
        )

    return read
