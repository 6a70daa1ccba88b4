"""The catalogue of ads: a CSV file that advertisers' payments, texts, caps and bids on contexts are read from.

The header is `ad,payment,category,text,cap,contexts`. Each line has one ad:

- `ad`: its name, which the rates use too; at most 64 bytes of UTF-8.
- `payment`: what the advertiser pays for a click.
- `category`: a category of the hierarchy, which users may dislike, or several joined by "+"; at most 64 bytes.
- `text`: what apps show; at most 256 bytes.
- `cap`: most times a day that one user sees the ad, enforced by the phone; 0 or empty for no limit.
- `contexts`: the nodes that the advertiser bids on, separated by ";". Each may have a payment of its own, after "=".
  The most specific node counts. Empty for all contexts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from reticent.arguments import checked_text
from reticent.hierarchy import Hierarchy, Node, Tree

__all__ = ["COLUMNS", "MAX_CAP", "MAX_CATEGORY", "MAX_NAME", "MAX_TEXT", "AdBids", "Catalogue"]

COLUMNS = ("ad", "payment", "category", "text", "cap", "contexts")
MAX_NAME = 64
MAX_CATEGORY = 64
MAX_TEXT = 256
"""Bytes of UTF-8: replies have the size that the longest ads need."""
MAX_CAP = 1_000_000
MAX_PAYMENT = 1e9
MIN_PAYMENT = 1e-9
"""Payments are sent as 32-bit floats: this one is far above zero there."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?|\.[0-9]+")
_SHOWN = 60  # characters of a refused value that an error shows

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.integer]
Bid = tuple[int, float]


@dataclass(frozen=True)
class Catalogue:
    """Ads, numbered by their lines.

    Args:
        ads: Their names.
        categories: Their categories.
        texts: Their texts.
        caps: Most times a day that one user sees each; 0 for no limit.
        payments: (ads,): the payment of ads that bid everywhere, 0 for the others.
        bids: The nodes of the others, with the payments, by number of the ad.
    """

    ads: tuple[str, ...]
    categories: tuple[str, ...]
    texts: tuple[str, ...]
    caps: tuple[int, ...]
    payments: Floats
    bids: dict[int, tuple[Bid, ...]]

    @classmethod
    def load(cls, path: str | Path, hierarchy: Hierarchy) -> Self:
        """The catalogue in a file, whose contexts are nodes of this hierarchy.

        Raises:
            ValueError: With the file and the line of the first error.
        """
        content = Path(path).read_bytes()
        try:
            lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{path}, line {line}: the text is not UTF-8") from error
        try:
            return cls._read(lines, _NodeNumbers(hierarchy), _Categories(hierarchy))
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {max(1, lines.line_num)}: {error}") from error

    @classmethod
    def _read(cls, lines: Iterable[list[str]], nodes: _NodeNumbers, known: _Categories) -> Self:
        rows = iter(lines)
        if tuple(header := next(rows, [])) != COLUMNS:
            raise ValueError(f"the header must be {','.join(COLUMNS)}: got {','.join(header)!r:.{_SHOWN}}")
        ads: dict[str, None] = {}
        categories, texts, caps, payments = list[str](), list[str](), list[int](), list[float]()
        bids: dict[int, tuple[Bid, ...]] = {}
        for ad, payment, category, text, cap, contexts in _complete(rows):
            if ad in ads:
                raise ValueError(f"the ad {ad!r} is already in the catalogue")
            amount = _payment(payment)
            if contexts:
                bids[len(ads)] = nodes.bids(contexts, amount)
            ads[_text("the ad", ad, MAX_NAME)] = None
            categories.append(known.checked(category))
            texts.append(_text("the text", text, MAX_TEXT))
            caps.append(_cap(cap))
            payments.append(0.0 if contexts else amount)
        if not ads:
            raise ValueError("the catalogue has no ads")
        return cls(tuple(ads), tuple(categories), tuple(texts), tuple(caps), np.array(payments), bids)


class _Categories:
    """The categories of a hierarchy, which users may dislike; any category is accepted if it has no tree."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        trees = [each for each in hierarchy.attributes if isinstance(each, Tree)]
        self._known = {category for tree in trees for category in tree.parents}
        self._checked: set[str] = set()

    def checked(self, value: str) -> str:
        """A category, or several joined by "+"; `ValueError` if the hierarchy does not have one."""
        if value not in self._checked:
            parts = _text("the category", value, MAX_CATEGORY).split("+")
            if self._known and (unknown := [each for each in parts if each not in self._known]):
                raise ValueError(f"the hierarchy has no category {unknown[0]!r}")
            self._checked.add(value)
        return value


@dataclass(frozen=True, eq=False)
class AdBids:
    """The payment of each ad in each node: that of its most specific node at or above.

    Args:
        everywhere: (ads,): the payment of ads that bid everywhere, 0 for the others.
        keys: (bids,): the number of the ad, times the number of nodes, plus the number of the node; they increase.
        payments: (bids,): the payment in this node.
        parents: (nodes,): the parent of each node, -1 for the root.
    """

    everywhere: Floats
    keys: npt.NDArray[np.int64]
    payments: Floats
    parents: npt.NDArray[np.int32]

    @classmethod
    def of(cls, catalogue: Catalogue, parents: npt.NDArray[np.int32]) -> Self:
        """The bids of a catalogue."""
        found = [(ad * len(parents) + node, paid) for ad, own in catalogue.bids.items() for node, paid in own]
        found.sort()
        keys, payments = np.array([each for each, _ in found], np.int64), np.array([each for _, each in found], float)
        return cls(catalogue.payments, keys, payments, parents)

    def at(self, ads: Numbers, nodes: Numbers) -> Floats:
        """The payment of each of these ads in the node at the same position; 0 without a bid."""
        paid = self.everywhere[ads]
        (unknown,) = np.nonzero(paid == 0)
        here = np.broadcast_to(nodes, paid.shape)[unknown].astype(np.int64)
        while len(self.keys) and len(unknown):
            keys = ads[unknown] * np.int64(len(self.parents)) + here
            places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            is_bid = self.keys[places] == keys
            paid[unknown[is_bid]] = self.payments[places[is_bid]]
            here = self.parents[here].astype(np.int64)
            goes_on = ~is_bid & (here >= 0)
            unknown, here = unknown[goes_on], here[goes_on]
        return paid


class _NodeNumbers:
    """The numbers of nodes by their text forms."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._known: dict[str, int] = {}

    def bids(self, text: str, payment: float) -> tuple[Bid, ...]:
        """The nodes of a field, with the payment of each."""
        bids: dict[int, float] = {}
        for part in text.split(";"):
            node, paid = self._number(part), payment
            if node is None:
                name, equals, amount = part.rpartition("=")
                node = self._number(name) if equals else None
                if node is None:
                    raise ValueError(f"the hierarchy has no node {(name if equals else part)!r:.{_SHOWN}}")
                paid = _payment(amount)
            if node in bids:
                raise ValueError(f"the node {part!r:.{_SHOWN}} is there twice")
            bids[node] = paid
        return tuple(bids.items())

    def _number(self, text: str) -> int | None:
        if text not in self._known:
            try:
                self._known[text] = self._hierarchy.index(Node.parse(text))
            except (ValueError, KeyError):
                return None
        return self._known[text]


def _complete(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that are not empty, each with all columns."""
    for row in rows:
        if len(row) == len(COLUMNS):
            yield row
        elif row:
            raise ValueError(f"an ad has {len(COLUMNS)} columns: got {len(row)}")


def _text(column: str, value: str, most: int) -> str:
    if (size := len(checked_text(column, value).encode())) > most:
        raise ValueError(f"{column} must have at most {most} bytes of UTF-8: got {size}")
    return value


def _payment(text: str) -> float:
    amount = float(text) if _NUMBER.fullmatch(text) else np.nan
    if not MIN_PAYMENT <= amount <= MAX_PAYMENT:
        raise ValueError(f"a payment is a number from {MIN_PAYMENT:g} to {MAX_PAYMENT:g}: got {text!r:.{_SHOWN}}")
    return amount


@lru_cache
def _cap(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_CAP)) and int(text) <= MAX_CAP):
        raise ValueError(f"cap must be a whole number from 0 to {MAX_CAP:,}: got {text!r:.{_SHOWN}}")
    return int(text)
