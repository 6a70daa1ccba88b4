"""The figures of what a run costs: a phone's calls, bytes and time, memory, and the budget of privacy."""

from __future__ import annotations

from reticent_sim.report.run import facts
from reticent_sim.report.run.bars import Bar, Part, bars
from reticent_sim.report.run.facts import Data
from reticent_sim.report.run.frame import NumberTable, figure
from reticent_sim.report.run.markup import Markup, tag
from reticent_sim.report.run.numbers import SPACE, bytes_of, decimal, finite, percent

__all__ = ["budget", "cost", "memory"]


def cost(data: Data) -> Markup | None:
    """One phone's part, as large numbers."""
    sentence, found = facts.cost(data), data.get("cost") or {}
    if sentence is None:
        return None
    numbers = [
        (f"{decimal(found.get('cpu_ms'))}{SPACE}ms", "CPU time", "cpu_ms"),
        (f"{decimal(found.get('server_cpu_ms'))}{SPACE}ms", "CPU time of servers", "server_cpu_ms"),
        (f"{decimal(found.get('simulation_cpu_ms'))}{SPACE}ms", "CPU time of the simulation", "simulation_cpu_ms"),
        (decimal(found.get("calls")), "calls to servers", "calls"),
        (bytes_of(found.get("bytes_sent")), "sent", "bytes_sent"),
        (bytes_of(found.get("bytes_received")), "received", "bytes_received"),
        (bytes_of(found.get("store_bytes")), "stored", "store_bytes"),
    ]
    tiles = [
        tag("div", tag("dt", label), tag("dd", text, data_value=float(found[key])))
        for text, label, key in numbers
        if finite(found.get(key)) is not None
    ]
    speed = finite(found.get("contributions_per_second"))
    how = "Of one phone, over the whole run." + (
        "" if not speed else f" The servers took {decimal(speed)} contributions a second from all phones."
    )
    return figure("cost", sentence, how, tag("dl", *tiles, class_="tiles small"), wide=True)


def memory(data: Data) -> Markup | None:
    """The memory of each process."""
    sentence = facts.memory(data)
    if sentence is None:
        return None
    sizes = {name: finite(size) or 0.0 for name, size in data["cost"]["memory_mb"].items()}
    rows = [Bar(str(name), bytes_of(size * 1e6), [Part(size, "safe", str(name))]) for name, size in sizes.items()]
    picture = bars("memory-bars", "Memory of the processes", sentence, rows, high=max(sizes.values()))
    return figure("memory", sentence, "The most that each process held, workers together.", picture)


def budget(data: Data) -> Markup | None:
    """The epsilon of the mean phone, and of the one that spent most."""
    sentence, found = facts.budget(data), data.get("budget") or {}
    if sentence is None:
        return None
    limit, most = float(found["epsilon"]), float(found["spent_epsilon_max"])
    mean = finite(found.get("spent_epsilon_mean"))
    known = [("the mean phone", mean)] if mean is not None else []
    rows = [
        Bar(
            name,
            f"{decimal(spent)} of {decimal(limit)}",
            [Part(spent, "safe" if spent <= limit + 1e-9 else "harm", name)],
        )
        for name, spent in [*known, ("the phone that spent most", most)]
    ]
    picture = bars("budget-bars", "Epsilon spent", sentence, rows, high=max(limit, most) * 1.02, limit=limit)
    table = [
        [name, decimal(spent), percent(spent / limit) if limit else "", decimal(found.get("delta"))]
        for name, spent in [*known, ("most", most)]
    ]
    how = "Counting spends a phone's budget; the upright line is its limit."
    return figure(
        "budget", sentence, how, picture, NumberTable(("phone", "epsilon", "of the limit", "delta limit"), table)
    )
