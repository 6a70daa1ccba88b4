"""The ads of an estimate in a CSV file, such as the catalogue of an ad service."""

from __future__ import annotations

import csv
from pathlib import Path

from reticent.hierarchy import Hierarchy, Node

__all__ = ["load_ads"]


def load_ads(path: Path, hierarchy: Hierarchy) -> dict[str, list[Node]]:
    """The nodes that each ad bids on, by its name; none for an ad that bids on all contexts.

    The file has a header with the columns `ad` and, for bids, `contexts`: nodes separated by ";", each as its text form
    or with a payment after "=". Other columns are ignored.

    Raises:
        ValueError: With the file and the line of the first error.
    """
    ads: dict[str, list[Node]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            if "ad" not in (rows.fieldnames or ()):
                raise ValueError("the header needs a column named 'ad'")  # noqa: TRY301  # named below
            for row in rows:
                name = row["ad"]
                if not name or name in ads:
                    raise ValueError(f"each line has an ad of its own: got {name!r}")  # noqa: TRY301
                parts = [part.strip() for part in (row.get("contexts") or "").split(";")]
                ads[name] = [_node(part, hierarchy) for part in parts if part]
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {max(1, rows.line_num)}: {error}") from error
    return ads


def _node(text: str, hierarchy: Hierarchy) -> Node:
    """The node of a bid; if the text is none, what stands before the payment."""
    node = Node.parse(text if _is_node(text, hierarchy) else text.rpartition("=")[0] or text)
    hierarchy.index(node)
    return node


def _is_node(text: str, hierarchy: Hierarchy) -> bool:
    try:
        hierarchy.index(Node.parse(text))
    except ValueError:
        return False
    return True
