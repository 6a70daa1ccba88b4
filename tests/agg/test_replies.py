"""Replies to phones: no more is read for them than fits a reply."""

from __future__ import annotations

import datetime as dt

from reticent.times import instant
from reticent.v1 import counting_pb2 as wire
from reticent_agg import SqlStore
from reticent_agg.counting.replies import ANONYMOUS_REPLY_BYTES, MAX_WANTED, Replies

FITTING = 3  # decisions in a reply


class Full(SqlStore):
    """A store in which everything is decided, and which counts what is read from it."""

    read = 0
    decision = wire.Decision(reason="x" * (ANONYMOUS_REPLY_BYTES // FITTING - 100))

    def decision_for_phones(self, digest: bytes, cohort: int) -> wire.Decision | None:
        self.read += 1
        return self.decision


def test_decisions_that_do_not_fit_a_reply_are_not_read() -> None:
    store = Full(None)
    replies = Replies(store, lambda: instant(0), dt.timedelta(seconds=1))
    reply = replies.decisions(wire.DecisionsRequest(wanted=[wire.DecisionWanted()] * MAX_WANTED))
    assert list(reply.decisions) == [store.decision] * FITTING
    assert store.read == FITTING + 1
    store.close()
