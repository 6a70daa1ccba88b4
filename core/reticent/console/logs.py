"""Logs of a server on standard error: one line per event, as JSON or as text.

Bytes, protobuf messages and very long numbers are never written: they may be keys, shares, tokens or ciphertexts.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import threading
from collections.abc import Mapping
from numbers import Integral
from types import TracebackType
from typing import Any

from google.protobuf.message import Message

from reticent.console.text import printable

__all__ = ["LEVELS", "change_level", "start_logging"]

LEVELS = ("debug", "info", "warning", "error")

_MAX_BITS = 64
"""Bits of the longest number that is written."""

_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; all others are extra fields."""

_log = logging.getLogger(__name__)


def start_logging(level: str, as_json: bool) -> None:
    """Write all logs from now on, and uncaught errors as well."""
    if level not in LEVELS:
        raise ValueError(f"a level is one of {', '.join(LEVELS)}: got {level!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_a_thread


def change_level(steps: int) -> None:
    """Log in more detail from now on, or in less if the number of steps is negative."""
    root = logging.getLogger()
    place = LEVELS.index(logging.getLevelName(root.level).lower()) - steps
    level = LEVELS[min(max(place, 0), len(LEVELS) - 1)]
    root.setLevel(level.upper())
    _log.log(root.level, "the log level is %s", level)


class _Text(logging.Formatter):
    """Text: one line, and the traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {key}={_shown(value)}" for key, value in _extra(record).items())
        line = printable(f"{_message(record)}{extra}")
        text = f"{_time(record)} {record.levelname.lower()} {record.name}: {line}"
        trace = "\n".join(map(printable, _trace(self, record).splitlines()))  # a traceback may quote strangers
        return f"{text}\n{trace}" if trace else text


class _Json(logging.Formatter):
    """JSON: one object in one line, whatever is logged."""

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if trace := _trace(self, record):
            content["trace"] = trace
        extra = {key: value for key, value in _extra(record).items() if key not in content}
        return json.dumps(content | extra, default=str)


def _message(record: logging.LogRecord) -> str:
    """The message without secrets. A record that does not fit its arguments is still one line."""
    arguments = record.args
    shown: Any = _redacted(arguments) if isinstance(arguments, Mapping) else tuple(map(_redacted, arguments or ()))
    message = str(_redacted(record.msg))
    try:
        return message % shown if shown else message
    except (TypeError, ValueError, KeyError):
        return message


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: _redacted(value) for key, value in vars(record).items() if key not in _OWN}


def _redacted(value: Any) -> Any:
    """The value, or a placeholder if it may be a secret."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Message):
        return f"<{type(value).__name__}>"
    if isinstance(value, Integral) and int(value).bit_length() > _MAX_BITS:  # gmpy2's integers are not int
        return f"<{int(value).bit_length()} bits>"
    if isinstance(value, Mapping):
        return {str(_redacted(key)): _redacted(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(each) for each in value]
    return value


def _shown(value: Any) -> str:
    return (
        str(value) if isinstance(value, int | float | str) and " " not in str(value) else json.dumps(value, default=str)
    )


def _time(record: logging.LogRecord) -> str:
    return dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _log.critical("an uncaught error ends the program", exc_info=(kind, error, trace))


def _uncaught_in_a_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        name = failure.thread.name if failure.thread else None
        _log.error("an uncaught error ends a thread", exc_info=failure.exc_value, extra={"thread_name": name})
