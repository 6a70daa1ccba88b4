"""Descriptions of a chain, a policy, a stored state or a file of days: rows for people, facts for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent_client.mask.chain import UNKNOWN, MarkovChain
from reticent_client.mask.days_file import DayRecord
from reticent_client.mask.explanation_text import percent
from reticent_client.mask.occupancy import AverageDay
from reticent_client.mask.policy import Policy
from reticent_client.mask.snapshot import SNAPSHOT, report_of
from reticent_client.mask.times_of_day import time_of

_SHORT = 8  # characters of a fingerprint that tell a phone's few policies apart


@dataclass(frozen=True)
class Description:
    """The description of a file."""

    kind: str
    rows: list[tuple[str, str]]
    facts: dict[str, Any]
    contexts: list[tuple[str, ...]] = field(default_factory=list)
    """A row for each context, after the header."""

    def to_json(self) -> dict[str, Any]:
        """The facts, and the kind."""
        return {"kind": self.kind} | self.facts


def describe_chain(chain: MarkovChain) -> Description:
    """Contexts, steps, gaps, and how much the chain rules out."""
    often = chain.prior.sum(axis=0)
    possible = (chain.transitions > 0) & chain.reachable[:-1, :, None]
    share = float(possible.sum()) / max(possible.size, 1)
    gaps = 0.0 if (gap := chain.find(UNKNOWN)) is None else float(often[gap])
    rows = [
        ("steps", f"{chain.horizon} a day"),
        ("contexts", str(chain.size - (chain.find(UNKNOWN) is not None))),
        ("gaps", f"{gaps:.2f} steps a day"),
        ("possible moves", f"{int(possible.sum())} of {possible.size} ({percent(share)})"),
    ]
    peaks = chain.prior.argmax(axis=0)
    contexts: list[tuple[str, ...]] = [("context", "steps a day", "most likely at")]
    contexts += [
        (
            chain.contexts[i],
            f"{often[i]:.2f}",
            f"{time_of(int(peaks[i]), chain.horizon)} ({percent(chain.prior[peaks[i], i])})",
        )
        for i in np.argsort(-often, kind="stable")
        if chain.contexts[i] != UNKNOWN
    ]
    facts = {
        "steps": chain.horizon,
        "contexts": dict(zip(chain.contexts, often.tolist(), strict=True)),
        "possible_moves": share,
    }
    return Description("chain", rows, facts, contexts)


def describe_policy(policy: Policy, ceiling: float | None) -> Description:
    """The check, the promise, what is released, and how far that is from the most possible."""
    chain = policy.chain
    day = AverageDay.of(policy)
    often, released, gap = day.expected, day.released, day.gap
    own = all(other is chain for other in policy.against)
    rows = [
        ("check", policy.check),
        *(("sensitive", text) for text in _promises(policy)),
        ("adversaries", "one, who knows the user's chain" if own else f"{len(policy.against)}, who know given chains"),
        ("steps", f"{policy.horizon} a day"),
        ("contexts", str(chain.size - (gap is not None))),
        ("releases", f"{day.released_contexts:.2f} of {day.contexts:.2f} contexts a day"),
    ]
    how = ""
    if policy.chosen_weights:
        how = " by weights"
        rows.append(("weights", weights_text(policy.chosen_weights)))
        rows.append(("by weights", f"{policy.utility:.2f} of {policy.readings:.2f} a day"))
    most = "not known" if ceiling is None else f"{ceiling:.2f}{how}, {max(ceiling - policy.utility, 0):.2f} more"
    rows += [("at most possible", most), ("search", "complete" if policy.complete else "cut short")]
    if gap is not None:
        rows.append(("gaps", f"{released[gap]:.2f} of {often[gap]:.2f} steps a day released as {UNKNOWN!r}"))
    rows.append(("fingerprint", policy.fingerprint()[:_SHORT]))
    contexts: list[tuple[str, ...]] = [("context", "steps a day", "released")]
    contexts += [
        (label, f"{often[i]:.2f}", percent(released[i] / often[i]) if often[i] > 0 else "-")
        for i, label in enumerate(chain.contexts)
        if label != UNKNOWN
    ]
    facts = {
        "check": policy.check,
        "sensitive": [
            {"context": state} | {"delta": _finite(delta)}
            if isinstance(state, str)
            else {"context": state[1], "step": state[0], "delta": _finite(delta)}
            for state, delta in policy.sensitive.items()
        ],
        "adversaries": len(policy.against),
        "steps": policy.horizon,
        "weights": policy.weights,
        "readings": policy.readings,
        "utility": policy.utility,
        "ceiling": ceiling,
        "complete": policy.complete,
        "contexts": {
            label: {"expected": float(often[i]), "released": float(released[i])}
            for i, label in enumerate(chain.contexts)
        },
        "fingerprint": policy.fingerprint(),
    }
    return Description("policy", rows, facts, contexts)


def describe_days(days: Sequence[DayRecord]) -> Description:
    """Describe days: their number, their steps and their contexts."""
    steps = len(days[0].labels) if days else 0
    labels = Counter(label for day in days for label in day.labels)
    gaps = labels.pop(None, 0) + labels.pop(UNKNOWN, 0)
    on_days = Counter(label for day in days for label in set(day.labels))
    names = f": {days[0].name} to {days[-1].name}" if days else ""
    rows = [
        ("days", f"{len(days)}{names}"),
        ("steps", f"{steps} a day"),
        ("contexts", str(len(labels))),
        ("gaps", f"{gaps} of {steps * len(days)} steps"),
    ]
    contexts: list[tuple[str, ...]] = [("context", "steps", "on days")]
    contexts += [(str(label), str(number), str(on_days[label])) for label, number in labels.most_common()]
    facts = {"days": [day.name for day in days], "steps": steps, "contexts": dict(labels), "gaps": gaps}
    return Description("days", rows, facts, contexts)


def describe_state(snapshot: str) -> Description:
    """Describe the state of a mask: its position, and the outcomes of its steps."""
    day, report = report_of(snapshot)
    state = SNAPSHOT.parse(snapshot)
    rows = [
        ("policy", state["policy"][:_SHORT]),
        ("day", "without a name" if day is None else day),
        ("next step", str(state["step"])),
        ("memory", "lost: nothing is released until the day ends" if state["memory"] is None else "known"),
        ("report", str(report)),
    ]
    facts = {"policy": state["policy"], "day": day, "next_step": state["step"], "suspended": state["memory"] is None}
    return Description("state", rows, facts | {"report": report.to_json()})


def weights_text(weights: Mapping[str, float]) -> str:
    """Weights by context."""
    return ", ".join(f"{label} {weight:g}" for label, weight in weights.items())


def _promises(policy: Policy) -> list[str]:
    """The sensitive contexts, and the steps where only some are, by their deltas."""
    found = []
    for label, column in zip(policy.contexts, policy.deltas.T, strict=True):
        for delta in np.unique(column[~np.isnan(column)]):
            steps = np.flatnonzero(column == delta)
            when = "" if len(steps) == policy.horizon else f" at {_times(steps.tolist(), policy.horizon)}"
            found.append(f"{label!r}{when}, {'no promise' if np.isinf(delta) else f'delta {delta:g}'}")
    return found


def _times(steps: Sequence[int], horizon: int) -> str:
    shown = ", ".join(time_of(step, horizon) for step in steps[:8])
    return shown + (f" and {len(steps) - 8} more steps" if len(steps) > 8 else "")


def _finite(delta: float) -> float | None:
    return None if np.isinf(delta) else delta
