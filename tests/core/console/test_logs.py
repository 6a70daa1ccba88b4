"""What a server logs: a line for each event, and nothing secret in it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import subprocess
import sys
import textwrap
import threading
import warnings
from typing import Any

import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from reticent.console import logs
from reticent.v1 import counting_pb2 as wire

KEY = bytes(range(32))
CIPHERTEXT = 3**3000


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_an_event_is_an_object_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("info", as_json=True)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    logging.getLogger("reticent.keys").info("%d of %s\nare in", 3, "five", extra={"query": "a\nb", "cohort": 2})
    [line] = written(capsys)
    assert before <= dt.datetime.fromisoformat(line.pop("time")) <= dt.datetime.now(dt.UTC)
    assert line == {
        "level": "info",
        "logger": "reticent.keys",
        "message": "3 of five\nare in",
        "query": "a\nb",
        "cohort": 2,
    }


def test_an_event_is_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a stranger has got into it looks like no other line."""
    logs.start_logging("info", as_json=False)
    logging.getLogger("reticent.keys").warning("from %s", "x\n2027 error\x1b[2J", extra={"query": "a b", "cohort": 2})
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith(' warning reticent.keys: from x\\n2027 error\\x1b[2J query="a b" cohort=2\n')


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_secret_is_written(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    """Neither bytes, nor messages of the wire, nor numbers as long as a ciphertext, wherever they are."""
    logs.start_logging("debug", as_json=as_json)
    log = logging.getLogger("reticent.keys")
    message = wire.JoinRequest(invitation=KEY)
    secrets = (KEY, bytearray(KEY), memoryview(KEY), message, CIPHERTEXT, -CIPHERTEXT, mpz(CIPHERTEXT))
    for secret in secrets:
        log.info("got %s", secret)
        log.info("got %r and %s", secret, [secret, (secret,)])
        log.info("got %(it)s", {"it": secret})
        log.info(
            "got",
            extra={
                "it": secret,
                "them": {"a": [secret], "b": {"c": (secret,)}},
            },
        )
        log.info(secret)
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 5 * len(secrets)
    for shown in (str(CIPHERTEXT)[:20], KEY.hex()[:20], repr(KEY)[2:20], "\\x02", "\\u0002", "\\002"):
        assert shown not in err
    assert "<32 bytes>" in err
    assert "<JoinRequest>" in err
    assert f"<{CIPHERTEXT.bit_length()} bits>" in err


@given(
    st.text(), st.dictionaries(st.text(min_size=1).filter(lambda key: key not in logs._OWN), st.text() | st.floats())
)
def test_whatever_is_logged_is_a_line(message: str, extra: dict[str, Any]) -> None:
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "name": "a", **extra})
    line = logs._Json().format(record)
    assert "\n" not in line
    assert json.loads(line)["message"] == message
    assert "\n" not in logs._Text().format(record)


def test_a_record_that_does_not_fit_its_arguments_is_still_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("info", as_json=True)
    logging.getLogger("a").info("%d of %d", "one")  # noqa: PLE1206  # that is what is tested
    logging.getLogger("a").info("%s", object())
    first, second = written(capsys)
    assert first["message"] == "%d of %d"
    assert "object" in second["message"]


def test_an_error_has_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("info", as_json=True)
    try:
        {"found": 1}["lost"]
    except KeyError:
        logging.getLogger("a").exception("failed")
    [line] = written(capsys)
    assert line["trace"].startswith("Traceback")
    assert line["trace"].endswith("KeyError: 'lost'")


def fail(words: str) -> None:
    raise ValueError(words)


def test_a_trace_cannot_move_the_cursor_of_whoever_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("info", as_json=False)
    try:
        fail("said by others\x1b[2K\rall is well\u202e")
    except ValueError:
        logging.getLogger("a").exception("failed")
    logged = capsys.readouterr().err
    assert "said by others\\x1b[2K" in logged
    assert "\nTraceback" in logged
    assert all(each.isprintable() for each in logged.replace("\n", ""))


def test_what_is_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("warning", as_json=True)
    logging.getLogger("a").info("no")
    logging.getLogger("a").warning("yes")
    logs.start_logging("debug", as_json=True)  # in place of what was there
    logging.getLogger("a").debug("yes")
    assert [line["message"] for line in written(capsys)] == ["yes", "yes"]


@pytest.mark.parametrize("level", ["INFO", "", "loud"])
def test_a_level_that_is_none_is_refused(level: str) -> None:
    with pytest.raises(ValueError, match=f"a level is one of debug, info, warning, error: got '{level}'"):
        logs.start_logging(level, as_json=True)


def test_warnings_and_errors_of_threads_and_tasks_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.start_logging("info", as_json=True)

    def fail() -> None:
        raise KeyError("in a thread")

    async def scene() -> None:
        async def fail_too() -> None:
            raise KeyError("in a task")

        task = asyncio.ensure_future(fail_too())
        await asyncio.sleep(0.01)
        del task

    thread = threading.Thread(target=fail, name="writer")
    thread.start()
    thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", stacklevel=1)
        logging.captureWarnings(capture=False)
    asyncio.run(scene())
    lines = written(capsys)
    assert [(line["logger"], line["level"]) for line in lines] == [
        ("reticent.console.logs", "error"),
        ("py.warnings", "warning"),
        ("asyncio", "error"),
    ]
    assert lines[0]["thread_name"] == "writer"
    assert "in a thread" in lines[0]["trace"]
    assert "in a task" in lines[2]["trace"]


def test_what_ends_a_program_is_logged() -> None:
    code = """
        from reticent.console import logs
        logs.start_logging("error", True)
        raise KeyError("lost")
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    [line] = map(json.loads, run.stderr.splitlines())
    assert (line["level"], line["logger"]) == ("critical", "reticent.console.logs")
    assert line["trace"].endswith("KeyError: 'lost'")
