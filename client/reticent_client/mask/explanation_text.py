"""Numbers and reasons of an explanation, in words."""

from __future__ import annotations

from reticent_client.mask.explanation import Answer, Effect
from reticent_client.mask.times_of_day import time_of


def percent(share: float) -> str:
    """Three digits of a percentage.

    >>> percent(0.5), percent(0.12345), percent(0.0)
    ('50%', '12.3%', '0%')
    """
    return f"{100 * share:.3g}%"


def reason(answer: Answer, horizon: int) -> str:
    """Why a context is released or suppressed."""
    if answer.suppression is None:
        return "impossible, given the last release"
    if answer.release is None:
        told = "a release would tell nothing"
    elif answer.release.told:
        always = "a release" if answer.suppression == 1 else "a release whatever came before"
        told = f"{always} would tell too much: {_belief(answer.release, horizon)}"
    else:
        told = f"a release tells at most: {_belief(answer.release, horizon)}"
    match answer.reason:
        case "mask":
            return f"sensitive, and masked without regard to what that tells; {told}"
        case "cover":
            return f"cover: {told}, which is fine, but {_silence(answer.silence, horizon)}"
        case _:
            return told


def _silence(effect: Effect | None, horizon: int) -> str:
    if effect is None:
        return "other contexts at this step, or what comes later, must not be told apart from it"
    return f"if it were always released, silence would tell: {_belief(effect, horizon)}"


def _belief(effect: Effect, horizon: int) -> str:
    """What would be believed of which context, and what may be."""
    place = f"{effect.context!r} at {time_of(effect.step, horizon)}"
    when = {"before": " (since the last release)", "now": "", "after": " (later)"}[effect.when]
    allowed = "" if effect.bound is None else f", allowed {percent(effect.bound)}"
    return f"{place}{when} from {percent(effect.prior)} to {percent(effect.belief)}{allowed}"
