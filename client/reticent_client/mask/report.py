"""The outcomes of the steps of a phone's days."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from reticent_client.mask.chain import UNKNOWN
from reticent_client.mask.staleness import RARE, Recent, UnusualSteps

MAX_LABELS = 16
MAX_LENGTH = 64

Outcome = Literal["released", "suppressed", "off_model", "missing", "missed", "suspended"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

CONTEXT_OUTCOMES: tuple[Outcome, ...] = ("released", "suppressed", "off_model", "suspended")
"""The outcomes of steps with a reading."""


@dataclass(frozen=True)
class MaskReport:
    """The number of steps with each outcome. Each step has one; only releases were visible.

    The report contains what the user did, and stays on the phone.
    """

    released: int
    suppressed: int
    """Suppressed by the policy."""
    off_model: int
    """The chain does not know the context, or rules it out, so the policy cannot release it."""
    missing: int
    """Nothing was read, and the chain has no context "unknown"."""
    missed: int
    """No decision was requested: the phone was off."""
    suspended: int
    """The policy's memory was lost, so nothing is released until the day ends."""
    days: int
    """The number of days with at least one decided step."""
    off_model_contexts: tuple[tuple[str, int], ...]
    """The number of occurrences of each off-model context, for the first few of them, since the process began: contexts
    are held in memory only."""
    recent: Recent
    """The unusual share of the last days, beside that of the first days."""
    seeded: bool
    """Whether the coins can be replayed, as in a simulation."""
    gaps: dict[str, int] = field(default_factory=dict)
    """The number of the decided steps without a reading, by outcome. They are released as "unknown"."""

    @property
    def steps(self) -> int:
        """The number of all steps."""
        return sum(getattr(self, outcome) for outcome in OUTCOMES)

    @property
    def contexts(self) -> int:
        """The number of steps with a reading."""
        return sum(map(self._contexts, CONTEXT_OUTCOMES))

    @property
    def released_contexts(self) -> int:
        """The number of released contexts."""
        return self._contexts("released")

    def _contexts(self, outcome: Outcome) -> int:
        """The number of steps with a reading and this outcome."""
        steps: int = getattr(self, outcome)
        return steps - self.gaps.get(outcome, 0)

    @property
    def off_model_rate(self) -> float | None:
        """The off-model share of the decided steps, over all days; None without any."""
        decided = self.released + self.suppressed + self.off_model
        return self.off_model / decided if decided else None

    @property
    def stale(self) -> bool:
        """Whether habits have changed since the chain was learned. If so, learn it anew."""
        return self.recent.stale

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self) | {
            "contexts": self.contexts,
            "released_contexts": self.released_contexts,
            "off_model_contexts": dict(self.off_model_contexts),
            "recent": self.recent.to_json(),
        }

    def __str__(self) -> str:
        days = "1 day" if self.days == 1 else f"{self.days} days"
        share = f" ({self.released_contexts / self.contexts:.0%})" if self.contexts else ""
        parts = [f"{days}: released {self.released_contexts} of {self.contexts} contexts{share}"]
        parts.append(f"suppressed {self._contexts('suppressed')}")
        others = ("off-model", self._contexts("off_model")), ("suspended", self._contexts("suspended"))
        parts += [f"{name} {count}" for name, count in others if count]
        if gaps := sum(self.gaps.values()):
            parts.append(f"{self.gaps.get('released', 0)} of {gaps} gaps released as {UNKNOWN!r}")
        if self.missed:
            parts.append(f"missed {self.missed}")
        text = ", ".join(parts)
        if self.off_model_contexts:
            named = ", ".join(f"{label!r} {n}" for label, n in self.off_model_contexts)
            text += f"; off-model contexts: {named}"
        if self.stale:
            text += f"; habits have changed: {self.recent}, so learn them again"
        return f"{text}; seeded, for simulation only" if self.seeded else text


class Tally:
    """Counts that grow."""

    def __init__(self, *, seeded: bool) -> None:
        self.counts = dict.fromkeys((*OUTCOMES, "days"), 0)
        self.gaps: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.unusual_steps = UnusualSteps()
        self.seeded = seeded

    def off_model(self, context: str | None) -> None:
        """Note the label of an off-model context."""
        if context is not None:
            self.unusual_steps.count(unusual=True, off_model=True)
        short = (UNKNOWN if context is None else context)[:MAX_LENGTH]
        if short in self.labels or len(self.labels) < MAX_LABELS:
            self.labels[short] += 1

    def expected(self, context: str | None, probability: float) -> None:
        """Count a possible context with its probability; a gap says nothing about habits."""
        if context is not None:
            self.unusual_steps.count(unusual=bool(probability < RARE))

    def report(self) -> MaskReport:
        """The counts so far."""
        return MaskReport(
            **self.counts,
            gaps=dict(self.gaps),
            off_model_contexts=tuple(self.labels.most_common()),
            recent=self.unusual_steps.recent(),
            seeded=self.seeded,
        )

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data, without contexts: this is written to the disk."""
        return {
            "counts": dict(self.counts),
            "gaps": dict(self.gaps),
            "unusual_steps": self.unusual_steps.to_json(),
            "seeded": self.seeded,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], *, seeded: bool) -> Tally:
        """The counts that `to_json` wrote; seeded if those were, or if the present coins are."""
        tally = cls(seeded=seeded or data["seeded"])
        tally.counts |= data["counts"]
        tally.gaps.update(data["gaps"])
        tally.unusual_steps = UnusualSteps.from_json(data["unusual_steps"])
        return tally
