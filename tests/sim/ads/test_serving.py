"""The simulated service and phones: as the definition says, and as the ad service and the phone library do."""

import datetime as dt

import numpy as np
import numpy.typing as npt
import pytest

from reticent.rates import RateTable, resolve
from reticent_agg.ads.catalogue import Catalogue
from reticent_agg.ads.index import AdIndex, IndexSettings
from reticent_client.ads.choice import AdRules, Today, choose
from reticent_client.ads.messages import read_reply
from reticent_sim.experiments.ads.exact_rates import exact_rates
from reticent_sim.experiments.ads.serving import NONE, QUERY, AdTrial, SimulatedService
from reticent_sim.world.ads import AdData, ad_world

SUPPORT = 2.0
ADS = 60
NOON = Today(dt.time(12))


@pytest.fixture(scope="module")
def trial() -> AdTrial:
    data = ad_world(1, 500, ADS)
    return AdTrial(data, np.arange(len(data.tests))[:120])


@pytest.fixture(scope="module")
def table(trial: AdTrial) -> RateTable:
    return exact_rates(trial.data.training, least_records=5)


@pytest.fixture(scope="module")
def service(trial: AdTrial, table: RateTable) -> SimulatedService:
    return SimulatedService(trial.data, table, SUPPORT)


class Naive:
    """The definition of section 4.2, context by context."""

    def __init__(self, data: AdData, table: RateTable, least_rate: float) -> None:
        hierarchy = data.training.hierarchy
        resolved = resolve(table, hierarchy, SUPPORT)
        self.column_of, self.weights = resolved.column_of, resolved.weights
        self.revenue = np.zeros((ADS, len(resolved.columns)))
        starts, ends = hierarchy.leaf_starts, hierarchy.leaf_ends
        for ad, column, rate in zip(resolved.ad, resolved.column, resolved.rate, strict=True):
            node, bid = resolved.columns[column], data.bids[ad]
            if rate >= least_rate and starts[bid] <= starts[node] and ends[node] <= ends[bid]:
                self.revenue[ad, column] = rate * data.payments[ad]

    def selected(self, weights: npt.NDArray[np.float64], k: int) -> list[int]:
        weights = weights if weights.sum() else (weights == weights.max()) * 1.0
        chosen: list[int] = []
        covered = np.zeros(self.revenue.shape[1])
        for _ in range(k):
            gains = np.maximum(self.revenue - covered, 0) @ weights
            if gains.max() <= 1e-15:
                break
            chosen.append(int(gains.argmax()))
            covered = np.maximum(covered, self.revenue[chosen[-1]])
        return chosen

    def shown(self, ads: list[int], context: int) -> int:
        own = self.revenue[ads, self.column_of[context]] if ads else np.zeros(1)
        return ads[int(own.argmax())] if own.max() > 0 else NONE


@pytest.mark.parametrize(("level", "least_rate"), [(8, 0.0), (6, 0.3), (0, 0.1)])
def test_ads_are_those_of_the_definition(
    trial: AdTrial, table: RateTable, service: SimulatedService, level: int, least_rate: float
) -> None:
    hierarchy = trial.data.training.hierarchy
    cut, naive = hierarchy.at_level(level), Naive(trial.data, table, least_rate)
    numbers = (1, 3, 10)
    found = service.hybrid(trial, cut, service.revenues(least_rate), numbers)
    alone = service.server_only(trial, cut, service.revenues(least_rate))
    for node in np.unique(cut[trial.contexts])[::3]:
        columns = np.unique(naive.column_of[cut == node])
        weights = np.zeros(len(naive.weights))
        weights[columns] = naive.weights[columns] if naive.weights[columns].any() else 1.0
        ads = naive.selected(weights, max(numbers))
        for place in np.flatnonzero(cut[trial.contexts] == node):
            context = int(trial.contexts[place])
            assert [shown[place] for shown in found] == [naive.shown(ads[:k], context) for k in numbers]
            assert alone[place] == [*ads, NONE][0]
    assert len(set(found[-1].tolist())) > 5
    coverage = [trial.measure(each).coverage for each in found]
    assert coverage == sorted(coverage)


def test_client_only_selection_knows_the_query_alone(
    trial: AdTrial, table: RateTable, service: SimulatedService
) -> None:
    log, naive = trial.data.training, Naive(trial.data, table, 0.0)
    queries = np.array([context[QUERY] for context in log.hierarchy.contexts])
    records = np.bincount(log.context, minlength=len(queries))
    [shown] = service.client_only(trial, service.revenues(0.0), [4])
    for place in range(0, len(shown), 4):
        context = int(trial.contexts[place])
        own = queries == queries[context]
        weights = np.bincount(naive.column_of[own], records[own], len(naive.weights)).astype(np.float64)
        if not weights.any():
            weights[np.unique(naive.column_of[own])] = 1.0
        assert shown[place] == naive.shown(naive.selected(weights, 4), context)


@pytest.mark.parametrize("level", [6, 8])
@pytest.mark.parametrize("rates_per_ad", [1, 3, 64])
def test_phones_show_what_the_ad_service_and_the_phone_library_show(
    trial: AdTrial, table: RateTable, service: SimulatedService, level: int, rates_per_ad: int
) -> None:
    data, most = trial.data, 5
    hierarchy = data.training.hierarchy
    catalogue = Catalogue(
        ads=data.training.ads,
        categories=("category",) * ADS,
        texts=("text",) * ADS,
        caps=(0,) * ADS,
        payments=np.zeros(ADS),
        bids={ad: ((bid, float(data.payments[ad])),) for ad, bid in enumerate(data.bids.tolist())},
    )
    settings = IndexSettings(max_ads=most, rates_per_ad=rates_per_ad, least_support=SUPPORT)
    index = AdIndex.build(catalogue, hierarchy, table, settings)
    cut = hierarchy.at_level(level)
    [shown] = service.hybrid(trial, cut, service.revenues(0.0), [most], rates_per_ad=rates_per_ad)
    parents, numbers = hierarchy.parents.tolist(), {ad: number for number, ad in enumerate(data.training.ads)}
    seen = 0
    for place, context in enumerate(trial.contexts.tolist()):
        node = int(cut[context])
        reply = index.format.reply(index.encoded(node), most)
        path = list(map(hierarchy.index, hierarchy.ancestors(hierarchy.contexts[context])))
        chosen = choose(read_reply(reply, parents, node, most), path, AdRules(), NOON).shown
        known = next(above for above in path if above <= node and not np.isnan(table.frequency[above]))
        if not table.frequency[known]:
            continue  # the service does not know which contexts below the node are frequent, and sends nothing
        seen += 1
        assert shown[place] == (NONE if chosen is None else numbers[chosen.id]), hierarchy.nodes[node]
    assert seen > 50


def test_measures_count_what_is_shown(trial: AdTrial) -> None:
    nothing = np.full(len(trial.tests), NONE)
    assert trial.measure(nothing).coverage == trial.measure(nothing).revenue == 0
    assert np.isnan(trial.measure(nothing).precision)
    half = np.where(np.arange(len(nothing)) % 2, 3, NONE)
    found = trial.measure(half)
    clicks = trial.data.clicks(trial.tests[1::2], half[1::2])
    assert found.coverage == 0.5
    assert found.precision == pytest.approx(clicks.mean())
    assert found.revenue == pytest.approx(clicks.sum() * trial.data.payments[3] / len(half))


def test_exact_rates_are_counted_where_the_node_above_has_enough_records(trial: AdTrial, table: RateTable) -> None:
    log = trial.data.training
    hierarchy = log.hierarchy
    records = hierarchy.sums(np.bincount(log.context, minlength=len(hierarchy.contexts)))
    estimated = ~np.isnan(table.frequency)
    assert (estimated[1:] == (records[hierarchy.parents[1:]] >= 5)).all()
    assert 0 < estimated.mean() < 1
    assert np.allclose(table.frequency[estimated] * len(log), records[estimated])
    assert estimated[table.node].all()
    assert (table.node > 0).all()
    for entry in range(0, len(table), 37):
        inside = np.isin(log.context, np.arange(len(records))[hierarchy.leaves_below(int(table.node[entry]))])
        own = inside & (log.ad == table.ad[entry])
        assert table.views[entry] == own.sum()
        assert table.rate[entry] == pytest.approx(log.clicked[own].mean())


def test_no_ad_is_shown_outside_the_contexts_that_it_bids_on(trial: AdTrial) -> None:
    """Even if its rate at the root is the only one that is known."""
    data, hierarchy = trial.data, trial.data.training.hierarchy
    at_root = data.training.rates("the whole log")
    views = at_root.views[at_root.node == 0]
    service = SimulatedService(data, at_root, float(np.median(views)))
    [shown] = service.hybrid(trial, np.zeros(len(hierarchy.contexts), dtype=np.int64), service.revenues(0.0), [ADS])
    bids = data.bids[shown[shown != NONE]]
    contexts = trial.contexts[shown != NONE]
    assert len(contexts) > 20
    assert (hierarchy.leaf_starts[bids] <= contexts).all()
    assert (contexts < hierarchy.leaf_ends[bids]).all()
