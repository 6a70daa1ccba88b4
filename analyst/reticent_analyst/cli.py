"""`reticent count`: plan a query, announce it, and read its release."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from reticent.console.configuration import configured
from reticent.console.options import AsJson, in_json
from reticent.console.text import printable, write_notes
from reticent.errors import ExitCode
from reticent.paillier import KEY_BITS
from reticent.privacy import Query, QueryBurnt
from reticent.storage import files
from reticent.storage.documents import parse_json
from reticent_analyst.analyst import Terms
from reticent_analyst.confirmation import confirm
from reticent_analyst.connection_options import ConnectionOptions
from reticent_analyst.handle import Handle, Progress
from reticent_analyst.intervals import Statistic, statistics_of, to_csv
from reticent_analyst.plan import Plan, plan
from reticent_analyst.progress_display import ProgressDisplay
from reticent_analyst.question import Question
from reticent_analyst.render import show_plan, show_queries, show_release, show_statistics, terminal
from reticent_analyst.resource_estimate import check_key_bits, encryption_seconds

__all__ = ["app"]

PLOT_FORMATS = (".png", ".svg", ".pdf")

app = App(
    name="count",
    default_parameter=Parameter(negative=()),
    config=configured("count"),
)


@Parameter(name="*")
@dataclass(frozen=True)
class StatisticsOptions:
    """The files for the statistics of a release: totals, means, shares and ratios, with simultaneous intervals.

    Args:
        csv: A file for the statistics as CSV.
        plot: A file for a plot of the statistics; its ending names the format, as in .png, .svg or .pdf.
    """

    csv: Path | None = None
    plot: Path | None = None

    def check(self) -> None:
        """Refuse files that cannot be written, and a plot that cannot be made, before anything is spent."""
        outputs = [path for path in (self.csv, self.plot) if path is not None]
        files.check_distinct(outputs)
        files.check_writable(outputs)
        if self.plot is not None:
            import_module("reticent_analyst.plot")  # needs an extra
            if self.plot.suffix not in PLOT_FORMATS:
                raise ValueError(f"a plot ends with {', '.join(PLOT_FORMATS)}: got {str(self.plot)!r}")

    def write(self, statistics: Sequence[Statistic], title: str) -> None:
        """Write the files."""
        if self.csv is not None:
            self.csv.write_text(to_csv(statistics), encoding="utf-8")
        if self.plot is not None:
            import_module("reticent_analyst.plot").save_plot(statistics, self.plot, title=title)


@app.command(name="plan")
def show_expected(
    file: Path, /, *, population: int | None = None, key_bits: int = KEY_BITS[0], as_json: AsJson = False
) -> None:
    """Show what to expect of a query: errors, the risk of no release, liars, and resources of phones.

    Needs no server.

    Args:
        file: The question, in TOML.
        population: The number of phones; by default, that of the file.
        key_bits: The length of the key under which phones encrypt.
        as_json: Print JSON.
    """
    question = Question.load(file)
    if population is not None:
        question = replace(question, population=population)
    if question.population is None:
        raise ValueError(f"{file} has no number of phones: add population = ..., or use --population")
    check_key_bits(key_bits)
    _write_plan(_plan(question, question.population, "none", key_bits), as_json)


@app.command
def new(
    file: Path,
    /,
    *,
    connection: ConnectionOptions,
    name: Annotated[str | None, Parameter(name="--id")] = None,
    yes: bool = False,
    wait: Annotated[bool, Parameter(negative="--no-wait")] = True,
    output: StatisticsOptions | None = None,
    as_json: AsJson = False,
) -> int:
    """Announce a query to real phones: show the plan, ask for confirmation, announce, and wait for the release.

    Exits with 1 if the query is burnt.

    Args:
        file: The question, in TOML.
        connection: The connection to the aggregation server.
        name: The query's id, instead of the file's. A second attempt needs a new id.
        yes: Do not ask for confirmation.
        wait: Wait until the query is decided. With --no-wait, get the release later by `reticent count result`.
        output: Where the statistics are written.
        as_json: Print JSON.
    """
    output = output or StatisticsOptions()
    output.check()
    question = Question.load(file)
    if name is not None:
        question = replace(question, id=name)
    with connection.connected() as (analyst, display):
        terms = analyst.terms()
        display.show("")
        earlier = analyst.paid_queries()
        expected = _plan(question, terms.population, terms.key_id, terms.public_key.bits, earlier)
        if as_json:
            for warning in expected.warnings:
                write_notes(f"warning: {printable(warning)}\n")
        else:
            show_plan(terminal(), expected)
        _confirm(expected, terms, yes=yes)
        display.show("waiting for the servers to accept the query")
        try:
            handle = analyst.start(expected.query)
        except KeyboardInterrupt:
            return _stopped(f"to see whether the query was announced: reticent count status {question.id}")
        if wait:
            return _write_result(handle, display, None, question, output, as_json=as_json)
        _write_progress([handle.progress], as_json=as_json)
        return 0


@app.command
def status(name: str | None = None, /, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Show the progress of a query, or of all queries.

    Args:
        name: The query's id; all queries if not given.
        connection: The connection to the aggregation server.
        as_json: Print JSON.
    """
    with connection.connected() as (analyst, _):
        _write_progress(analyst.queries() if name is None else [analyst.find(name).progress], as_json=as_json)


@app.command
def result(
    name: str,
    /,
    *,
    connection: ConnectionOptions,
    timeout: float | None = None,
    question: Path | None = None,
    output: StatisticsOptions | None = None,
    as_json: AsJson = False,
) -> int:
    """Wait for the release of a query, and show it. Later calls show the same.

    Exits with 1 if the query is burnt or can no longer be decided, and with 4 if it is not decided in time.

    Args:
        name: The query's id.
        connection: The connection to the aggregation server.
        timeout: Seconds to wait; no limit if not given.
        question: The file of the question, for its means and ratios.
        output: Where the statistics are written.
        as_json: Print JSON.
    """
    output = output or StatisticsOptions()
    output.check()
    asked = None if question is None else Question.load(question)
    with connection.connected() as (analyst, display):
        return _write_result(analyst.find(name), display, timeout, asked, output, as_json=as_json)


@app.command
def abort(name: str, /, *, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Close a query now. Its undecided cohorts are burnt, and their phones keep the budget.

    Args:
        name: The query's id.
        connection: The connection to the aggregation server.
        as_json: Print JSON.
    """
    with connection.connected() as (analyst, _):
        handle = analyst.find(name)
        before = handle.progress
        after = handle.abort()
        if before.phase in {"decided", "lost"}:
            why = "was decided before" if before.phase == "decided" else "can no longer be burnt"
            write_notes(f"{printable(repr(handle.query.id))} {why}: nothing changed\n")
        _write_progress([after], as_json=as_json)


def _plan(question: Question, population: int, key_id: str, key_bits: int, earlier: Sequence[Query] = ()) -> Plan:
    query = question.to_query(population, key_id)
    return plan(
        query,
        absent=question.absent,
        lying=question.liars_among(query.population),
        risk=question.risk,
        key_bits=key_bits,
        phone_seconds=encryption_seconds(query, key_bits),
        earlier=earlier,
    )


def _confirm(expected: Plan, terms: Terms, *, yes: bool) -> None:
    """Ask for confirmation.

    Raises:
        NotConfirmed: The analyst does not confirm.
    """
    query = expected.query
    if query.population > terms.population:
        raise ValueError(
            f"population must be at most the number of enrolled phones, {terms.population}: got {query.population}"
        )
    if yes:
        return
    confirm(
        f"Announce to {query.population} phones, at ({query.epsilon:g}, {query.delta:g}) each?",
        f"{query.id!r} was not announced, and nothing is spent",
    )


def _write_result(
    handle: Handle,
    display: ProgressDisplay,
    timeout: float | None,
    question: Question | None,
    output: StatisticsOptions,
    *,
    as_json: bool,
) -> int:
    try:
        with display.bar(handle.query):
            release = handle.result(timeout, display.on_progress)
    except KeyboardInterrupt:
        return _stopped(f"the query continues: reticent count result {handle.query.id}")
    except QueryBurnt as burnt:
        if not any(handle.progress.contributors):
            write_notes("no phone contributed: phones that decline look like absent ones, see `reticent count plan`\n")
        if not as_json:
            raise
        _write(_plain_burnt(burnt))
        return ExitCode.BAD_ANSWER
    statistics = statistics_of(release) if question is None else question.statistics(release)
    if as_json:
        plain = [each.to_json() for each in statistics]
        _write(parse_json(release.to_text()) | {"interval_95": release.interval(0.95).tolist(), "statistics": plain})
    else:
        show_release(terminal(), release, handle.progress)
        show_statistics(terminal(), statistics)
    output.write(statistics, release.query)
    return 0


def _stopped(rest: str) -> int:
    write_notes(f"stopped; {printable(rest)}\n")
    return ExitCode.STOPPED


def _plain_burnt(burnt: QueryBurnt) -> dict[str, Any]:
    return {
        "query": burnt.query,
        "burnt": True,
        "cohorts": burnt.cohorts,
        "cohorts_left_out": list(burnt.left_out),
        "cohorts_spent": list(burnt.spent),
    }


def _write_progress(queries: list[Progress], *, as_json: bool) -> None:
    if as_json:
        _write([each.to_json() for each in queries])
    else:
        show_queries(terminal(), queries)


def _write_plan(expected: Plan, as_json: bool) -> None:
    if as_json:
        _write(expected.to_json())
    else:
        show_plan(terminal(), expected)


def _write(content: Any) -> None:
    sys.stdout.write(in_json(content) + "\n")
