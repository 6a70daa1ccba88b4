"""What became of the steps of a phone's days."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

MAX_LABELS = 16
MAX_LENGTH = 64

OUTCOMES = ("released", "suppressed", "off_model", "missing", "missed", "dark")


@dataclass(frozen=True)
class Report:
    """How many steps had each outcome. Every step has one; only the first was visible.

    It holds what the user did: it stays on the phone.
    """

    released: int
    suppressed: int
    """By the policy's coin."""
    off_model: int
    """The policy gives no release for such a context: the chain does not know it, or rules it out."""
    missing: int
    """Nothing was read, and the chain knows no context "unknown"."""
    missed: int
    """Nobody asked: the phone was off."""
    dark: int
    """The policy's memory was lost, so nothing was released until the day ended."""
    days: int
    """Those of which at least one step was decided."""
    off_model_contexts: tuple[tuple[str, int], ...]
    """How often each off-model context came, for the first few that did."""
    seeded: bool
    """Whether the coins can be replayed: then this was a simulation."""

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(getattr(self, outcome) for outcome in OUTCOMES)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self) | {"off_model_contexts": dict(self.off_model_contexts)}

    def __str__(self) -> str:
        days = "1 day" if self.days == 1 else f"{self.days} days"
        share = f" ({self.released / self.steps:.0%})" if self.steps else ""
        parts = [f"{days}: released {self.released} of {self.steps} steps{share}"]
        parts.append(f"suppressed {self.suppressed}")
        parts += [
            f"{outcome.replace('_', '-')} {count}" for outcome in OUTCOMES[2:] if (count := getattr(self, outcome))
        ]
        text = ", ".join(parts)
        if self.off_model_contexts:
            named = ", ".join(f"{label!r} {n}" for label, n in self.off_model_contexts)
            text += f"; off-model contexts: {named}"
        return f"{text}; seeded, for simulation only" if self.seeded else text


class Tally:
    """Counts that grow."""

    def __init__(self, *, seeded: bool) -> None:
        self.counts = dict.fromkeys((*OUTCOMES, "days"), 0)
        self.labels: Counter[str] = Counter()
        self.seeded = seeded

    def off_model(self, label: str) -> None:
        """Count a context that the policy gives no release for."""
        self.counts["off_model"] += 1
        short = label[:MAX_LENGTH]
        if short in self.labels or len(self.labels) < MAX_LABELS:
            self.labels[short] += 1

    def report(self) -> Report:
        """The counts so far."""
        common = tuple(self.labels.most_common())
        return Report(**self.counts, off_model_contexts=common, seeded=self.seeded)

    def to_json(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {
            "counts": dict(self.counts),
            "off_model": dict(self.labels),
            "seeded": self.seeded,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], *, seeded: bool) -> Tally:
        """The counts that `to_json` wrote; seeded if they were, or what comes now is."""
        tally = cls(seeded=seeded or data["seeded"])
        tally.counts |= data["counts"]
        tally.labels.update(data["off_model"])
        return tally
