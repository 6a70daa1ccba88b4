"""What the command lines of the roles have in common: options, where all meet on one machine, how things are shown."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

__all__ = [
    "AGGREGATION_SERVER",
    "ANALYSTS",
    "CERTIFICATES",
    "DECISIONS",
    "KEY_SERVER",
    "MAX_DAYS",
    "AsJson",
    "in_json",
]

CERTIFICATES = Path("certs")
KEY_SERVER = "127.0.0.1:7101"
"""Where phones enrol."""
DECISIONS = "127.0.0.1:7102"
"""Where the key server countersigns and decides."""
AGGREGATION_SERVER = "127.0.0.1:7201"
"""Where phones contribute."""
ANALYSTS = "127.0.0.1:7202"
"""Where the aggregation server is asked."""

MAX_DAYS = 36_500
"""The longest that anything is said to last."""

AsJson = Annotated[bool, Parameter(name="--json")]


def in_json(content: Any, *, indent: int | None = 2) -> str:
    """What `--json` writes, without the end of the line."""
    return json.dumps(content, indent=indent, allow_nan=False, default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
