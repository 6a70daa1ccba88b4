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
    """Why a context is released or suppressed."""
    if explanation.suppression is None:
        return "impossible, given the last release"
    if explanation.release is None:
        effect = "a release would reveal nothing"
    elif explanation.release.excessive:
        always = "a release" if explanation.suppression == 1 else "a release whatever came before"
        effect = f"{always} would reveal too much: {_belief(explanation.release, horizon)}"
    else:
        effect = f"a release reveals at most: {_belief(explanation.release, horizon)}"
    match explanation.reason:
        case "mask":
            return f"sensitive, and masked whatever that reveals; {effect}"
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
    return f"if it were always released, a suppression would reveal: {_belief(effect, horizon)}"


def _belief(effect: Effect, horizon: int) -> str:
    """The context, the rise of the belief in it, and the allowed belief."""
    place = f"{effect.context!r} at {time_of(effect.step, horizon)}"
    when = {"before": " (since the last release)", "now": "", "after": " (later)"}[effect.when]
    allowed = "" if effect.bound is None else f", allowed {percent(effect.bound)}"
    return f"{place}{when} from {percent(effect.prior)} to {percent(effect.belief)}{allowed}"
