"""`reticent mask learn`: from traces to a chain."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from reticent.console.options import AsJson, in_json
from reticent.console.text import write_notes
from reticent.storage import files
from reticent_client.cli.inspection import DEFAULTS, TraceOptions, name_of
from reticent_client.cli.mask_files import busy
from reticent_client.habits import learning
from reticent_client.habits.inspection import Inspection
from reticent_client.habits.learning import DAY, WEEKDAY, WEEKEND, Habits, kind_of
from reticent_client.mask.chain import MarkovChain
from reticent_client.mask.days_file import DayRecord, write_days
from reticent_client.mask.explanation_text import percent

DayName = Callable[[dt.date], str]
"""The name of a day in the traces: its date or its number."""


def learn(
    traces: Path | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    weekend: Path | None = None,
    options: TraceOptions = DEFAULTS,
    everybody: Annotated[bool, Parameter(name="--all", negative=())] = False,
    train: float = learning.DEFAULT_TRAIN,
    min_days: int = learning.DEFAULT_MIN_DAYS,
    top: int | None = None,
    smoothing: float = learning.DEFAULT_SMOOTHING,
    population: Path | None = None,
    days: Path | None = None,
    weekend_days: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Learn a Markov chain of a user's contexts from traces, and test it on later days.

    The chain and its policies reveal the user's habits: adversaries are assumed to know them. Notes on standard error
    state what is left out and why, before anything is learned: see also inspect.

    Args:
        traces: CSV (also .csv.gz) or Parquet with the columns user, time and context; times are ISO 8601, or count
            from 1970. Or CSV of slots, with the columns user, day, slot and context. The default is standard input.
        output: The file for the chain.
        weekend: A file for a chain of weekends; --output then gets the chain of weekdays.
        options: How the traces are cut into days.
        everybody: Pool the days of all users into the chain of a population.
        train: The share of the days to learn from, the earliest ones. The later days are test days.
        min_days: The fewest days to learn from, unless --population is given.
        top: Keep this many contexts, the most visited ones. The others become "other".
        smoothing: The number of days to add from the population's chain; without one, the user's own days an hour
            earlier or later.
        population: The chain of a population, from `learn --all`. It fills in what the user's days do not show.
        days: A file for the test days, as CSV for audit; with --weekend, for those on weekdays.
        weekend_days: With --weekend, a file for the test days on weekends.
        as_json: Print JSON.
    """
    if weekend_days is not None and weekend is None:
        raise ValueError("--weekend-days needs --weekend")
    outputs = [path for path in (output, weekend, days, weekend_days) if path is not None]
    files.check_distinct(outputs, [traces, population])
    files.check_writable(outputs)
    if everybody and options.user is not None:
        raise ValueError("--all pools all users and --user selects one: give only one of them")
    others = None if population is None else MarkovChain.load(population)
    found = options.read(traces)
    if options.user is None and not everybody and len(found.users) > 1:
        raise ValueError(
            f"{name_of(traces)} holds {len(found.users)} users: choose one with --user, or pool them with --all"
        )
    if weekend is not None and found.numbered:
        raise ValueError(f"the days of {name_of(traces)} are numbered: nobody knows which are weekends")
    write_notes("".join(f"note: {note}\n" for note in found.notes()))
    with busy("Learning"):
        habits = learning.learn(
            {name: each.sampled.days for name, each in found.users.items()},
            train=train,
            smoothing=smoothing,
            population=others,
            apart=weekend is not None,
            top=top,
            min_days=min_days,
        )
        contents = _contents(habits, found.name, chains=(output, weekend), days=(days, weekend_days))
    files.write_all(contents, files.PUBLIC)
    _show(habits, found, as_json=as_json)


def _contents(
    habits: Habits, day_name: DayName, *, chains: tuple[Path | None, ...], days: tuple[Path | None, ...]
) -> list[tuple[Path, bytes]]:
    """The contents by file, of weekdays or all days and of weekends; all are made before any file is written."""
    kinds = WEEKDAY if WEEKDAY in habits.chains else DAY, WEEKEND
    texts = [(path, _chain_text(habits, kind)) for path, kind in zip(chains, kinds, strict=True) if path is not None]
    texts += [
        (path, _days_text(habits, kind, day_name)) for path, kind in zip(days, kinds, strict=True) if path is not None
    ]
    return [(path, text.encode()) for path, text in texts]


def _chain_text(habits: Habits, kind: str) -> str:
    return json.dumps(habits.chains[kind].to_json()) + "\n"


def _days_text(habits: Habits, kind: str, day_name: DayName) -> str:
    """The judged days of a kind, by date; by number and date where several people had the same."""
    user_days = [day for day in habits.test_days if kind_of(day, habits.chains) == kind]
    several = len({day.date for day in user_days}) < len(user_days)
    names = (
        f"{number} {day_name(day.date)}" if several else day_name(day.date)
        for number, day in enumerate(user_days, start=1)
    )
    text = io.StringIO()
    write_days(text, [DayRecord(name, list(day.labels)) for name, day in zip(names, user_days, strict=True)])
    return text.getvalue()


def _show(habits: Habits, found: Inspection, *, as_json: bool) -> None:
    facts = _facts(habits, found)
    if as_json:
        sys.stdout.write(in_json(facts) + "\n")
        return
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _rows(habits, facts):
        table.add_row(name, value)
    console.print(table)
    if facts["few"]:
        write_notes(
            f"warning: {_count(len(habits.training), 'day')} to learn from, fewer than {learning.DEFAULT_MIN_DAYS}: "
            "expect fewer releases than the policy states\n"
        )
    for kind, each in facts["chains"].items():
        if kind != DAY and each["few"]:
            own = _count(each["days"], f"{kind} day" if kind == WEEKEND else kind)
            write_notes(
                f"warning: {own} to learn from, fewer than {learning.FEW_OF_A_KIND}: "
                f"{f'the chain of {kind}s is unreliable' if each['days'] else f'{kind}s use the chain of all days'}\n"
            )


def _facts(habits: Habits, found: Inspection) -> dict[str, Any]:
    """The results, for machines."""
    evaluation = habits.evaluation
    sampled = [each.sampled for each in found.users.values()]
    return {
        "users": len(sampled),
        "days": sum(len(each.days) for each in sampled),
        "left_out": sum(each.left_out for each in sampled),
        "too_empty": sum(len(each.too_empty) for each in sampled),
        "without_readings": sum(len(each.without_readings) for each in sampled),
        "notes": list(found.notes()),
        "trained": len(habits.training),
        "few": len(habits.training) < learning.DEFAULT_MIN_DAYS,
        "chains": {kind: _facts_of_kind(habits, kind) for kind in habits.chains},
        "evaluation": None
        if evaluation is None
        else {
            "days": evaluation.days,
            "steps": evaluation.steps,
            "off_model": evaluation.off_model,
            "missing": evaluation.missing,
            "off_model_share": evaluation.off_model_share,
            "unknown_contexts": list(evaluation.unknown_contexts),
            "log_likelihood": evaluation.log_likelihood,
        },
    }


def _facts_of_kind(habits: Habits, kind: str) -> dict[str, Any]:
    """The results for one kind of days."""
    days = sum(kind_of(day, habits.chains) == kind for day in habits.training)
    return {
        "steps": habits.chains[kind].horizon,
        "contexts": list(habits.chains[kind].contexts),
        "days": days,
        "few": days < (learning.DEFAULT_MIN_DAYS if kind == DAY else learning.FEW_OF_A_KIND),
    }


def _rows(habits: Habits, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The same, for people."""
    users = f" of {facts['users']} users" if facts["users"] > 1 else ""
    reasons = [f"{facts['too_empty']} too empty", f"{facts['without_readings']} without readings"]
    left_out = f" ({', '.join(reasons)})" if facts["left_out"] else ""
    yield "days", f"{facts['days']}{users}, {facts['left_out']} more left out{left_out}"
    parts = [f"{each['days']} {kind}s" for kind, each in facts["chains"].items()] if DAY not in habits.chains else []
    yield "learned from", _count(facts["trained"], "day") + (f": {', '.join(parts)}" if parts else "")
    chain = next(iter(habits.chains.values()))
    yield "contexts", f"{chain.size}: {_listed(chain.contexts)}"
    yield "steps", f"{chain.horizon} a day"
    evaluation = habits.evaluation
    if evaluation is None:
        yield "tested on", "no day: the chain was learned from all"
        return
    yield "tested on", _count(evaluation.days, "day")
    off = evaluation.off_model + evaluation.missing
    yield "off-model", f"{off} of {evaluation.steps} steps ({percent(evaluation.off_model_share)})"
    if evaluation.unknown_contexts:
        yield "never learned", _listed(evaluation.unknown_contexts)
    if evaluation.log_likelihood is not None:
        yield "log-likelihood", f"{evaluation.log_likelihood:.3f} a step, where the chain allows it"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")
