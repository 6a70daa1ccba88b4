"""The report of a run: one HTML page that needs no network and no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from reticent_sim.report.run import adverts, beliefs, costs, estimates, events, facts
from reticent_sim.report.run.facts import Data
from reticent_sim.report.run.frame import NumberTable, table
from reticent_sim.report.run.markup import Markup, join, tag
from reticent_sim.report.run.numbers import bytes_of, count, decimal, finite, percent

__all__ = ["write_report"]

Draw = Callable[[Data], Markup | None]

SECTIONS: Sequence[tuple[str, str, str, Sequence[Draw]]] = (
    (
        "privacy",
        "What an adversary learned",
        "The adversary knows the habits of every phone's user and the rules of the mask, and sees all releases.",
        (beliefs.rises, beliefs.shares, beliefs.days),
    ),
    (
        "ads",
        "Ads, as rates are learned",
        "A service sends ads for a general context, and the phone chooses. Click rates come from private counts only.",
        (adverts.revenue, adverts.progress, adverts.precision, adverts.coverage),
    ),
    (
        "counts",
        "Private counts against the truth",
        "The servers see encrypted, noisy contributions. Only the simulation knows the truth.",
        (estimates.intervals, estimates.cohorts, estimates.rates, estimates.largest),
    ),
    ("costs", "What it costs", "", (costs.cost, costs.budget, costs.memory)),
    ("faults", "What went wrong, on purpose", "", (events.faults, events.outcomes, events.failures, events.malice)),
)
"""Of each section its name, its heading, a sentence and its figures."""
HATCHING = "M-1 1L1-1M0 6L6 0M5 7L7 5"
CSP = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(data: Data, path: Path) -> None:
    """Write the page.

    Args:
        data: The run, as in `run.json`; parts may be missing.
        path: The HTML file.
    """
    path.write_text(f"<!DOCTYPE html>\n{_page(data)}\n", encoding="utf-8")


def _page(data: Data) -> Markup:
    drawn = [
        (name, heading, text, [figure for draw in draws if (figure := draw(data))])
        for name, heading, text, draws in SECTIONS
    ]
    sections = [(name, heading, text, figures) for name, heading, text, figures in drawn if figures]
    links = [(name, heading) for name, heading, *_ in sections] + [("run", "The run")]
    nav = tag(
        "nav",
        tag("ul", *(tag("li", tag("a", heading, href=f"#{name}-section")) for name, heading in links)),
        aria_label="Sections",
    )
    title = facts.title(data)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=CSP),
        tag("title", f"Reticent: {title}"),
        tag("style", Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))),
    )
    header = tag(
        "header",
        tag("p", "Reticent, a simulated run", class_="kicker"),
        tag("h1", title),
        tag(
            "p",
            "Simulated people, real phones, real servers. Everything follows from a seed: this protects nobody.",
            class_="lead",
        ),
        _tiles(data),
        nav,
    )
    skip = tag("a", "Skip to the results", href="#results", class_="skip")
    main = tag(
        "main", *_problems(data), *(_section(*section) for section in sections), _run(data), id="results", tabindex="-1"
    )
    body = tag("body", skip, PATTERNS, header, main)
    return tag("html", head, body, lang="en")


PATTERNS = tag(
    "svg",
    tag(
        "defs",
        *(
            tag(
                "pattern", tag("path", d=HATCHING, class_=f"hatching {name}"),
                id=name, width="6", height="6", patternUnits="userSpaceOnUse",
            )
            for name in ("hatch", "hatch-harm")
        ),
    ),
    width="0", height="0", class_="patterns", aria_hidden="true",
)  # fmt: skip
"""The hatchings of all pictures."""


def _tiles(data: Data) -> Markup:
    """The most important numbers."""
    under = facts.masks(data, masked=True)
    found = [counter for each in facts.named_counts(data) for counter in each["counters"]]
    last = facts.ad_days(data)[-1]["ads"] if facts.ad_days(data) else {}
    released = [float(mask["released"]) for mask in under if finite(mask.get("released")) is not None]
    malice, faults, budget = facts.rows(data, "malice"), facts.rows(data, "faults"), data.get("budget") or {}
    spent = budget.get("spent_epsilon_mean")
    sent = (data.get("cost") or {}).get("bytes_sent")
    known = [
        (
            bool(under),
            count(facts.breaches(under)),
            f"hours with a rise of belief above {decimal(data.get('delta'))}, with a mask",
        ),
        (bool(released), percent(max(released, default=0)), "of contexts released, by the best mask"),
        (
            finite(last.get("progress")) is not None,
            percent(last.get("progress")),
            "of the gain of exact rates, with learned ones",
        ),
        (
            bool(found),
            f"{count(sum(map(facts.contains, found)))} of {count(len(found))}",
            "intervals contain the truth",
        ),
        (
            facts.budget(data) is not None and finite(spent) is not None,
            f"{decimal(spent)} of {decimal(budget.get('epsilon'))}",
            "of epsilon spent by the mean phone",
        ),
        (finite(sent) is not None, bytes_of(sent), "sent by each phone"),
        (
            bool(faults),
            f"{count(sum(bool(each.get('applied')) for each in faults))} of {count(len(faults))}",
            "injected faults took effect",
        ),
        (
            bool(malice),
            f"{count(sum(bool(each.get('noticed')) for each in malice))} of {count(len(malice))}",
            "malicious phones noticed",
        ),
    ]
    return tag(
        "dl",
        *(tag("div", tag("dt", label), tag("dd", text)) for is_known, text, label in known if is_known),
        class_="tiles",
    )


def _problems(data: Data) -> list[Markup]:
    problems = facts.rows(data, "problems")
    if not problems:
        return []
    items = tag("ul", *(tag("li", str(problem)) for problem in problems))
    return [tag("section", tag("h2", "Problems", id="problems"), items, class_="problems", aria_labelledby="problems")]


def _section(name: str, heading: str, text: str, figures: Sequence[Markup]) -> Markup:
    introduction = [tag("p", text, class_="prose")] if text else []
    body = tag("div", *figures, class_="figures")
    return tag(
        "section",
        tag("h2", heading, id=f"{name}-heading"),
        *introduction,
        body,
        id=f"{name}-section",
        aria_labelledby=f"{name}-heading",
    )


def _run(data: Data) -> Markup:
    """The scenario, the trace, and how to repeat the run."""
    seconds = finite(data.get("seconds"))
    rows = [
        [
            str(key),
            value if isinstance(value, str) else "not set" if value is None else json.dumps(value, ensure_ascii=False),
        ]
        for key, value in (data.get("scenario") or {}).items()
    ]
    parts = [tag("h2", "The run", id="run-heading")]
    if trace := data.get("trace"):
        parts.append(
            tag(
                "p",
                "Two runs of the same scenario have the same trace: ",
                tag("code", str(trace), id="trace"),
                class_="prose",
            )
        )
    if seconds is not None:
        parts.append(tag("p", f"It took {decimal(seconds)} seconds.", class_="prose"))
    if rows:
        parts += [
            tag("h3", "Scenario"),
            table("scenario", "Scenario", NumberTable(("setting", "value"), rows, texts=frozenset({1}))),
        ]
    return tag("section", join(*parts), id="run-section", aria_labelledby="run-heading")
