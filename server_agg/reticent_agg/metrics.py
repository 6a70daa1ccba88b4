"""The metrics of an aggregation server's process, for Prometheus. docs/operations/README.md explains them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily

from reticent.privacy import Query
from reticent.rpc.metrics import SECONDS
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.store import AggregationStore, StoredQuery

__all__ = [
    "BATCH_SIZE",
    "CLOCK_SKEW",
    "CLOSE_SECONDS",
    "CONTRIBUTIONS",
    "CONTRIBUTIONS_WAITING",
    "DECIDE_SECONDS",
    "KEY_SERVER_UP",
    "LEASES_LOST",
    "REGISTRY",
    "STORE_SECONDS",
    "store_metrics",
]

MAX_QUERIES = 1000
"""Open queries that are counted, the latest ones."""
MAX_LABELLED = 50
"""Queries with metrics of their own, the latest ones that collect."""

REGISTRY = CollectorRegistry()
"""Of the metrics that change with events."""
CONTRIBUTIONS = Counter("reticent_contributions", "Contributions acknowledged.", registry=REGISTRY)
CONTRIBUTIONS_WAITING = Gauge(
    "reticent_contributions_waiting", "Contributions that wait to be written.", registry=REGISTRY
)
BATCH_SIZE = Histogram(
    "reticent_batch_size",
    "Contributions written in one transaction.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    registry=REGISTRY,
)
CLOSE_SECONDS = Histogram(
    "reticent_close_seconds",
    "Seconds to close a query: to add its partial sums, and to store the requests to decide.",
    buckets=SECONDS,
    registry=REGISTRY,
)
DECIDE_SECONDS = Histogram(
    "reticent_decide_seconds",
    "Seconds from the request to decide a cohort until its decision is stored.",
    buckets=SECONDS,
    registry=REGISTRY,
)
LEASES_LOST = Counter(
    "reticent_leases_lost", "Leases lost to another process while this one still worked.", registry=REGISTRY
)
KEY_SERVER_UP = Gauge("reticent_key_server_up", "Whether the key server can be reached: 1 or 0.", registry=REGISTRY)
CLOCK_SKEW = Gauge(
    "reticent_clock_skew_seconds", "Seconds by which this process's clock is ahead of PostgreSQL's.", registry=REGISTRY
)
STORE_SECONDS = Histogram(
    "reticent_store_seconds",
    "Seconds of a method of the store. One that writes is one transaction.",
    labelnames=["method"],
    buckets=SECONDS,
    registry=REGISTRY,
)


def store_metrics(store: AggregationStore, now: Now) -> Callable[[], Iterator[Metric]]:
    """A function that reads the metrics of all processes from their store."""
    closed: dict[bytes, int] = {}  # when this process first knew that a query was closed, by digest

    def read() -> Iterator[Metric]:
        queries = store.open_queries(MAX_QUERIES)
        yield _phases(queries)
        yield from _receipts(store, queries)
        lost = {query.digest for query in queries if _phase(query) == "lost"}
        waiting = [item.query for item in store.to_decide() if item.query not in lost]
        present = milliseconds(now())
        known = {query.digest: query for query in queries}
        for digest in waiting:
            closed.setdefault(digest, _closed(known.get(digest), present))
        for digest in closed.keys() - set(waiting):
            del closed[digest]
        oldest = max((present - since for since in closed.values()), default=0)
        yield GaugeMetricFamily(
            "reticent_decisions_undelivered",
            "Cohorts of closed queries whose decision the key server has not delivered.",
            len(waiting),
        )
        yield GaugeMetricFamily(
            "reticent_oldest_undecided_cohort_seconds",
            "Seconds since the earliest closing of a query with undecided cohorts, as far as this process knows.",
            oldest / 1000,
        )

    return read


def _closed(query: StoredQuery | None, now: int) -> int:
    """The time at which a query was closed, or a later one."""
    return now if query is None or query.closes is None else min(now, query.closes)


def _phase(query: StoredQuery) -> str:
    if query.phase == wire.CLOSING and query.refused is not None:
        return "lost"
    return wire.Phase.Name(query.phase).lower()


def _phases(queries: list[StoredQuery]) -> Metric:
    """The number of open queries in each phase."""
    phases = GaugeMetricFamily("reticent_open_queries", "Queries that are not decided.", labels=["phase"])
    found = [_phase(query) for query in queries]
    for phase in ("announced", "collecting", "closing", "lost"):
        phases.add_metric([phase], found.count(phase))
    return phases


def _receipts(store: AggregationStore, queries: list[StoredQuery]) -> Iterator[Metric]:
    """The progress of queries that collect."""
    receipts = GaugeMetricFamily("reticent_query_receipts", "Contributions to a query.", labels=["query"])
    needed = GaugeMetricFamily(
        "reticent_query_receipts_needed", "Contributions without which a query is not decrypted.", labels=["query"]
    )
    for query in [each for each in queries if each.phase == wire.COLLECTING][:MAX_LABELLED]:
        receipts.add_metric([query.id], sum(each.contributors for each in store.cohorts(query.digest)))
        needed.add_metric([query.id], _needed(store.content(query.digest) or b""))
    yield from (receipts, needed)


@lru_cache(maxsize=MAX_LABELLED)
def _needed(content: bytes) -> int:
    """The least number of contributions with which all cohorts of a query are decrypted."""
    query = Query.from_bytes(content)
    return query.min_contributions * query.cohorts
