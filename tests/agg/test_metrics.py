"""What an aggregation server tells Prometheus of its store: by phase, by query, and what is undecided."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused
from reticent_agg import AggregationServer, metrics
from reticent_agg.metrics import store_metrics
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone, Time


class Reading:
    """The metrics of a server's store, read again at each look."""

    def __init__(self, server: AggregationServer, time: Time) -> None:
        self._read = store_metrics(server.store, time)

    def value(self, name: str, **labels: str) -> float | None:
        for family in self._read():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def phases(self) -> dict[str, Any]:
        found = {each: self.value("reticent_open_queries", phase=each) for each in PHASES}
        return {phase: number for phase, number in found.items() if number}


PHASES = ("announced", "collecting", "closing", "lost")


def test_a_query_is_seen_from_its_announcement_to_its_decision(time: Time) -> None:
    with closing(aggregation.opened(None, time)) as server:
        found = Reading(server, time)
        query = aggregation.make_query(population=6, cohorts=2, enough=3)
        aggregation.announce(server, query)
        assert found.phases() == {"announced": 1}
        server.queries.countersign(query, KeyServer().deals(query))
        server.collection.contribute([Phone(number).contribution(query) for number in range(4)])
        assert found.phases() == {"collecting": 1}
        assert found.value("reticent_query_receipts", query=query.id) == 4
        assert found.value("reticent_query_receipts_needed", query=query.id) == 2 * query.min_contributions
        server.collection.contribute([Phone(number).contribution(query) for number in (4, 5)])
        assert server.closing.close_due() == [query.id]  # long before its time is over
        assert found.phases() == {"closing": 1}
        assert found.value("reticent_query_receipts", query=query.id) is None
        assert found.value("reticent_decisions_undelivered") == 2
        assert found.value("reticent_oldest_undecided_cohort_seconds") == 0
        time.pass_(30)
        assert found.value("reticent_oldest_undecided_cohort_seconds") == 30
        for head in aggregation.requests(server):
            server.closing.decide(KeyServer().decision(head, aggregation.receipts_of(server, head)))
        assert found.phases() == {}
        assert found.value("reticent_decisions_undelivered") == 0
        assert found.value("reticent_oldest_undecided_cohort_seconds") == 0


def test_a_process_that_starts_later_counts_from_the_end_of_collecting(time: Time) -> None:
    with closing(aggregation.opened(None, time)) as server:
        query = aggregation.collecting(server, aggregation.make_query())
        aggregation.closed(server, time, query)
        time.pass_(100)
        assert Reading(server, time).value("reticent_oldest_undecided_cohort_seconds") == 100


def test_a_process_that_starts_later_counts_from_an_early_closing(time: Time) -> None:
    with closing(aggregation.opened(None, time)) as server:
        query = aggregation.collecting(server, aggregation.make_query(population=2, enough=2))
        server.collection.contribute([Phone(number).contribution(query) for number in range(2)])
        assert server.closing.close_due() == [query.id]
        time.pass_(100)
        assert Reading(server, time).value("reticent_oldest_undecided_cohort_seconds") == 100


def test_what_will_never_be_decided_is_lost_and_not_waited_for(time: Time) -> None:
    with closing(aggregation.opened(None, time)) as server:
        query = aggregation.collecting(server, aggregation.make_query())
        [head] = aggregation.closed(server, time, query)
        server.closing.refuse(head, Refused(Refusal.KEY_RETIRED))
        found = Reading(server, time)
        assert found.phases() == {"lost": 1}
        assert found.value("reticent_decisions_undelivered") == 0
        assert found.value("reticent_oldest_undecided_cohort_seconds") == 0


def test_only_so_many_queries_have_metrics_of_their_own(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_LABELLED", 2)
    with closing(aggregation.opened(None, time)) as server:
        queries = [aggregation.collecting(server, aggregation.make_query()) for _ in range(3)]
        found = Reading(server, time)
        values = [found.value("reticent_query_receipts", query=query.id) for query in queries]
        assert values == [None, 0, 0]
        assert found.phases() == {"collecting": 3}
        monkeypatch.setattr(metrics, "MAX_QUERIES", 2)
        assert found.phases() == {"collecting": 2}


def test_rejected_queries_are_not_open(time: Time) -> None:
    with closing(aggregation.opened(None, time)) as server:
        query = aggregation.make_query()
        aggregation.announce(server, query)
        server.store.reject(query.digest, Refused(Refusal.BAD_QUERY))
        assert Reading(server, time).phases() == {}
