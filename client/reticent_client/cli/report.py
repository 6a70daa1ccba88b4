"""`reticent phone report`: what became of a phone's steps, and whether its user's habits have changed."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.console.options import AsJson, in_json
from reticent.errors import ExitCode
from reticent_client.apps.mask_runner import MASKS
from reticent_client.cli.stores import STORE, StoreFile, check_exists
from reticent_client.errors import FileError
from reticent_client.mask.report import MaskReport
from reticent_client.mask.snapshot import report_of
from reticent_client.store import PhoneStore

_SHORT = 8  # characters of a fingerprint that tell a phone's few policies apart


@dataclass(frozen=True)
class PolicyReport:
    """The outcomes of the steps that one policy decided."""

    policy: str
    """Its fingerprint."""
    day: str | None
    """The last one that it was in charge of."""
    report: MaskReport

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        report = self.report.to_json()
        del report["off_model_contexts"]  # a store does not hold them
        return {"policy": self.policy, "day": self.day, "report": report}

    def __str__(self) -> str:
        return f"policy {self.policy[:_SHORT]}, last on {self.day}: {self.report}"


def report(*, store: StoreFile = STORE, as_json: AsJson = False) -> int:
    """Show the outcomes of a phone's steps for each policy, and whether habits have changed since they were learned.

    The phone may be running. The report contains what the user did: keep it on the phone.

    Exits with 1 if habits have changed. Then learn them again.

    Args:
        store: The phone's store.
        as_json: Print JSON.
    """
    found = _reports(store)
    if as_json:
        sys.stdout.write(in_json([each.to_json() for each in found]) + "\n")
    else:
        sys.stdout.write("".join(f"{each}\n" for each in found) or "no step was decided yet\n")
    return ExitCode.BAD_ANSWER if any(each.report.stale for each in found) else ExitCode.DONE


def _reports(path: Path) -> list[PolicyReport]:
    """One for each policy of a phone, the one that was in charge last first."""
    check_exists(path)
    try:
        with contextlib.closing(PhoneStore(path)) as store:
            snapshots = store.beginning_with(MASKS)
    except FileError as error:
        raise ValueError(str(error)) from error
    found = [PolicyReport(name, *_read(path, text)) for name, text in snapshots.items()]
    return sorted(found, key=lambda each: each.day or "", reverse=True)


def _read(path: Path, snapshot: str) -> tuple[str | None, MaskReport]:
    try:
        return report_of(snapshot)
    except FileError as error:
        raise ValueError(f"{path}: {error}") from error
