"""The choice among candidates: a function of the rates, the rules, the day's views and the time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent_client.ads.choice import RULES, AdRules, Today, choose
from reticent_client.ads.messages import MAX_ID, MAX_TEXT, OfferedAd, OfferedRate

PATH = (9, 5, 2, 0)
"""The nodes above an exact context."""
NOON = Today(dt.time(12))


def ad(
    name: str = "shoes", rate: float | None = 0.1, *, node: int = 9, payment: float = 1.0, **fields: object
) -> OfferedAd:
    rates = () if rate is None else (OfferedRate(node, rate, 0.0, 1.0, payment),)
    return OfferedAd(**{"id": name, "text": "", "category": "jazz", "cap": 0, "rates": rates} | fields)  # type: ignore[arg-type]


rates = st.lists(
    st.builds(
        OfferedRate,
        st.sampled_from([0, 1, 2, 3, 5, 9]),
        st.sampled_from([0.0, 0.1, 0.2, 1.0]),
        st.just(0.0),
        st.just(1.0),
        st.sampled_from([0.0, 1.0, 2.0]),
    ),
    unique_by=lambda rate: rate.node,
).map(tuple)
ads = st.lists(
    st.builds(
        OfferedAd,
        st.sampled_from("abcdef"),
        st.just("text"),
        st.sampled_from(["jazz", "wine", "jazz+wine"]),
        st.integers(0, 2),
        rates,
    ),
    unique_by=lambda each: each.id,
    max_size=6,
)
todays = st.builds(Today, st.times(), st.dictionaries(st.sampled_from("abcxyz"), st.integers(1, 3)))
rulings = st.builds(
    AdRules,
    max_per_day=st.integers(0, 8),
    quiet=st.lists(st.tuples(st.times(), st.times()).filter(lambda pair: pair[0] != pair[1]), max_size=2).map(tuple),
    categories=st.frozensets(st.sampled_from(["jazz", "wine"])),
    ads=st.frozensets(st.sampled_from("abcdef")),
)


@given(ads, rulings, todays)
def test_the_choice_is_the_first_of_the_best_that_no_rule_removes(
    ads: list[OfferedAd], rules: AdRules, today: Today
) -> None:
    """Written out anew, with loops."""
    choice = choose(ads, PATH, rules, today)
    best, most = None, 0.0
    for each in ads:
        revenue = 0.0
        for node in reversed(PATH):
            for rate in each.rates:
                if rate.node == node:
                    revenue = rate.payment * rate.rate
        hour = today.time
        quiet = any((a <= hour < b) if a < b else (hour >= a or hour < b) for a, b in rules.quiet)
        allowed = (
            each.id not in rules.ads
            and not any(category in rules.categories for category in each.category.split("+"))
            and (each.cap == 0 or today.views.get(each.id, 0) < each.cap)
            and sum(today.views.values()) < rules.max_per_day
            and not quiet
        )
        if allowed and revenue > most:
            best, most = each, revenue
    assert choice.shown == best
    assert [candidate.ad for candidate in choice.candidates] == ads


@given(ads, rulings, todays)
def test_each_rule_judges_each_candidate_whatever_the_others_find(
    ads: list[OfferedAd], rules: AdRules, today: Today
) -> None:
    choice = choose(ads, PATH, rules, today)
    for candidate in choice.candidates:
        alone = {name: rule(candidate.ad, rules, today) for name, rule in RULES.items()}
        assert candidate.removed_by == {name: reason for name, reason in alone.items() if reason is not None}
        assert list(candidate.removed_by) == [name for name in RULES if name in candidate.removed_by]


def test_every_rule_is_evaluated_for_every_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ad that the first rule removes costs as much time as any other."""
    calls: list[tuple[str, str]] = []

    def noted(name: str) -> Any:
        rule = RULES[name]

        def judge(ad: OfferedAd, rules: AdRules, today: Today) -> str | None:
            calls.append((ad.id, name))
            return rule(ad, rules, today)

        return judge

    for name in RULES:
        monkeypatch.setitem(RULES, name, noted(name))
    choose([ad("a", cap=1), ad("b", text="x" * 2000)], PATH, AdRules(max_per_day=0), Today(dt.time(), {"a": 1}))
    assert calls == [(each, name) for each in "ab" for name in RULES]


@pytest.mark.parametrize(
    ("candidate", "rules", "today", "name"),
    [
        (ad("x" * (MAX_ID + 1)), AdRules(), NOON, "size"),
        (ad(text="ü" * (MAX_TEXT // 2) + "x"), AdRules(), NOON, "size"),
        (ad(), AdRules(ads=frozenset({"shoes"})), NOON, "disliked ad"),
        (ad(category="wine+jazz"), AdRules(categories=frozenset({"jazz"})), NOON, "disliked category"),
        (ad(cap=2), AdRules(), Today(dt.time(12), {"shoes": 2}), "cap"),
        (ad(), AdRules(max_per_day=2), Today(dt.time(12), {"boots": 2}), "max per day"),
        (ad(), AdRules(quiet=((dt.time(12), dt.time(13)),)), NOON, "quiet"),
        (ad(), AdRules(quiet=((dt.time(22), dt.time(7)),)), Today(dt.time(6, 59)), "quiet"),
        (ad(), AdRules(quiet=((dt.time(22), dt.time(7)),)), Today(dt.time(22)), "quiet"),
    ],
)
def test_each_rule_removes_an_ad_by_its_name(candidate: OfferedAd, rules: AdRules, today: Today, name: str) -> None:
    choice = choose([candidate], PATH, rules, today)
    assert list(choice.candidates[0].removed_by) == [name]
    assert choice.shown is None


@pytest.mark.parametrize(
    ("rules", "today"),
    [
        (AdRules(quiet=((dt.time(12), dt.time(13)),)), Today(dt.time(13))),
        (AdRules(quiet=((dt.time(22), dt.time(7)),)), Today(dt.time(7))),
        (AdRules(max_per_day=2), Today(dt.time(), {"boots": 1})),
        (AdRules(), Today(dt.time(), {"shoes": 1})),
    ],
)
def test_at_its_edge_a_rule_removes_nothing(rules: AdRules, today: Today) -> None:
    assert choose([ad("shoes", cap=2, text="x" * MAX_TEXT)], PATH, rules, today).shown is not None


def test_the_rate_of_the_nearest_node_counts() -> None:
    """Whatever the order in which the service sends the rates."""
    rates = (OfferedRate(5, 0.9, 0.0, 1.0, 1.0), OfferedRate(9, 0.1, 0.0, 1.0, 1.0), OfferedRate(0, 0.8, 0.0, 1.0, 1.0))
    for order in (rates, rates[::-1]):
        choice = choose([ad("general", None, rates=order), ad("exact", 0.2)], PATH, AdRules(), NOON)
        assert choice.shown is not None
        assert choice.shown.id == "exact"


def test_an_ad_without_an_expected_payment_is_not_shown() -> None:
    """Its rate is unknown or too low, or its advertiser does not bid in this context."""
    choice = choose([ad("first", node=9), ad("second", 0.0, node=5), ad("third", 0.9, node=9)], (5, 0), AdRules(), NOON)
    assert choice.shown is None
    choice = choose([ad("first", node=9), ad("second", 0.9, node=5)], (0,), AdRules(), NOON)
    assert choice.shown is None
    assert [candidate.rate for candidate in choice.candidates] == [None, None]
