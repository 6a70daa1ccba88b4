"""The state of a mask as text, with a digest that detects damage, and the report that the text contains."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from reticent.storage.documents import DocumentFormat
from reticent_client.errors import FileError
from reticent_client.mask.report import MaskReport, Tally

SNAPSHOT = DocumentFormat("reticent-mask", 1, "a stored state", FileError)


def snapshot_of(state: dict[str, Any]) -> str:
    """The state as text for `state_of`."""
    return SNAPSHOT.text(state | {"digest": _digest(state)})


def state_of(snapshot: str) -> dict[str, Any]:
    """The state in a snapshot.

    Raises:
        FileError: The snapshot is damaged, or of another version.
    """
    state = SNAPSHOT.parse(snapshot)
    if state.pop("digest", None) != _digest(state):
        raise FileError("the stored state is damaged: its digest does not fit its content")
    return state


def report_of(snapshot: str) -> tuple[str | None, MaskReport]:
    """The day and the report of a snapshot, of any policy."""
    state = state_of(snapshot)
    return state["day"], Tally.from_json(state, seeded=False).report()


def _digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode("ascii")).hexdigest()
