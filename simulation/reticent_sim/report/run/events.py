"""The figures of what went wrong on purpose: a timeline of faults, and malicious phones."""

from __future__ import annotations

from collections import Counter

from reticent_sim.report.run import facts
from reticent_sim.report.run.bars import Bar, Part, bars
from reticent_sim.report.run.facts import Data
from reticent_sim.report.run.frame import NumberTable, figure, table
from reticent_sim.report.run.markup import Markup, tag
from reticent_sim.report.run.numbers import count, finite, plural
from reticent_sim.report.run.plot import LETTER, Axis, Plot, cut, ticks

__all__ = ["failures", "faults", "malice", "outcomes"]

HOURS = 24
ROW = 26.0
MOST_OUTCOMES = 12
LONGEST = 12
"""The letters of a kind that fit beside the timeline on a phone."""
MOST_ROWS = 300
"""The most rows of a table; the CSV files have all."""


def faults(data: Data) -> Markup | None:
    """The times of each kind of fault."""
    sentence = facts.faults(data)
    if sentence is None:
        return None
    found = facts.rows(data, "faults")
    kinds = sorted({str(each.get("kind")) for each in found})
    last = max([*(each.get("day") or 0 for each in found), *(day.get("day") or 0 for day in facts.rows(data, "days"))])
    plot = Plot(
        "faults-timeline", "Timeline of the faults", sentence, ROW * len(kinds), Axis(0, last + 1), Axis(0, 1),
        left=LETTER * LONGEST + 10, right=44, top=4,
    )  # fmt: skip
    for number, kind in enumerate(kinds):
        y = ROW * number + ROW / 2
        times = Counter(_time(each) for each in found if str(each.get("kind")) == kind)
        plot.add(plot.text("0", y, cut(kind, LONGEST), anchor="end", dx=-10, middle=True, class_="name"))
        plot.add(tag("line", class_="row", x1="0", x2="100%", y1=y, y2=y))
        for each in found:
            if str(each.get("kind")) == kind and (steps := finite(each.get("steps"))):
                end = min(_time(each) + steps / HOURS, last + 1)
                plot.add(tag("line", class_="lasting", x1=plot.across(_time(each)), x2=plot.across(end), y1=y, y2=y))
        for time in sorted(times):
            plot.mark(plot.across(time), y, "diamond", "fault", series=kind, value=time)
        total = f"\N{MULTIPLICATION SIGN}{count(sum(times.values()))}"
        plot.add(plot.text("100%", y, total, anchor="start", dx=10, middle=True, class_="value"))
    plot.x_axis([(tick, f"{tick:g}") for tick in ticks(0, last, 8) if tick == int(tick)], "day", grid=True)
    listed = [
        [
            f"day {each.get('day')}, {each.get('step')}:00",
            str(each.get("kind")),
            str(each.get("target")),
            "yes" if each.get("applied") else "no",
            str(each.get("outcome") or ""),
        ]
        for each in found[:MOST_ROWS]
    ]
    left = len(found) - MOST_ROWS
    how = "Each mark is one or more faults of that kind within an hour; a line shows how long they last." + (
        f" The table has the first {MOST_ROWS}; faults.csv has {count(left)} more." if left > 0 else ""
    )
    numbers = NumberTable(("time", "kind", "target", "in effect", "outcome"), listed, texts=frozenset({1, 2, 3, 4}))
    return figure("faults", sentence, how, plot.svg(), numbers, wide=True)


def outcomes(data: Data) -> Markup | None:
    """The most frequent outcomes of each kind of fault."""
    known = [each for each in facts.rows(data, "faults") if each.get("outcome")]
    if not known:
        return None
    kinds = Counter(str(each.get("kind")) for each in known)
    by_kind = ", ".join(f"{kind} ({number})" for kind, number in sorted(kinds.items()))
    sentence = f"{plural(len(known), 'fault')} hit servers, workers or disks: {by_kind}."
    found = Counter((f"{each.get('kind')}, {each.get('target')}", str(each["outcome"])) for each in known)
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_OUTCOMES]
    rest = sum(found.values()) - sum(size for _, size in most)
    how = "What came of faults of processes and disks." + (
        f" {count(rest)} others are in the table above." if rest else ""
    )
    rows = [[kind, count(size), outcome] for (kind, outcome), size in sorted(most)]
    picture = table("outcomes", sentence, NumberTable(("fault", "times", "outcome"), rows, texts=frozenset({2})))
    return figure("outcomes", sentence, how, picture)


def _time(fault: Data) -> float:
    """The time of a fault in days."""
    return float((finite(fault.get("day")) or 0) + (finite(fault.get("step")) or 0) / HOURS)


def failures(data: Data) -> Markup | None:
    """The reasons for which calls failed, and for which phones declined to contribute."""
    sentence = facts.failures(data)
    if sentence is None:
        return None
    found = sorted(facts.reasons(data).items(), key=lambda item: (-item[1], item[0]))
    rows = [[count(number), reason] for reason, number in found[:MOST_OUTCOMES]]
    picture = table("failures", sentence, NumberTable(("times", "reason"), rows, texts=frozenset({1})))
    return figure("failures", sentence, "Phones try again in their next round.", picture)


def malice(data: Data) -> Markup | None:
    """The malicious phones of each kind, noticed and not."""
    sentence = facts.malice(data)
    if sentence is None:
        return None
    found = facts.rows(data, "malice")
    all_, noticed = (
        Counter(str(each.get("kind")) for each in found if each.get("noticed") or not only) for only in (False, True)
    )
    rows = [
        Bar(
            kind,
            f"{count(noticed[kind])} of {count(size)} noticed",
            [Part(noticed[kind], "safe", "noticed"), Part(size - noticed[kind], "hatched", "not noticed")],
        )
        for kind, size in sorted(all_.items())
    ]
    picture = bars("malice-bars", "Malicious phones, noticed or not", sentence, rows, high=max(all_.values()))
    listed = [
        [
            f"phone {each.get('phone')}",
            str(each.get("kind")),
            "yes" if each.get("noticed") else "no",
            ", ".join(map(str, each.get("by") or [])),
            str(each.get("how")),
        ]
        for each in found[:MOST_ROWS]
    ]
    how = "Solid: noticed. Hatched: not noticed, as no server can see that such a phone lies."
    numbers = NumberTable(("phone", "kind", "noticed", "by", "how"), listed, texts=frozenset({1, 2, 3, 4}))
    return figure("malice", sentence, how, picture, numbers)
