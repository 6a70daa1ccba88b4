"""The phone's choice among the ads of a reply: a function of the exact context, the user's rules and today's views."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reticent.selection import best
from reticent_client.ads.messages import MAX_ID, MAX_TEXT, OfferedAd, OfferedRate

__all__ = ["RULES", "AdChoice", "AdRules", "JudgedAd", "Today", "choose"]


@dataclass(frozen=True, kw_only=True)
class AdRules:
    """The user's rules.

    Args:
        max_per_day: Most ads of a local day.
        quiet: The local times of day without ads: from the first time of a pair until before the second, past midnight
            if the second is earlier.
        categories: The categories that the user dislikes.
        ads: The ids of the ads that the user dislikes.
    """

    max_per_day: int = 50
    quiet: tuple[tuple[dt.time, dt.time], ...] = ()
    categories: frozenset[str] = frozenset()
    ads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Today:
    """The present local time, and the ads of the day so far.

    Args:
        time: The local time of day.
        views: The number of ads that were shown, by the ad's id.
    """

    time: dt.time
    views: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgedAd:
    """An ad of a reply, with the verdict of each rule."""

    ad: OfferedAd
    removed_by: Mapping[str, str]
    """A sentence of each rule that removes it."""
    rate: OfferedRate | None
    """The rate of the exact context's nearest node; None where the reply has none."""

    @property
    def revenue(self) -> float:
        """The expected payment; 0 without a rate."""
        return 0.0 if self.rate is None else self.rate.revenue


@dataclass(frozen=True)
class AdChoice:
    """The ad that is shown, and the verdicts on all candidates."""

    candidates: tuple[JudgedAd, ...]
    shown: OfferedAd | None


def _fits(ad: OfferedAd, _rules: AdRules, _today: Today) -> str | None:
    sizes = len(ad.id.encode()), len(ad.text.encode())
    if sizes[0] <= MAX_ID and sizes[1] <= MAX_TEXT:
        return None
    return f"its id and text have {sizes[0]} and {sizes[1]} bytes: at most {MAX_ID} and {MAX_TEXT} fit into a reply"


def _disliked_ad(ad: OfferedAd, rules: AdRules, _today: Today) -> str | None:
    return "the user dislikes this ad" if ad.id in rules.ads else None


def _disliked_category(ad: OfferedAd, rules: AdRules, _today: Today) -> str | None:
    disliked = sorted(rules.categories & {*ad.category.split("+")})
    return f"the user dislikes {', '.join(disliked)}" if disliked else None


def _cap(ad: OfferedAd, _rules: AdRules, today: Today) -> str | None:
    views = today.views.get(ad.id, 0)
    return f"it was shown {views} times today, and its cap is {ad.cap}" if 0 < ad.cap <= views else None


def _max_per_day(_ad: OfferedAd, rules: AdRules, today: Today) -> str | None:
    total = sum(today.views.values())
    if total < rules.max_per_day:
        return None
    return f"{total} ads were shown today, and {rules.max_per_day} are allowed"


def _quiet(_ad: OfferedAd, rules: AdRules, today: Today) -> str | None:
    within = [
        f"{begins:%H:%M}-{ends:%H:%M}"
        for begins, ends in rules.quiet
        if (begins <= today.time < ends if begins < ends else not ends <= today.time < begins)
    ]
    return f"no ads from {', '.join(within)}" if within else None


RULES: dict[str, Callable[[OfferedAd, AdRules, Today], str | None]] = {
    "size": _fits,
    "disliked ad": _disliked_ad,
    "disliked category": _disliked_category,
    "cap": _cap,
    "max per day": _max_per_day,
    "quiet": _quiet,
}
"""The rules by name, in the order in which every one of them judges every candidate."""


def choose(ads: Sequence[OfferedAd], exact: Sequence[int], rules: AdRules, today: Today) -> AdChoice:
    """Run by the phone. The candidate with the largest expected payment in the exact context that no rule removes.

    None is shown without an expected payment: its rate there is too low or unknown, or its advertiser does not bid. Of
    equal ones, it is the first of the reply, where the service has put the ads that promise more in the generalised
    context. Every rule judges every candidate, whatever the others found.

    Args:
        ads: The ads of a reply, in its order.
        exact: The numbers of the nodes above the exact context, from itself to the root.
        rules: The user's rules.
        today: The time, and the day's views.
    """
    height = {node: number for number, node in enumerate(exact)}
    candidates = tuple(_judge(ad, height, rules, today) for ad in ads)
    allowed = [each for each in candidates if not each.removed_by]
    rates = [(0.0, 0.0) if each.rate is None else (each.rate.rate, each.rate.payment) for each in allowed]
    place = best([rate for rate, _ in rates], [payment for _, payment in rates])
    return AdChoice(candidates, None if place is None else allowed[place].ad)


def _judge(ad: OfferedAd, height: Mapping[int, int], rules: AdRules, today: Today) -> JudgedAd:
    verdicts = {name: rule(ad, rules, today) for name, rule in RULES.items()}
    rate = min((each for each in ad.rates if each.node in height), key=lambda each: height[each.node], default=None)
    return JudgedAd(ad, {name: verdict for name, verdict in verdicts.items() if verdict is not None}, rate)
