"""`reticent rates`: estimate click-through rates from private counts, show them, and compare two tables."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from reticent.console.configuration import configured
from reticent.console.options import AsJson, in_json
from reticent.console.text import write_notes
from reticent.errors import ExitCode
from reticent.hierarchy import Hierarchy, Node
from reticent.privacy import NoiseKind, Query, QueryLimits
from reticent.protocol import plaintext_count
from reticent.rates import RateTable
from reticent.rpc import Limits
from reticent.storage import files
from reticent.times import duration
from reticent_analyst.analyst import Analyst, Terms
from reticent_analyst.confirmation import confirm
from reticent_analyst.connection_options import ConnectionOptions
from reticent_analyst.progress_display import ProgressDisplay
from reticent_analyst.question import Question
from reticent_analyst.rates.ads_file import load_ads
from reticent_analyst.rates.comparison import compare
from reticent_analyst.rates.estimate import estimate
from reticent_analyst.rates.noise import noise_report
from reticent_analyst.rates.render import show_comparison, show_noise, show_rates, table_json
from reticent_analyst.rates.top_down import LevelProgress
from reticent_analyst.render import terminal

__all__ = ["app"]

app = App(
    name="rates",
    default_parameter=Parameter(negative=()),
    config=configured("rates"),
)

REQUEST_BYTES = Limits.message_bytes - 1024  # the rest of the request

At = Annotated[Path, Parameter(name="--hierarchy")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of the queries.

    Args:
        absent: The probability that a phone does not contribute to a query.
        lying: The share of the enrolled phones that lie or collude.
        closes_after: The duration of collecting at each level, such as 30min or 1d.
        max_ciphertexts: Most ciphertexts of a phone at one level. Operators of key servers set their limit.
    """

    absent: float
    lying: float = 0.0
    closes_after: str = "1d"
    max_ciphertexts: int = QueryLimits.max_ciphertexts


@app.command(name="estimate")
def estimate_rates(
    output: Path,
    /,
    *,
    hierarchy: Path,
    ads: Path,
    name: Annotated[str, Parameter(name="--id")],
    epsilon: float,
    delta: float,
    entries: int,
    depth: int | None = None,
    min_support: float | None = None,
    noise: NoiseKind = "skellam",
    level: float = 0.95,
    state: Path | None = None,
    queries: QueryOptions,
    connection: ConnectionOptions,
    yes: bool = False,
    as_json: AsJson = False,
) -> int:
    """Estimate click-through rates: one query to real phones for each level of the hierarchy, from the root down.

    The estimate continues from its state if it was stopped: run the same command again. Exits with 1 if the query of a
    level is burnt.

    Args:
        output: The file for the rates, an .npz.
        hierarchy: The hierarchy of contexts.
        ads: The ads, in CSV: the column ad, and the column contexts for the nodes that an ad bids on, if not all.
        name: The name of the estimate. The ids of its queries begin with it.
        epsilon: The cost of all levels together to each user, together with delta.
        delta: See epsilon.
        entries: The most entries of a user's log that count.
        depth: The lowest level that is counted, where 0 is the root; by default, that of the exact contexts.
        min_support: Count the children of nodes with more entries, and there the ads with more views in the node. The
            default is three deviations of the noise.
        noise: The mechanism of the noise.
        level: The share of the intervals at each level of the hierarchy that contain the rate.
        state: The file that keeps the state; by default, the output with .state.json.
        queries: The options of the queries.
        connection: The connection to the aggregation server.
        yes: Do not ask for confirmation.
        as_json: Print JSON.
    """
    state = state or output.with_name(f"{output.name}.state.json")
    files.check_distinct([output, state], [hierarchy, ads])
    files.check_writable([output, state])
    tree = Hierarchy.load(hierarchy)
    bids = load_ads(ads, tree)
    closes_after = int(duration(queries.closes_after, "closes_after").total_seconds())
    with connection.connected() as (analyst, display):
        terms = analyst.terms()
        display.show("")
        if not yes:
            report = noise_report(tree, epsilon=epsilon, delta=delta, entries=entries, depth=depth, noise=noise)
            show_noise(terminal(), report)
            confirm(
                f"Announce up to {(tree.height if depth is None else depth + 1)} queries to {terms.population} phones, "
                f"at ({epsilon:g}, {delta:g}) each for all queries together?",
                f"{name!r} was not announced, and nothing is spent",
            )
        try:
            with _LevelDisplay(display) as levels:
                table = estimate(
                    analyst,
                    tree,
                    bids,
                    name=name,
                    epsilon=epsilon,
                    delta=delta,
                    entries=entries,
                    absent=queries.absent,
                    lying=queries.lying,
                    closes_after=closes_after,
                    to_query=_limited(analyst, terms, queries.max_ciphertexts),
                    depth=depth,
                    min_support=min_support,
                    noise=noise,
                    level=level,
                    state=state,
                    on_level=levels.on_level,
                )
        except KeyboardInterrupt:
            write_notes("stopped; the query of the level continues: run the same command again\n")
            return ExitCode.STOPPED
    table.save(output)
    _write(table, tree, as_json=as_json)
    return 0


@app.command
def show(
    file: Path,
    /,
    *,
    hierarchy: At,
    ad: str | None = None,
    node: str | None = None,
    limit: int = 20,
    entries: int | None = None,
    depth: int | None = None,
    as_json: AsJson = False,
) -> None:
    """Show a table of rates: its cost, and the rates with the most views, with their intervals.

    Args:
        file: The rates.
        hierarchy: The hierarchy of contexts.
        ad: Only the rates of this ad.
        node: Only the rates in this node, such as "2|40.7,-73.9|food|shop".
        limit: Most rates to show.
        entries: Show the noise as well, for an estimate with at most so many entries of a user.
        depth: The lowest level of that estimate; by default, the lowest in the table.
        as_json: Print JSON.
    """
    tree = Hierarchy.load(hierarchy)
    table = RateTable.load(file)
    table.check(tree)
    if ad is not None and ad not in table.ads:
        raise ValueError(f"the rates are of no ad {ad!r}")
    if entries is not None and table.epsilon == math.inf:
        raise ValueError(f"{file} has exact rates, without noise: leave out --entries")
    number = None if node is None else tree.index(Node.parse(node))
    _write(table, tree, ad=ad, node=number, limit=limit, as_json=as_json)
    if entries is not None and not as_json:
        lowest = tree.height - 1 - int(tree.node_levels[table.frequency >= 0].min())
        depth = lowest if depth is None else depth
        report = noise_report(tree, epsilon=table.epsilon, delta=table.delta, entries=entries, depth=depth)
        show_noise(terminal(), report)


@app.command(name="compare")
def compare_tables(first: Path, second: Path, /, *, hierarchy: At, as_json: AsJson = False) -> None:
    """Compare two tables of rates, such as an estimate and that of a trusted server or the exact rates.

    Args:
        first: The rates whose intervals are examined.
        second: The other rates.
        hierarchy: The hierarchy of contexts of both.
        as_json: Print JSON.
    """
    found = compare(RateTable.load(first), RateTable.load(second), Hierarchy.load(hierarchy))
    if as_json:
        sys.stdout.write(in_json(asdict(found)) + "\n")
    else:
        show_comparison(terminal(), found)


class _LevelDisplay(ExitStack):
    """Shows a bar for the query of each level, and a line for each release."""

    def __init__(self, display: ProgressDisplay) -> None:
        super().__init__()
        self._display = display

    def on_level(self, progress: LevelProgress) -> None:
        """Show the progress of a level."""
        if progress.release is None:
            self.enter_context(self._display.bar(progress.query))
            return
        self.close()
        self._display.show("")
        write_notes(
            f"level {progress.depth} of up to {progress.levels - 1}: nodes {progress.nodes:,}, "
            f"counters {progress.query.size:,}, phones {progress.release.contributors:,}\n"
        )


def _limited(analyst: Analyst, terms: Terms, most: int) -> Callable[[Question], Query]:
    """Makes queries, and refuses those that are too large for phones or servers before they are announced."""

    def to_query(question: Question) -> Query:
        query = analyst.query(question)
        number, size = plaintext_count(query, terms.public_key.bits), len(query.to_bytes())
        if number > most or size > REQUEST_BYTES:
            raise ValueError(
                f"{query.id!r} would have {query.size:,} counters, in {number} ciphertexts of a phone and {size:,} "
                f"bytes of a request; {most} and {REQUEST_BYTES:,} are allowed: raise --min-support, estimate fewer "
                f"ads, or set --depth to end above this level"
            )
        return query

    return to_query


def _write(
    table: RateTable,
    hierarchy: Hierarchy,
    *,
    ad: str | None = None,
    node: int | None = None,
    limit: int | None = None,
    as_json: bool,
) -> None:
    chosen: dict[str, Any] = {"ad": ad, "node": node, "limit": limit}
    if as_json:
        sys.stdout.write(in_json(table_json(table, hierarchy, **chosen)) + "\n")
    else:
        show_rates(terminal(), table, hierarchy, **chosen)
