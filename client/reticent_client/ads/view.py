"""The log of ads, its explanations and the settings as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reticent.hierarchy import Node
from reticent_client.ads.log import LogEntry

__all__ = ["explained", "logged", "status"]

EVENTS = 5
"""The sensitive contexts that are listed, those with the largest disclosure."""

Summary = Mapping[str, Any] | None


def logged(entry: LogEntry) -> str:
    """A line about an entry."""
    outcome = "no ad" if entry.ad is None else f"{entry.ad}{' (clicked)' if entry.clicked else ''}"
    return f"{entry.at:%Y-%m-%d %H:%M:%S} UTC  {entry.app or '-'}  {outcome}  sent {entry.node}"


def explained(entries: Sequence[LogEntry], summary: Summary) -> Iterator[str]:
    """The last requests, the newest first, and what the cut allows."""
    if not entries:
        yield "no app has requested an ad yet"
    for entry in entries:
        yield from _explained(entry)
        yield ""
    yield from _disclosure(summary)


def status(summary: Summary, *, shown: int, clicked: int) -> Iterator[str]:
    """The settings and the size of the log."""
    yield f"log: {shown} ads shown, {clicked} clicked"
    if summary is None:
        yield "settings: none yet; they are those of the last `reticent phone run --ads`"
        return
    apps = ", ".join(summary["apps"]) or "none"
    yield f"service: {summary['service']}; apps that may show ads: {apps}; at most {summary['max_per_day']} ads a day"
    yield f"hierarchy: {summary['hierarchy'][:16]}, {summary['contexts']} contexts"
    if summary["exact_under_mask"]:
        yield "exact_under_mask is on: apps and the service may learn what the mask hides"
    yield from _disclosure(summary)


def _explained(entry: LogEntry) -> Iterator[str]:
    explanation = entry.explanation or {}
    candidates, age = explanation.get("candidates", []), explanation.get("age")
    yield logged(entry)
    if entry.context is None:
        yield "  exact context: not known, no label with a place was released"
    elif entry.node == str(Node(0, entry.context)):
        yield "  exact context: the one that was sent, as the settings allow"
    else:
        yield f"  exact context, on the phone only: {', '.join(entry.context)}"
    if age is None:
        yield f"  no ads to choose from: {explanation.get('problem') or 'the ad service has not replied yet'}"
    else:
        yield f"  reply of the service: {len(candidates)} ads, {age:.0f} s old"
    for each in candidates:
        yield f"  {each['ad']}: {_verdict(each, entry.ad)}"


def _verdict(candidate: Mapping[str, Any], shown: str | None) -> str:
    removed = [f"removed by the rule {name!r} ({reason})" for name, reason in candidate["removed_by"].items()]
    rate = candidate["rate"]
    if not candidate["revenue"]:
        lost = "no payment is expected in this context"
    else:
        lost = "shown" if candidate["ad"] == shown else "another ad promises more"
    outcome = "; ".join(removed) or lost
    if rate is None:
        return f"{outcome}: the reply has no rate for it" if not removed else f"{outcome}; no rate for this context"
    interval = f"{rate['rate']:.4g} ({rate['low']:.4g} to {rate['high']:.4g})"
    return f"{outcome}; rate {interval} at {rate['node']}, {candidate['revenue']:.4g} expected"


def _disclosure(summary: Summary) -> Iterator[str]:
    """The generalisation that the user chose, and what it discloses."""
    if summary is None:
        return
    chosen = f"level {summary['level']}" if summary["level"] is not None else f"delta = {summary['delta']:g}"
    yield f"cut: {summary['nodes']} generalised contexts for {summary['contexts']} exact ones ({chosen})"
    rises = sorted(summary["disclosure"].items(), key=lambda each: -each[1])
    for event, rise in rises[:EVENTS]:
        yield f"  one request raises the service's belief in {event} by at most {rise:.4g}"
    if len(rises) > EVENTS:
        yield f"  and in {len(rises) - EVENTS} other sensitive contexts by no more than that; --json has them all"
