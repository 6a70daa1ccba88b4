"""Tables of rates, of their noise, and of comparisons for a terminal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from reticent.console.text import printable
from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable
from reticent_analyst.rates.comparison import Comparison
from reticent_analyst.rates.noise import NoiseReport
from reticent_analyst.render import table_of

__all__ = ["show_comparison", "show_noise", "show_rates", "table_json"]

SHOWN = 20
"""The most rates that are shown without an option."""


def show_rates(
    console: Console,
    table: RateTable,
    hierarchy: Hierarchy,
    *,
    ad: str | None = None,
    node: int | None = None,
    limit: int | None = None,
) -> None:
    """Show a table: its cost, and the rates with the most views."""
    facts = Table.grid(padding=(0, 2))
    for name, fact in _facts(table).items():
        facts.add_row(name, fact)
    console.print(facts, highlight=False)
    rows = table_of("ad", "node", "rate", f"{table.level:.0%} from", "to", "views", "frequency of the node")
    for number in _chosen(table, ad, node, SHOWN if limit is None else limit).tolist():
        place = int(table.node[number])
        rows.add_row(
            printable(table.ads[table.ad[number]]),
            printable(str(hierarchy.nodes[place])),
            *(f"{part[number]:.2%}" for part in (table.rate, table.low, table.high)),
            f"{table.views[number]:,.0f}",
            f"{table.frequency[place]:.2%}",
        )
    console.print(rows)


def table_json(
    table: RateTable,
    hierarchy: Hierarchy,
    *,
    ad: str | None = None,
    node: int | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    """A table as plain data; of the rates, those with the most views, or all without a limit."""
    return {
        "source": table.source,
        "hierarchy": table.hierarchy,
        "epsilon": table.epsilon if math.isfinite(table.epsilon) else None,
        "delta": table.delta,
        "level": table.level,
        "seeded": table.seeded,
        "frequency": {
            str(hierarchy.nodes[place]): float(table.frequency[place])
            for place in np.flatnonzero(np.isfinite(table.frequency)).tolist()
        },
        "rates": [
            {
                "ad": table.ads[table.ad[number]],
                "node": str(hierarchy.nodes[table.node[number]]),
                "rate": float(table.rate[number]),
                "low": float(table.low[number]),
                "high": float(table.high[number]),
                "views": float(table.views[number]),
            }
            for number in _chosen(table, ad, node, limit).tolist()
        ],
    }


def show_noise(console: Console, report: NoiseReport) -> None:
    """Show the noise of an estimate, at each level and beside corollary 2."""
    terms = report.terms
    rows = table_of("level", "nodes", "error of a count", "made consistent", "flat histogram")
    for each in report.levels:
        figures = (f"{number:,.1f}" for number in (each.alone, each.consistent, each.flat))
        rows.add_row(str(each.depth), f"{each.nodes:,}", *figures)
    console.print(rows)
    facts = Table.grid(padding=(0, 2))
    facts.add_row("cost", f"({terms.epsilon:g}, {terms.delta:g}), {terms.entries} entries of a user, a trusted server")
    facts.add_row("Skellam", f"{report.skellam:,.1f}")
    facts.add_row("Gaussian", f"{report.gaussian:,.1f}; {report.fixed:,.1f} for fixed queries")
    if report.corollary2 is not None:
        facts.add_row("corollary 2", f"{report.corollary2:,.1f}")
    console.print(facts, highlight=False)


def show_comparison(console: Console, comparison: Comparison) -> None:
    """Show the differences of two tables."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("rates of both", f"{comparison.common:,}")
    facts.add_row("only of the first", f"{comparison.first:,}")
    facts.add_row("only of the second", f"{comparison.second:,}")
    if comparison.rate_difference is not None:
        facts.add_row("mean difference of rates", f"{comparison.rate_difference:.2%}, weighted by views")
        facts.add_row("within the intervals", f"{comparison.covered:.1%} of the second's rates")
        facts.add_row("difference of views", f"{comparison.views_difference:,.1f} in the root mean square")
    facts.add_row("distance of frequencies", f"{comparison.distribution_distance:.4f} in total variation")
    console.print(facts, highlight=False)


def _facts(table: RateTable) -> dict[str, str]:
    estimated = np.isfinite(table.frequency).sum()
    cost = f"({table.epsilon:g}, {table.delta:g}) for each phone" if math.isfinite(table.epsilon) else "exact rates"
    facts = {
        "source": printable(table.source),
        "cost": cost,
        "nodes": f"{estimated:,} of {len(table.frequency):,}",
        "rates": f"{len(table.rate):,} of {len(table.ads):,} ads",
    }
    return facts | ({"seeded": "the noise can be replayed: it protects nobody"} if table.seeded else {})


def _chosen(table: RateTable, ad: str | None, node: int | None, limit: int | None) -> npt.NDArray[np.intp]:
    """The rates of an ad and a node, those with the most views first."""
    chosen = np.ones(len(table.rate), dtype=np.bool_)
    if ad is not None:
        chosen &= np.array(table.ads)[table.ad] == ad
    if node is not None:
        chosen &= table.node == node
    found = np.flatnonzero(chosen)
    return found[np.argsort(-table.views[found], kind="stable")][:limit]
