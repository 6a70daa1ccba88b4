"""The figures of counts: intervals against the truth, the largest counters, and who took part."""

from __future__ import annotations

from reticent_sim.report.run import facts
from reticent_sim.report.run.bars import ROW, Bar, Part, bars
from reticent_sim.report.run.facts import Data, contains
from reticent_sim.report.run.frame import NumberTable, figure, panel
from reticent_sim.report.run.markup import Markup, tag
from reticent_sim.report.run.numbers import count, decimal, finite, plural
from reticent_sim.report.run.plot import LETTER, Axis, Plot, ticks

__all__ = ["cohorts", "intervals", "largest", "rates"]

MOST = 96
"""The most intervals in one picture: they are some pixels apart on a phone."""
MOST_PANELS, MOST_ROWS = 6, 400
"""The most counts in pictures, and the most rows of the table; counts.csv has all."""
MOST_BARS = 7
"""The most counts, and estimates of rates, that have a bar: the last ones."""
NAMED = 10
"""The number of counters that are shown by name."""
HEIGHT = 110.0
LARGE = 100.0
"""Values up to more than this are written without decimals."""


def intervals(data: Data) -> Markup | None:
    """The error of every counter with its interval: it contains the truth if it crosses zero."""
    sentence, found = facts.counts(data), facts.named_counts(data)
    if sentence is None:
        return None
    panels = [_panel(number, each) for number, each in enumerate(found[-MOST_PANELS:])]
    left = len(found) - len(panels)
    missed = [
        f"{counter['name']} ({each['id']})" for each in found for counter in each["counters"] if not contains(counter)
    ]
    names = f" Missed: {', '.join(missed[:3])}{' and others' if len(missed) > 3 else ''}." if missed else ""
    how = (
        "Each line is the interval of one counter, as an error: estimate minus truth. One that misses the truth is "
        f"dashed and has a cross. Large counters are on the left.{names}"
        + (f" {plural(left, 'earlier count')} not shown: see counts.csv." if left else "")
    )
    table = [
        [
            str(counter.get("name")),
            str(each.get("id")),
            *(decimal(counter.get(key), 4) for key in KEYS),
            "yes" if contains(counter) else "no",
        ]
        for each in found
        for counter in each["counters"]
    ][-MOST_ROWS:]
    head = ("counter", "count", "truth", "estimate", "low", "high", "sigma", "contains the truth")
    return figure("intervals", sentence, how, tag("div", *panels, class_="panels"), NumberTable(head, table), wide=True)


KEYS = ("truth", "value", "low", "high", "sigma")


def _panel(number: int, each: Data) -> Markup:
    known = [counter for counter in each["counters"] if None not in map(finite, map(counter.get, KEYS[:4]))]
    known.sort(key=lambda counter: -float(counter["truth"]))
    shown = known[:MOST]
    inside = sum(map(contains, known))
    some = f" (the {MOST} largest are shown)" if len(known) > MOST else ""
    heading = f"day {each.get('day')}, {count(inside)} of {count(len(known))} contain the truth{some}"
    errors = [abs(float(counter[key]) - float(counter["truth"])) for counter in shown for key in ("low", "high")]
    reach = max(errors, default=1.0) * 1.08 or 1.0
    places = [(tick, f"{tick:+,g}" if tick else "truth") for tick in ticks(-reach, reach, 5)]
    longest = max(len(text) for _, text in places)
    plot = Plot(
        f"intervals-{number}", f"Errors of {each.get('id')}", heading, HEIGHT,
        Axis(-1, max(len(shown), 1)), Axis(-reach, reach), left=LETTER * longest + 12, right=8, top=8, bottom=8,
    )  # fmt: skip
    plot.y_axis(places)
    plot.add(tag("line", class_="truth", x1="0", x2="100%", y1=plot.down(0), y2=plot.down(0)))
    for place, counter in enumerate(shown):
        low, value, high = (float(counter[key]) - float(counter["truth"]) for key in ("low", "value", "high"))
        x, class_ = plot.across(place), "inside" if contains(counter) else "missed"
        plot.add(tag("line", class_=f"interval {class_}", x1=x, x2=x, y1=plot.down(low), y2=plot.down(high)))
        shape = "dot" if class_ == "inside" else "cross"
        plot.mark(x, plot.down(value), shape, class_, series=str(counter.get("name")), value=value)
    return panel(str(each.get("id")), heading, plot.svg())


def largest(data: Data) -> Markup | None:
    """The largest counters of the last count, by name."""
    found = [each for each in facts.named_counts(data) if each.get("kind") != facts.RATES]
    if not found:
        return None
    last = found[-1]
    known = [counter for counter in last["counters"] if None not in map(finite, map(counter.get, KEYS[:4]))]
    known = sorted(known, key=lambda counter: -float(counter["truth"]))[:NAMED]
    if not known:
        return None
    inside = sum(map(contains, known))
    sentence = (
        f"{plural(len(known), 'counter')} of {last['id']} by name: {count(inside)} of the intervals contain the truth."
    )
    high = max(max(float(counter["high"]), float(counter["truth"])) for counter in known) or 1.0
    low = min(0.0, *(float(counter["low"]) for counter in known))
    plot = Plot(
        "largest-rows", "Truth, estimate and interval of the largest counters", sentence, ROW * len(known),
        Axis(low, high * 1.02), Axis(0, 1), left=2, right=16, top=2,
    )  # fmt: skip
    written = count if high >= LARGE else decimal
    for number, counter in enumerate(known):
        y, name = ROW * (number + 1) - 13, str(counter.get("name"))
        ends = [plot.across(float(counter[key])) for key in ("low", "high")]
        words = f"{written(counter['value'])} / {written(counter['truth'])}"
        plot.row(y - 14, name, words)
        plot.add(tag("line", class_="row", x1="0", x2="100%", y1=y, y2=y))
        class_ = "inside" if contains(counter) else "missed"
        plot.add(tag("line", class_=f"interval thick {class_}", x1=ends[0], x2=ends[1], y1=y, y2=y))
        plot.mark(
            plot.across(float(counter["truth"])), y, "tick", "truth", series="truth", value=float(counter["truth"])
        )
        plot.mark(
            plot.across(float(counter["value"])), y, "circle", class_, series="value", value=float(counter["value"])
        )
    plot.x_axis([(tick, decimal(tick, 4)) for tick in ticks(low, high, 5)], "sum over the phones that contributed")
    how = "Estimate / truth. The dot is the estimate in its interval, the upright line the truth."
    return figure("largest", sentence, how, plot.svg())


def cohorts(data: Data) -> Markup | None:
    """The phones in each sum, and what each count guarantees."""
    sentence = facts.cohorts(data)
    if sentence is None:
        return None
    found = [each for each in facts.rows(data, "counts") if each.get("population")]
    some = [each for each in found if each.get("kind") != facts.RATES] or found
    rows = [
        Bar(
            str(each.get("id")),
            f"{count(each.get('contributors'))} of {plural(each['population'], 'phone')}",
            [
                Part(
                    (each.get("contributors") or 0) / each["population"],
                    "hatched" if each.get("burnt") else "safe",
                    str(each.get("id")),
                )
            ],
        )
        for each in some[-MOST_BARS:]
    ]
    table = [
        [
            str(each.get("id")), str(each.get("day")),
            count(each.get("contributors")), count(each.get("population")), count(each.get("cohorts")),
            ", ".join(map(str, each.get("cohorts_left_out") or [])) or "none",
            str(each.get("burnt") or each.get("method")),
            decimal(each.get("epsilon")), decimal(each.get("delta")),
        ]
        for each in found
    ]  # fmt: skip
    head = ("count", "day", "phones", "of", "cohorts", "left out", "result", "epsilon", "delta")
    how = (
        "The rest was absent or sent nothing that counts. A query is decided by cohort, and a short or wild one is "
        "left out. Hatched: no result."
    )
    picture = bars("cohorts-bars", "Phones in the sums of each count", sentence, rows)
    return figure("cohorts", sentence, how, picture, NumberTable(head, table, texts=frozenset({5, 6})))


def rates(data: Data) -> Markup | None:
    """The number of rates that each estimate found."""
    found = facts.rows(data, "rates")
    if not found:
        return None
    last = found[-1]
    sentence = f"The last estimate found the rates of {plural(last.get('pairs'), 'pair')} of an ad and a context."
    most = max(float(each.get("pairs") or 0) for each in found) or 1.0
    rows = [
        Bar(
            f"day {each.get('day')}",
            f"{plural(each.get('pairs'), 'pair')}",
            [Part(each.get("pairs") or 0, "safe", str(each.get("day")))],
        )
        for each in found[-MOST_BARS:]
    ]
    table = [
        [
            f"day {each.get('day')}",
            count(each.get("pairs")),
            count(len(each.get("queries") or [])),
            decimal(each.get("epsilon")),
            decimal(each.get("delta")),
        ]
        for each in found
    ]
    picture = bars("rates-bars", "Pairs with a rate, by estimate", sentence, rows, high=most)
    how = "Each estimate asks one query for each level of the contexts. Its rates choose the ads of the next days."
    return figure(
        "rates", sentence, how, picture, NumberTable(("estimate", "pairs", "queries", "epsilon", "delta"), table)
    )
