"""The names of the counters of click-through rates: analysts ask for them, phones answer from their private logs.

A name holds the first digits of the hierarchy's fingerprint and the number of a node in the hierarchy. A phone with
another hierarchy answers 0: whether it takes part must not depend on its log.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from reticent.hierarchy import Hierarchy

__all__ = ["RateCounter", "click_counter", "counter_prefix", "node_counter", "parse_counter", "view_counter"]

Kind: TypeAlias = Literal["node", "click", "view"]

_DIGITS = 16
_NAME = re.compile(r"ads/([0-9a-f]{16})/(0|[1-9][0-9]{0,9})(?:/(click|view)/(.+))?", re.DOTALL)


class RateCounter(NamedTuple):
    """The meaning of a counter: which entries of private logs it counts, in the contexts at or below a node.

    Args:
        prefix: The digits that stand for the hierarchy, as `counter_prefix` gives them.
        node: The number of the node.
        kind: All entries ("node"), the clicks on an ad ("click"), or its views without a click ("view").
        ad: The ad, if it counts one.
    """

    prefix: str
    node: int
    kind: Kind
    ad: str | None = None


def counter_prefix(hierarchy: Hierarchy) -> str:
    """The digits that stand for a hierarchy in the names of counters."""
    return hierarchy.fingerprint[:_DIGITS]


def node_counter(prefix: str, node: int) -> str:
    """The name of the counter of all entries at or below a node.

    >>> node_counter("0123456789abcdef", 17)
    'ads/0123456789abcdef/17'
    """
    return f"ads/{prefix}/{node}"


def click_counter(prefix: str, node: int, ad: str) -> str:
    """The name of the counter of clicks on an ad at or below a node.

    >>> click_counter("0123456789abcdef", 17, "cafe-3")
    'ads/0123456789abcdef/17/click/cafe-3'
    """
    return f"ads/{prefix}/{node}/click/{ad}"


def view_counter(prefix: str, node: int, ad: str) -> str:
    """The name of the counter of views of an ad, without a click, at or below a node.

    >>> view_counter("0123456789abcdef", 17, "cafe-3")
    'ads/0123456789abcdef/17/view/cafe-3'
    """
    return f"ads/{prefix}/{node}/view/{ad}"


def parse_counter(name: str) -> RateCounter | None:
    """The meaning of a name; None if it does not name a counter of rates.

    >>> parse_counter("ads/0123456789abcdef/17/click/cafe-3")
    RateCounter(prefix='0123456789abcdef', node=17, kind='click', ad='cafe-3')
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kinds: dict[str | None, Kind] = {None: "node", "click": "click", "view": "view"}
    return RateCounter(match[1], int(match[2]), kinds[match[3]], match[4])
