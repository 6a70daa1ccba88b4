"""What phones are told: no more is read for them than fits a reply."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Iterator
from typing import Any

from reticent.storage.database import Execute
from reticent.times import instant
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.replies import ANONYMOUS_REPLY_BYTES, MAX_WANTED, Telling
from reticent_agg.database import opened

MOST = 3  # decisions in a reply
START = instant(0)


class Counted:
    """A database that counts what is read from it."""

    def __init__(self) -> None:
        self.database = opened(None)
        self.read = 0

    @contextlib.contextmanager
    def reading(self) -> Iterator[Execute]:
        with self.database.reading() as run:

            def counted(statement: str, *values: Any) -> sqlite3.Cursor:
                self.read += 1
                return run(statement, *values)

            yield counted


def test_decisions_that_do_not_fit_a_reply_are_not_read() -> None:
    counted = Counted()
    decision = wire.Decision(reason="x" * (ANONYMOUS_REPLY_BYTES // MOST - 100))
    with counted.database.transaction() as run:
        run("INSERT INTO queries (digest, id, content, plaintexts, phase, announced) VALUES (x'', 'q', x'', 1, 4, 0)")
        run("INSERT INTO decisions VALUES (1, 0, ?, 0)", (decision.SerializeToString(),))
    telling = Telling(counted, lambda: START, dt.timedelta(seconds=1))
    reply = telling.decisions([wire.DecisionWanted(query=b"", cohort=0)] * MAX_WANTED)
    assert list(reply.decisions) == [decision] * MOST
    assert counted.read == MOST + 1
    counted.database.close()
