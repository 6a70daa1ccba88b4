"""One screen of results on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reticent.console.text import printable
from reticent_sim.report.run import facts
from reticent_sim.report.run.facts import TOPICS, Data
from reticent_sim.report.run.numbers import SPACE, decimal, finite, plural

__all__ = ["summary"]

LINES = 24
"""The most lines of a screen of 80 columns."""
PER_TOPIC, FIRST_TOPIC = 2, 3
"""The most lines of a sentence, and of the first."""


def summary(console: Console, data: Data) -> None:
    """Print the results of a run, in at most 24 lines of 80 columns.

    Args:
        console: The terminal.
        data: The run, as in `run.json`.
    """
    seconds = finite(data.get("seconds"))
    time = "" if seconds is None else f", simulated in {decimal(seconds)} s"
    console.print(Text(_plain(facts.title(data) + time), style="bold"), no_wrap=True, overflow="ellipsis")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    width = console.width - max(len(topic) for topic, _ in TOPICS) - 4
    for topic, sentence in TOPICS:
        if text := sentence(data):
            most = PER_TOPIC if table.rows else FIRST_TOPIC
            table.add_row(topic, _cut(console, Text(_plain(text)), width, most))
    console.print(table)
    if problems := facts.rows(data, "problems"):
        text = f"{plural(len(problems), 'problem')}: {problems[0]}"
        console.print(Text(_plain(text), style="bold red"), no_wrap=True, overflow="ellipsis")
    if trace := data.get("trace"):
        console.print(Text(f"trace {_plain(str(trace))}", style="dim"), no_wrap=True, overflow="ellipsis")


def _cut(console: Console, text: Text, width: int, most: int) -> Text:
    """The first lines of a text."""
    lines = text.wrap(console, width)
    if len(lines) > most:
        kept = Text("\n").join(lines[:most])
        kept.right_crop(1)
        return kept.append("\N{HORIZONTAL ELLIPSIS}")
    return Text("\n").join(lines)


def _plain(text: str) -> str:
    return printable(text.replace(f"{SPACE}%", "%").replace(SPACE, " "))
