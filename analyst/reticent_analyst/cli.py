"""`reticent count`: foresee what a query gives, ask it, and read what is released."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from reticent.console.configuration import configured
from reticent.console.options import ANALYSTS, CERTIFICATES, AsJson, in_json
from reticent.console.program import BAD_ANSWER, STOPPED
from reticent.console.text import printable
from reticent.paillier import KEY_BITS
from reticent.privacy import QueryBurnt
from reticent.tls.certificates import Certificate
from reticent_analyst.analyst import Analyst, Terms
from reticent_analyst.client import Patience
from reticent_analyst.errors import NotConfirmed
from reticent_analyst.handle import Handle, Progress
from reticent_analyst.plan import Plan, plan
from reticent_analyst.progress import Narration, watching
from reticent_analyst.question import Question
from reticent_analyst.render import show_plan, show_queries, show_release, terminal
from reticent_analyst.resource_estimate import check_key_bits, encryption_seconds

__all__ = ["app"]

app = App(
    name="count",
    default_parameter=Parameter(negative=()),
    config=configured("count"),
)


@Parameter(name="*")
@dataclass(frozen=True)
class Server:
    """The aggregation server, and how to know who it speaks for.

    Args:
        identity: The key server's identity, which signs decisions: 64 hexadecimal digits, or a file that holds them.
        analyst: The analyst's name, as in the certificate.
        address: Of the aggregation server, for analysts: host:port.
        certs: The folder of certificates, with the analyst's own.
        patience: For how many seconds a server that was there may be away; one that never was, for ten of them at most.
    """

    identity: str
    analyst: str
    address: str = ANALYSTS
    certs: Path = CERTIFICATES
    patience: float = 600.0

    @contextmanager
    def reached(self) -> Iterator[tuple[Analyst, Narration]]:
        """The analyst's connection, while it is wanted, and who says what it waits for."""
        patience = Patience(away=self.patience, poll=min(Patience.poll, self.patience))
        certificate = Certificate.load(self.certs, self.analyst)
        with (
            Narration() as narration,
            Analyst(
                self.address, certificate, self.identity, patience=patience, hindered=narration.hindered
            ) as analyst,
        ):
            narration.hindered(f"the aggregation server at {self.address}")
            yield analyst, narration


@app.command(name="plan")
def foresee(
    file: Path, /, *, population: int | None = None, key_bits: int = KEY_BITS[0], as_json: AsJson = False
) -> None:
    """Say what to expect of a query, before anybody is asked: errors, aborts, what liars can do, what it costs phones.

    Needs no server.

    Args:
        file: The question, in TOML.
        population: How many phones are asked; what the file says unless given.
        key_bits: The length of the key that phones encrypt under.
        as_json: Write JSON for machines.
    """
    question = Question.load(file)
    if population is not None:
        question = replace(question, population=population)
    if question.population is None:
        raise ValueError(f"{file} does not say how many phones are asked: write population = ..., or --population")
    check_key_bits(key_bits)
    _show_plan(_planned(question, question.population, "none", key_bits), as_json)


@app.command
def new(
    file: Path,
    /,
    *,
    server: Server,
    name: Annotated[str | None, Parameter(name="--id")] = None,
    yes: bool = False,
    wait: Annotated[bool, Parameter(negative="--no-wait")] = True,
    as_json: AsJson = False,
) -> int:
    """Ask a query of real phones: show what to expect, ask whether to go on, announce it, and wait for the release.

    Exits with 1 if the query is burnt.

    Args:
        file: The question, in TOML.
        server: Where to ask.
        name: The query's id, instead of the file's: a second attempt is another query.
        yes: Do not ask whether to go on.
        wait: Wait until the query is decided. Without it, `reticent count result` does.
        as_json: Write JSON for machines.
    """
    question = Question.load(file)
    if name is not None:
        question = replace(question, id=name)
    with server.reached() as (analyst, narration):
        terms = analyst.terms()
        narration.now("")
        foreseen = _planned(question, terms.population, terms.key_id, terms.public_key.bits)
        if not as_json:
            show_plan(terminal(), foreseen)
        _confirm(foreseen, terms, yes=yes)
        narration.hindered("the servers to take the query")
        try:
            handle = analyst.start(foreseen.query)
        except KeyboardInterrupt:
            return _stopped(f"reticent count status {question.id} says whether it was asked")
        if wait:
            return _tell_result(handle, narration, None, as_json=as_json)
        _tell_standing([handle.progress], as_json=as_json)
        return 0


@app.command
def status(name: str | None = None, /, *, server: Server, as_json: AsJson = False) -> None:
    """Say how far a query is, or all of them.

    Args:
        name: The query's id; all queries unless given.
        server: Where it was asked.
        as_json: Write JSON for machines.
    """
    with server.reached() as (analyst, _):
        _tell_standing(analyst.queries() if name is None else [analyst.find(name).progress], as_json=as_json)


@app.command
def result(name: str, /, *, server: Server, timeout: float | None = None, as_json: AsJson = False) -> int:
    """Wait for what a query gives, and show it. Asked again, it shows the same.

    Exits with 1 if the query is burnt, or not decided in time, or never will be.

    Args:
        name: The query's id.
        server: Where it was asked.
        timeout: For how many seconds to wait; without end unless given.
        as_json: Write JSON for machines.
    """
    with server.reached() as (analyst, narration):
        return _tell_result(analyst.find(name), narration, timeout, as_json=as_json)


@app.command
def abort(name: str, /, *, server: Server, as_json: AsJson = False) -> None:
    """Close a query now: what is not decided yet is burnt, and its phones take their budget back.

    Args:
        name: The query's id.
        server: Where it was asked.
        as_json: Write JSON for machines.
    """
    with server.reached() as (analyst, _):
        handle = analyst.find(name)
        before = handle.progress
        after = handle.abort()
        if before.phase in {"decided", "lost"}:
            why = "was decided before" if before.phase == "decided" else "cannot even be burnt any more"
            sys.stderr.write(f"{printable(repr(handle.query.id))} {why}: nothing is changed\n")
        _tell_standing([after], as_json=as_json)


def _planned(question: Question, population: int, key_id: str, key_bits: int) -> Plan:
    query = question.to_query(population, key_id)
    return plan(
        query,
        absent=question.absent,
        lying=question.liars_among(query.population),
        risk=question.risk,
        key_bits=key_bits,
        phone_seconds=encryption_seconds(query, key_bits),
    )


def _confirm(foreseen: Plan, terms: Terms, *, yes: bool) -> None:
    """Go on only if that is wanted.

    Raises:
        NotConfirmed: It is not.
    """
    query = foreseen.query
    if query.population > terms.population:
        raise ValueError(f"{terms.population} phones are enrolled: {query.population} cannot be asked")
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ValueError("there is no terminal to ask whether to go on: --yes does without")
    sys.stderr.write(f"Ask {query.population} phones, at ({query.epsilon:g}, {query.delta:g}) each? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise NotConfirmed(f"{query.id!r} was not asked, and nothing is spent")


def _tell_result(handle: Handle, narration: Narration, timeout: float | None, *, as_json: bool) -> int:
    try:
        with watching(handle, narration) as watcher:
            release = handle.result(timeout, watcher)
    except KeyboardInterrupt:
        return _stopped(f"the query goes on: reticent count result {handle.query.id}")
    except QueryBurnt as burnt:
        if not as_json:
            raise
        _write(_plain_burnt(burnt))
        return BAD_ANSWER
    if as_json:
        _write(json.loads(release.to_text()) | {"interval_95": release.interval(0.95).tolist()})
    else:
        show_release(terminal(), release, handle.progress)
    return 0


def _stopped(rest: str) -> int:
    sys.stderr.write(f"stopped; {printable(rest)}\n")
    return STOPPED


def _plain_burnt(burnt: QueryBurnt) -> dict[str, Any]:
    return {
        "query": burnt.query,
        "burnt": True,
        "cohorts": burnt.cohorts,
        "cohorts_left_out": list(burnt.left_out),
        "cohorts_spent": list(burnt.spent),
    }


def _tell_standing(found: list[Progress], *, as_json: bool) -> None:
    if as_json:
        _write([each.to_json() for each in found])
    else:
        show_queries(terminal(), found)


def _show_plan(foreseen: Plan, as_json: bool) -> None:
    if as_json:
        _write(foreseen.to_json())
    else:
        show_plan(terminal(), foreseen)


def _write(content: Any) -> None:
    sys.stdout.write(in_json(content) + "\n")
