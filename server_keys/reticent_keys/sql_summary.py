"""A key server's journal in numbers, in SQL."""

from __future__ import annotations

from reticent.storage.sql import Execute
from reticent.times import instant
from reticent_keys.summaries import KeyServerSummary, KeySummary

__all__ = ["summary_of"]


def summary_of(run: Execute, now: int) -> KeyServerSummary:
    """The content in numbers."""
    row = run(
        "SELECT identity, copied, (SELECT count(*) FROM phones WHERE ended IS NULL AND expires > ?),"
        " (SELECT count(*) FROM phones),"
        " (SELECT count(*) FROM invitations WHERE phone IS NULL AND expires > ?),"
        " (SELECT count(*) FROM queries), (SELECT count(*) FROM decisions) FROM server",
        (now, now),
    ).fetchone()
    keys = run(
        "SELECT id, state, bits, made, activated, count(query),"
        " CAST(coalesce(sum(CASE WHEN deadline > ? THEN undecided ELSE 0 END), 0) AS INTEGER),"
        " CAST(coalesce(sum(CASE WHEN deadline > ? THEN 0 ELSE undecided END), 0) AS INTEGER)"
        " FROM keys LEFT JOIN progress ON key = keys.number GROUP BY keys.number ORDER BY keys.number DESC",
        (now, now),
    ).fetchall()
    summaries = tuple(
        KeySummary(
            key_id,
            state,
            bits,
            instant(made),
            None if since is None else instant(since),
            queries,
            undecided,
            overdue,
        )
        for key_id, state, bits, made, since, queries, undecided, overdue in keys
    )
    identity, copied, members, phones, invitations, queries, decided = row
    since = None if copied is None else instant(copied)
    return KeyServerSummary(identity.hex(), members, phones, invitations, queries, decided, summaries, since)
