"""What the operator is told about a reply agrees with the definition."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from reticent.hierarchy import Node
from reticent_agg.ads import explanation
from reticent_agg.ads.catalogue import Catalogue
from reticent_agg.ads.explanation import explain
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, PARENTS, Line, World, ancestors, gain, worlds


def reason(world: World, line: Line, node: int, ads: int) -> str:
    """Why an ad is not in a reply: the furthest that it gets in one of the columns."""
    columns = world.columns(node)
    chosen = world.greedy(node, ads)
    revenues = [world.revenues(other, node) for other, _ in chosen]
    promised = {column: max((each[column] for each in revenues), default=0.0) for column in columns}
    bids = [column for column, sent_as in columns.items() if world.payment(line, sent_as)]
    known = [
        [world.rates[line.ad, each] for each in ancestors(column) if (line.ad, each) in world.rates] for column in bids
    ]
    supported = [[rate for rate, views in each if views >= world.settings.least_support] for each in known]
    if gain(world.revenues(line, node), promised) > 0:
        return explanation.LOW_GAIN
    if any(world.rate(line.ad, column) for column in bids):
        return explanation.NO_GAIN
    if any(supported):
        return explanation.LOW_RATE
    return explanation.LOW_SUPPORT if any(known) else explanation.NO_RATE if bids else explanation.NO_BID


@given(worlds())
@example(EXAMPLE)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reasons_gains_and_origins_agree_with_the_definition(tmp_path: Path, world: World) -> None:
    names = [line.ad for line in world.lines]
    catalogue = Catalogue.load(world.write(tmp_path)["catalogue"], HIERARCHY)
    ads = min(2, world.settings.max_ads)
    for node in (0, 1, 3, 4, len(PARENTS) - 1):
        text = str(HIERARCHY.nodes[node])
        found = explain(catalogue, HIERARCHY, world.table(), world.settings, node=text, ads=ads, named=names)
        assert found.columns == len(world.columns(node))
        expected = world.greedy(node, ads)
        assert [(each.ad, each.gain) for each in found.chosen] == [(line.ad, gain) for line, gain in expected]
        assert [each.place for each in found.chosen] == [1, 2][: len(expected)]
        lines = {line.ad: line for line in world.lines}
        assert [each.ad for each in found.others] == [ad for ad in names if ad not in {e.ad for e in found.chosen}]
        for each in found.others:
            assert each.reason == reason(world, lines[each.ad], node, ads)
        for each in (*found.chosen, *found.others):
            sent = world.sent_rates(lines[each.ad], node)
            assert [(HIERARCHY.index(Node.parse(r.context)), r.rate, r.payment) for r in each.rates] == [
                rate[:3] for rate in sent
            ]
            for rate, (*_, column) in zip(each.rates, sent, strict=True):
                if column < 0:
                    assert rate.origin is None
                    continue
                origin = next(
                    up
                    for up in ancestors(column)
                    if world.rates.get((each.ad, up), (0, -1))[1] >= world.settings.least_support
                )
                assert (rate.origin, rate.views) == (str(HIERARCHY.nodes[origin]), world.rates[each.ad, origin][1])


@pytest.mark.parametrize(
    ("node", "ads", "named", "sentence"),
    [
        ("3", 0, [], "a reply has 1 to 4 ads: got 0"),
        ("3", 5, [], "a reply has 1 to 4 ads: got 5"),
        ("9", 1, [], "the hierarchy has no node '9'"),
        ("cafe", 1, [], "a node is a level and values"),
        ("3", 1, ["nothing"], "the catalogue has no ad 'nothing'"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    tmp_path: Path, node: str, ads: int, named: list[str], sentence: str
) -> None:
    files = EXAMPLE.write(tmp_path)
    catalogue = Catalogue.load(files["catalogue"], HIERARCHY)
    with pytest.raises(ValueError, match=sentence):
        explain(catalogue, HIERARCHY, EXAMPLE.table(), EXAMPLE.settings, node=node, ads=ads, named=named)
