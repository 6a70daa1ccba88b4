"""What every journal of a key server must do, whatever stores it: a new implementation has to pass all of `CHECKS`."""

from __future__ import annotations

from collections.abc import Callable

from tests.keys import journal_races
from tests.keys.journal_checks import atomicity, decisions, keys, phones, queries, restored, server
from tests.keys.journal_setting import Setting

__all__ = ["CHECKS"]

CHECKS: dict[str, Callable[[Setting], None]] = {
    name.removeprefix("check_"): check
    for module in (server, phones, keys, queries, decisions, restored, atomicity, journal_races)
    for name, check in vars(module).items()
    if name.startswith("check_")
}
