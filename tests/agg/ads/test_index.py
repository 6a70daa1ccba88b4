"""The index: replies are the naive greedy choice, ad by ad, and have one size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads.catalogue import MAX_CATEGORY, MAX_NAME, MAX_TEXT
from reticent_agg.ads.index import IndexSettings
from reticent_agg.ads.messages import ReplyFormat
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, PARENTS, World, worlds


@given(worlds())
@example(EXAMPLE)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_replies_are_the_naive_choice_at_every_node_for_every_number_of_ads(tmp_path: Path, world: World) -> None:
    index = world.index(tmp_path)
    most, fingerprint = world.settings.max_ads, world.table().fingerprint
    for node in range(len(PARENTS)):
        encoded = index.encoded(node)
        expected = world.greedy(node, most)
        replies = [index.format.reply(encoded, ads) for ads in range(1, most + 1)]
        assert [len(each) for each in replies] == [index.format.size(ads) for ads in range(1, most + 1)]
        read = [wire.SelectReply.FromString(each) for each in replies]
        for ads, reply in enumerate(read, start=1):
            assert [each.id for each in reply.ads] == [line.ad for line, _ in expected[:ads]], node
            assert reply.rates.hex() == fingerprint
        for sent, (line, _) in zip(read[-1].ads, expected, strict=True):
            rates = [(each.node, each.rate, each.payment) for each in sent.rates]
            assert rates == [each[:3] for each in world.sent_rates(line, node)], node
            intervals = [(r / 2, (r + 1) / 2) if paid else (0, 0) for _, r, paid in rates]
            assert [(each.low, each.high) for each in sent.rates] == intervals
            assert (sent.text, sent.category, sent.cap) == (line.text, line.category, line.cap)


def test_a_context_that_was_never_seen_gets_the_ads_of_what_is_above_it(tmp_path: Path) -> None:
    """Its estimated frequency is 0, as that of many rare contexts is."""
    index = replace(EXAMPLE, frequency={0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}).index(tmp_path)
    for node in (2, 3, *HIERARCHY.children(2).tolist()):
        reply = wire.SelectReply.FromString(index.format.reply(index.encoded(node), 2))
        assert [each.id for each in reply.ads] == ["coffee", "sushi"]
        assert reply.ads[0].rates[0].rate == 0.25


@pytest.mark.parametrize("rates_per_ad", [1, 8, 64])
def test_the_largest_ads_and_none_make_replies_of_one_size(rates_per_ad: int) -> None:
    """Also where a length takes one byte more than the next smaller one."""
    form = ReplyFormat(bytes(32), rates_per_ad)
    rates = [wire.Rate(node=2**32 - 1, rate=1, low=1, high=1, payment=1)] * rates_per_ad
    largest = wire.Ad(
        id="x" * MAX_NAME, text="ü" * (MAX_TEXT // 2), category="x" * MAX_CATEGORY, cap=10**6, rates=rates
    )
    size = form.size(1)
    sizes = {len(form.reply(form.encode([]), 1)), len(form.reply(form.encode([largest.SerializeToString()]), 1))}
    for text in range(MAX_TEXT + 1):
        content = form.reply(form.encode([wire.Ad(text="x" * text, rates=rates).SerializeToString()]), 1)
        assert wire.SelectReply.FromString(content).ads[0].text == "x" * text
        sizes.add(len(content))
    assert sizes == {size}
    assert form.size(7) - form.size(6) == wire.SelectReply(ads=[largest]).ByteSize()
    assert {len(form.reply(form.encode([largest.SerializeToString()] * ads), 50)) for ads in (0, 1, 30, 50)} == {
        form.size(50)
    }


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"max_ads": 0}, "the most ads in a reply must be at least 1: got 0"),
        ({"max_ads": 1001}, "at most 1000: got 1001"),
        ({"rates_per_ad": 0}, "must be at least 1"),
        ({"rates_per_ad": 65}, "at most 64: got 65"),
        ({"least_rate": -0.1}, r"must lie in \[0, 1\]: got -0.1"),
        ({"least_rate": float("nan")}, "got nan"),
        ({"least_support": -1.0}, "got -1.0"),
        ({"least_support": float("inf")}, "got inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        IndexSettings(**wrong)  # type: ignore[arg-type]
