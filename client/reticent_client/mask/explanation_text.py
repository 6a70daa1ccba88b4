"""The text of an explanation: percentages and reasons."""

from __future__ import annotations

from reticent_client.mask.explanation import ContextExplanation, Effect, Hidden
from reticent_client.mask.times_of_day import time_of


def percent(share: float) -> str:
    """Three digits of a percentage.

    >>> percent(0.5), percent(0.12345), percent(0.0)
    ('50%', '12.3%', '0%')
    """
    return f"{100 * share:.3g}%"


def reason(explanation: ContextExplanation, horizon: int, hidden: Hidden | None = None) -> str:
    """The reason for releasing or suppressing a context."""
    if explanation.suppression is None:
        return "impossible, given the last release"
    if explanation.release is None:
        effect = "releasing reveals nothing"
    elif explanation.release.excessive:
        releasing = "releasing" if explanation.suppression == 1 else "always releasing"
        effect = f"{releasing} would raise {_belief(explanation.release, horizon)}"
    else:
        effect = f"releasing raises {_belief(explanation.release, horizon, 'at most ')}"
    match explanation.reason:
        case "mask":
            return f"sensitive, and always masked; {effect}"
        case "cover":
            return f"cover: {effect}; but {_silence(explanation.silence, horizon, hidden)}"
        case _:
            return effect


def _silence(effect: Effect | None, horizon: int, hidden: Hidden | None) -> str:
    if effect is None:
        if hidden is None:
            return "the check found no private policy that releases it more often"
        contexts = ", ".join(map(repr, hidden.contexts))
        return f"an adversary must not tell it apart from {contexts} at {time_of(hidden.step, horizon)}"
    return f"if it were always released, suppressing it would raise {_belief(effect, horizon)}"


def _belief(effect: Effect, horizon: int, at_most: str = "") -> str:
    """The belief in a context, its rise, and its limit."""
    belief = f"the belief in {effect.context!r} at {time_of(effect.step, horizon)}"
    limit = "" if effect.bound is None else f" (limit {percent(effect.bound)})"
    return f"{belief} from {percent(effect.prior)} to {at_most}{percent(effect.belief)}{limit}"
