"""The sentences about a run: each is computed from its data, and is None where the run has no such part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.report.run.numbers import SPACE, bytes_of, count, decimal, finite, percent, plural

__all__ = [
    "RATES",
    "TOPICS",
    "UNMASKED",
    "Data",
    "ad_days",
    "breaches",
    "budget",
    "clicks",
    "cohorts",
    "contains",
    "contexts_of",
    "cost",
    "counts",
    "coverage",
    "failures",
    "faults",
    "largest",
    "malice",
    "masks",
    "memory",
    "named_counts",
    "precision",
    "progress",
    "reasons",
    "released",
    "revenue",
    "rises",
    "rows",
    "shares",
    "title",
]

Data = Mapping[str, Any]

RATES = "rates"
"""The kind of the queries of an estimate of rates."""
_ADDRESS, _QUOTED = re.compile(r" at [\w.]+:\d+"), re.compile(r"'[^']*'")
UNMASKED = "none"
"""The name of the check that releases all contexts."""


def rows(data: Data, name: str) -> list[Data]:
    """A list of the run; empty if it is missing."""
    return list(data.get(name) or [])


def ad_days(data: Data) -> list[Data]:
    """The days on which ads were shown."""
    return [day for day in rows(data, "days") if day.get("ads")]


def masks(data: Data, *, masked: bool) -> list[Data]:
    """The checks, or what happens without one."""
    return [mask for mask in rows(data, "masks") if (mask.get("check") != UNMASKED) is masked]


def contexts_of(data: Data) -> int:
    """The contexts of all phones and days."""
    return sum(int(day.get("steps") or 0) for day in rows(data, "days"))


def contains(counter: Data) -> bool:
    """Whether the interval of a counter contains the truth."""
    low, truth, high = (finite(counter.get(key)) for key in ("low", "truth", "high"))
    return low is not None and truth is not None and high is not None and low <= truth <= high


def largest(mask: Data) -> float | None:
    """The largest rise of belief under a check."""
    return finite((mask.get("rises") or {}).get("max"))


def title(data: Data) -> str:
    """The heading: how many phones, and for how long."""
    scenario = data.get("scenario") or {}
    phones = scenario.get("phones", (data.get("cost") or {}).get("phones"))
    days = len(rows(data, "days")) or scenario.get("days")
    known = [plural(phones, "phone")] if finite(phones) is not None else []
    known += [plural(days, "day")] if finite(days) else []
    return ", ".join(known) or "A simulated run"


def rises(data: Data) -> str | None:
    """The adversary's gain with and without the mask."""
    under = [mask for mask in masks(data, masked=True) if largest(mask) is not None]
    without = [mask for mask in masks(data, masked=False) if largest(mask) is not None]
    delta, parts = finite(data.get("delta")), []
    if under:
        most = max(largest(mask) or 0.0 for mask in under)
        hours = breaches(under)
        is_kept = not hours and (delta is None or most <= delta + 1e-9)
        begin = "no belief rose by more than" if is_kept else "a belief rose by more than"
        end = _judged(under) if is_kept else f", in {plural(hours, 'hour')} at a sensitive place"
        parts.append(f"With a mask, {begin} delta = {decimal(delta)} (largest: {decimal(most)}){end}.")
    if without:
        most_without = decimal(largest(without[0]))
        alone = f"Without a mask, a belief rose by more than delta = {decimal(delta)}"
        begin = "Without one, it did" if under else alone
        parts.append(f"{begin} in {plural(breaches(without), 'hour')} (largest: {most_without}).")
    return " ".join(parts) or None


def _judged(found: Sequence[Data]) -> str:
    """The days that the sentence is about, if some were left out: those of the check that has the fewest."""
    days, strayed = min((int(mask.get("days") or 0), int(mask.get("strayed") or 0)) for mask in found)
    return f" on the {count(days)} of {plural(days + strayed, 'day')} that follow the learned habits" if strayed else ""


def breaches(found: Sequence[Data]) -> int:
    """The hours at sensitive places at which the belief rose by more than delta."""
    return sum(int(mask.get("breaches") or 0) for mask in found)


def shares(data: Data) -> str | None:
    """The shares that the checks release."""
    under = [mask for mask in masks(data, masked=True) if finite(mask.get("released")) is not None]
    if not under:
        return None
    best = sorted(under, key=lambda mask: -float(mask["released"]))
    parts = []
    for what, private in (("within delta", True), ("by checks that are not private", False)):
        own = [f"{mask['check']} {percent(mask['released'])}" for mask in best if _is_private(mask) is private]
        parts += [f"Share of contexts released {what}: {', '.join(own)}."] if own else []
    return " ".join(parts)


def _is_private(mask: Data) -> bool:
    check = CHECKS.get(str(mask.get("check")))
    return check is not None and check.private


def released(data: Data) -> str | None:
    """The fate of all contexts."""
    if not (steps := contexts_of(data)):
        return None
    sums = {
        key: sum(int(day.get(key) or 0) for day in rows(data, "days")) for key in ("released", "suppressed", "missing")
    }
    parts = [f"released {percent(sums['released'] / steps)}", f"suppressed {percent(sums['suppressed'] / steps)}"]
    missing = f"; {percent(sums['missing'] / steps)} had no reading" if sums["missing"] else ""
    return f"Of {count(steps)} contexts, the phones {' and '.join(parts)}{missing}."


def revenue(data: Data) -> str | None:
    """The revenue of a request with learned rates, beside none and exact ones."""
    if not (days := ad_days(data)):
        return None
    amounts = days[-1]["ads"].get("revenue") or {}
    none, learned, exact = (decimal(amounts.get(key)) for key in ("none", "learned", "exact"))
    begin = f"On day {days[-1]['day']}, a request earns {learned} with learned rates"
    return f"{begin}, {none} without rates and {exact} with exact ones."


def progress(data: Data) -> str | None:
    """The part of the way from no rates to exact ones."""
    known = [day for day in ad_days(data) if finite(day["ads"].get("progress")) is not None]
    if not known:
        return None
    last = known[-1]["ads"]
    interval = last.get("progress_interval") or []
    some = f" ({percent(interval[0])} to {percent(interval[1])})" if len(interval) == 2 else ""
    share = f"{percent(last['progress'])}{some}"
    return f"On day {known[-1]['day']}, learned rates bring {share} of what exact rates would add."


def precision(data: Data) -> str | None:
    """The expected share of clicked ads, at first and in the end."""
    return _change(data, "precision", "of the ads that phones show are expected to be clicked")


def coverage(data: Data) -> str | None:
    """The share of requests with an ad, at first and in the end."""
    return _change(data, "coverage", "of the requests get an ad")


def _change(data: Data, key: str, what: str) -> str | None:
    days = [day for day in ad_days(data) if finite(day["ads"].get(key)) is not None]
    if not days:
        return None
    first, last = days[0], days[-1]
    since = "" if len(days) == 1 else f", after {percent(first['ads'][key])} on day {first['day']}"
    return f"On day {last['day']}, {percent(last['ads'][key])} {what}{since}."


def clicks(data: Data) -> str | None:
    """The numbers of shown and of clicked ads."""
    days = [day["ads"] for day in ad_days(data)]
    sums = [sum(int(day.get(key) or 0) for day in days) for key in ("requests", "shown", "clicks")]
    return f"{plural(sums[0], 'request')}, {count(sums[1])} ads shown, {plural(sums[2], 'click')}." if days else None


def named_counts(data: Data) -> list[Data]:
    """The released counts of counters; those of rates where there are no others."""
    found = [each for each in rows(data, "counts") if each.get("counters")]
    return [each for each in found if each.get("kind") != RATES] or found


def counts(data: Data) -> str | None:
    """The number of intervals that contain the truth."""
    found = [counter for each in named_counts(data) for counter in each["counters"]]
    if not found:
        return None
    level = "" if finite(data.get("level")) is None else f" at {percent(data['level'])}"
    inside = f"{count(sum(map(contains, found)))} of {count(len(found))} intervals{level} contain the truth."
    sums = [each for each in rows(data, "counts") if not each.get("burnt")]
    checked = [each for each in sums if each.get("exact") is not None]
    if not checked:
        return inside
    wrong = sum(not each["exact"] for each in checked)
    end = f"{count(wrong)} did not equal them" if wrong else "all equal, to the unit"
    verb = "was" if len(checked) == 1 else "were"
    of = f"{count(len(checked))} of {plural(len(sums), 'sum')} {verb} compared with the contributions"
    return f"{inside} {of}: {end}."


def cohorts(data: Data) -> str | None:
    """The phones that took part in the counts."""
    found = [each for each in rows(data, "counts") if each.get("population")]
    if not found:
        return None
    share = sum(each.get("contributors") or 0 for each in found) / sum(each["population"] for each in found)
    left = sum(len(each.get("cohorts_left_out") or []) for each in found)
    burnt = sum(bool(each.get("burnt")) for each in found)
    end = f"; without a result: {plural(burnt, 'query', 'queries')}" if burnt else ""
    begin = f"{percent(share)} of the phones contributed to {plural(len(found), 'query', 'queries')}"
    groups = plural(sum(each.get("cohorts") or 0 for each in found), "cohort")
    return f"{begin}; left out: {count(left)} of {groups}{end}."


def cost(data: Data) -> str | None:
    """One phone's part."""
    found = data.get("cost") or {}
    known = {
        "cpu_ms": f"{decimal(found.get('cpu_ms'))}{SPACE}ms of CPU",
        "calls": f"{decimal(found.get('calls'))} {'call' if found.get('calls') == 1 else 'calls'}",
        "bytes_sent": f"{bytes_of(found.get('bytes_sent'))} sent",
        "bytes_received": f"{bytes_of(found.get('bytes_received'))} received",
    }
    parts = [text for key, text in known.items() if finite(found.get(key)) is not None]
    return f"A phone takes {', '.join(parts)}." if parts else None


def memory(data: Data) -> str | None:
    """The memory of all processes."""
    found = {name: finite(size) for name, size in ((data.get("cost") or {}).get("memory_mb") or {}).items()}
    total = sum(size or 0.0 for size in found.values())
    return f"All processes together hold {bytes_of(total * 1e6)} of memory." if total else None


def budget(data: Data) -> str | None:
    """The privacy that the counts have spent."""
    found = data.get("budget") or {}
    most, limit = finite(found.get("spent_epsilon_max")), finite(found.get("epsilon"))
    if most is None or not limit:
        return None
    mean = finite(found.get("spent_epsilon_mean"))
    average = "" if mean is None else f"; the mean phone spent epsilon {decimal(mean)}"
    delta, delta_limit = finite(found.get("spent_delta_max")), finite(found.get("delta"))
    known = delta is not None and delta_limit is not None
    deltas = f" and {decimal(delta)} of its delta of {decimal(delta_limit)}" if known else ""
    is_kept = most <= limit + 1e-9 and (delta or 0) <= (delta_limit or 0) * (1 + 1e-9)
    kept = "" if is_kept else " The limit is exceeded!"
    return f"No phone spent more than {decimal(most)} of its epsilon of {decimal(limit)}{deltas}{average}.{kept}"


def faults(data: Data) -> str | None:
    """The numbers of faults that were injected and that took effect, and whether the run kept its promises."""
    found, problems = rows(data, "faults"), rows(data, "problems")
    if not found:
        return None
    kinds = plural(len({fault.get("kind") for fault in found}), "kind")
    end = f"it ended with {plural(len(problems), 'problem')}" if problems else "it ended without a problem"
    applied = count(sum(bool(fault.get("applied")) for fault in found))
    return f"{plural(len(found), 'fault')} of {kinds} injected, {applied} in effect; {end}."


def reasons(data: Data) -> Counter[str]:
    """The numbers of failed calls and of declined queries, by their reasons without addresses and names."""
    found = Counter[str]()
    for text, number in (data.get("failures") or {}).items():
        found[_ADDRESS.sub("", _QUOTED.sub("a query", str(text)))] += int(number)
    return found


def failures(data: Data) -> str | None:
    """The number of calls that failed, and of queries that phones declined."""
    if not (found := reasons(data)):
        return None
    return f"Phones failed or declined {plural(sum(found.values()), 'time')}, for {plural(len(found), 'reason')}."


def malice(data: Data) -> str | None:
    """The number of malicious phones that were noticed, the kinds of the others, and too large collusions."""
    found = rows(data, "malice")
    if not found:
        return None
    noticed = sum(bool(each.get("noticed")) for each in found)
    others = Counter(str(each.get("kind")) for each in found if not each.get("noticed"))
    rest = ", ".join(f"{kind} ({number})" for kind, number in sorted(others.items()))
    verb = "was" if noticed == 1 else "were"
    parts = [f"{count(noticed)} of {plural(len(found), 'malicious phone')} {verb} noticed"]
    if void := sum(each.get("covered") is False for each in rows(data, "collusions")):
        parts.append(f"epsilon does not hold in {plural(void, 'cohort')}: more colluders than the query tolerates")
    single = sum(each.get("cohorts") == 1 for each in rows(data, "counts"))
    if single and any(each.get("kind") == "wild" for each in found):
        parts.append(f"no wild phone is tolerated in {plural(single, 'query', 'queries')} of one cohort")
    parts += [f"not noticed: {rest}"] if rest else []
    return "; ".join(parts) + "."


TOPICS: Sequence[tuple[str, Callable[[Data], str | None]]] = (
    ("adversary", rises),
    ("mask", shares),
    ("contexts", released),
    ("ads", progress),
    ("counts", counts),
    ("phones", cohorts),
    ("cost", cost),
    ("budget", budget),
    ("faults", faults),
    ("malice", malice),
)
"""The sentences of one screen, by topic."""
