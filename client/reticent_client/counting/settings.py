"""A user's settings for counts, kept in the store: the budget and the policy."""

from __future__ import annotations

from functools import lru_cache

from reticent.privacy import DEFAULT_BUDGET, Cost
from reticent.storage.documents import DocumentFormat
from reticent_client.counting.consent import Participation
from reticent_client.errors import FileError
from reticent_client.store import PhoneStore

__all__ = ["BUDGET", "DEFAULT_BUDGET", "PARTICIPATION", "kept_budget", "kept_participation"]

FORMAT = DocumentFormat("reticent-budget", 1, "a budget")
BUDGET = "counting/budget"
"""The slot of the budget."""
PARTICIPATION = "counting/policy"
"""The slot of what the user allows."""


def kept_budget(store: PhoneStore, epsilon: float | None = None, delta: float | None = None) -> Cost:
    """The budget of a phone, which is set when the phone is first used.

    Raises:
        ValueError: It was set to another.
    """
    slot = store.slot(BUDGET)
    text = slot.read()
    if text is None:
        budget = Cost(
            DEFAULT_BUDGET.epsilon if epsilon is None else epsilon, DEFAULT_BUDGET.delta if delta is None else delta
        )
        slot.write(FORMAT.text({"epsilon": budget.epsilon, "delta": budget.delta}))
        return budget
    try:
        kept = Cost(**FORMAT.parse(text))
    except (ValueError, TypeError) as error:
        raise FileError(f"the store is damaged: its budget cannot be read ({error})") from error
    if epsilon not in (None, kept.epsilon) or delta not in (None, kept.delta):
        raise ValueError(
            f"this phone's budget is epsilon = {kept.epsilon:g} and delta = {kept.delta:g}: it is set once and stays"
        )
    return kept


def kept_participation(store: PhoneStore, policy: Participation | None = None) -> Participation:
    """The user's policy: the given one, which is then kept, or the last one that was kept."""
    slot = store.slot(PARTICIPATION)
    if policy is None:
        text = slot.read()
        try:
            return _participation(text)
        except ValueError as error:
            raise FileError(f"the store is damaged: what the user allows cannot be read ({error})") from error
    if slot.read() != policy.to_text():
        slot.write(policy.to_text())
    return policy


@lru_cache(maxsize=16)
def _participation(text: str | None) -> Participation:
    """A policy; the last ones are kept, because a phone reads its policy in each round."""
    return Participation() if text is None else Participation.from_text(text)
