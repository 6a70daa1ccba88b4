"""A figure of the page: a sentence, a picture, how to read it, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reticent_sim.report.run.markup import Markup, join, tag

__all__ = ["NumberTable", "figure", "panel", "table"]


@dataclass(frozen=True)
class NumberTable:
    """The numbers of a figure; the first column names the row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: frozenset[int] = frozenset()
    """The columns that hold text, which is aligned left and wraps."""


def figure(
    name: str, sentence: str, how: str, picture: Markup, numbers: NumberTable | None = None, *, wide: bool = False
) -> Markup:
    """A figure under its sentence."""
    caption = tag("figcaption", tag("h3", sentence, id=f"{name}-sentence"), *([tag("p", how)] if how else []))
    details = [] if numbers is None else [tag("details", tag("summary", "The numbers"), table(name, sentence, numbers))]
    class_ = "wide" if wide else None
    return tag("figure", caption, picture, *details, id=name, class_=class_, aria_labelledby=f"{name}-sentence")


def panel(name: str, text: str, picture: Markup) -> Markup:
    """One of several pictures of a figure, under its name."""
    return tag("div", tag("p", tag("strong", name), f": {text}", class_="panel"), picture)


def table(name: str, label: str, numbers: NumberTable) -> Markup:
    """A table that scrolls on its own where the page is too narrow."""
    head = tag("tr", *(tag("th", text, scope="col", class_=_class(numbers, k)) for k, text in enumerate(numbers.head)))
    body = [
        tag(
            "tr",
            *(
                tag("td" if k else "th", text, class_=_class(numbers, k), **({} if k else {"scope": "row"}))
                for k, text in enumerate(row)
            ),
        )
        for row in numbers.rows
    ]
    inner = tag(
        "table",
        tag("caption", label, class_="hidden"),
        tag("thead", head),
        tag("tbody", join(*body)),
        id=f"{name}-numbers",
    )
    return tag("div", inner, class_="scroll", role="region", aria_label=f"Numbers: {label}", tabindex="0")


def _class(numbers: NumberTable, column: int) -> str | None:
    return "text" if column == 0 or column in numbers.texts else None
