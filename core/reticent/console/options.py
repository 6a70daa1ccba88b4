"""Shared by the command lines of all roles: options, default addresses on one machine, JSON output."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

__all__ = [
    "AD_SERVICE",
    "AGGREGATION_METRICS",
    "AGGREGATION_SERVER",
    "ANALYSTS",
    "CERTIFICATES",
    "DECISIONS",
    "KEY_METRICS",
    "KEY_SERVER",
    "MAX_DAYS",
    "AsJson",
    "DatabaseUrl",
    "in_json",
]

CERTIFICATES = Path("certs")
KEY_SERVER = "127.0.0.1:7101"
"""Address at which phones enrol."""
DECISIONS = "127.0.0.1:7102"
"""Address at which the key server countersigns and decides."""
KEY_METRICS = "127.0.0.1:9461"
"""Address of the key server's metrics."""
AGGREGATION_METRICS = "127.0.0.1:9462"
"""Address of the aggregation server's metrics."""
AGGREGATION_SERVER = "127.0.0.1:7201"
"""Address at which phones contribute."""
ANALYSTS = "127.0.0.1:7202"
"""Address at which analysts call the aggregation server."""
AD_SERVICE = "127.0.0.1:7301"
"""Address at which phones call the ad service."""

MAX_DAYS = 36_500
"""The longest period that an option accepts."""

AsJson = Annotated[bool, Parameter(name="--json", negative=())]
DatabaseUrl = Annotated[str | None, Parameter(name="--database")]
"""A PostgreSQL database in place of the file in a server's folder."""


def in_json(content: Any, *, indent: int | None = 2) -> str:
    """The output of `--json`, without the final newline."""
    return json.dumps(content, indent=indent, allow_nan=False, default=_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
