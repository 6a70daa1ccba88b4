"""The deletion of old queries' phones and receipts from the aggregation server's database, some rows at a time."""

from __future__ import annotations

from reticent.storage.sql import Execute
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sql_schema as sql

__all__ = ["delete_rejected", "prune"]

_KEYS = {"dealt": "phone", "receipts": "cohort, phone", "requests": "cohort"}
"""The tables with the phones of a query, and the keys by which their rows are ordered."""


def prune(run: Execute, before: int, rows: int) -> list[str] | None:
    """Delete so many rows, within a transaction; the ids of the queries that are done, or None if nothing is left.

    A query counts as pruned from its first deleted row on. Until its last one is deleted, it is listed in `pruning`.
    """
    found = run("SELECT query FROM pruning").fetchone() or _begin(run, before)
    if found is None:
        return _delete_rejected(run, before, rows)
    (number,) = found
    left = rows
    for table, key in _KEYS.items():
        if left:
            left -= _delete(run, table, key, number, left)
    if not left:
        return []
    run("DELETE FROM pruning WHERE query = ?", (number,))
    return [query_id for (query_id,) in run("SELECT id FROM queries WHERE number = ?", (number,))]


def _begin(run: Execute, before: int) -> tuple[int] | None:
    """The number of the next query to prune, which is marked as pruned."""
    found: tuple[int] | None = run(sql.DECIDED_BEFORE, (before,)).fetchone()
    if found is None:
        found = run(sql.LOST_BEFORE, (wire.CLOSING, before)).fetchone()
    if found is not None:
        run("UPDATE queries SET pruned = TRUE WHERE number = ?", found)
        run("INSERT INTO pruning VALUES (?)", found)
    return found


def _delete(run: Execute, table: str, key: str, number: int, rows: int) -> int:
    """Delete the first rows of a query, at most so many; returns their number."""
    at = f"SELECT {key} FROM {table} WHERE query = ? ORDER BY {key} LIMIT 1 OFFSET ?"  # noqa: S608  # constants
    last = run(at, (number, rows - 1)).fetchone()
    if last is None:
        return run(f"DELETE FROM {table} WHERE query = ?", (number,)).rowcount  # noqa: S608
    marks = ", ".join("?" * len(last))
    return run(
        f"DELETE FROM {table} WHERE query = ? AND ({key}) <= ({marks})",  # noqa: S608
        (number, *last),
    ).rowcount


def _delete_rejected(run: Execute, before: int, rows: int) -> list[str] | None:
    found = run(sql.REJECTED_BEFORE, (wire.ANNOUNCED, before, rows)).fetchall()
    if not found:
        return None
    return [query_id for digest, query_id in found if delete_rejected(run, digest)]


def delete_rejected(run: Execute, digest: bytes) -> bool:
    """Delete a query that the key server has refused to countersign; False if it is none, or is countersigned now."""
    return run(sql.DELETE_REJECTED, (digest, wire.ANNOUNCED)).rowcount == 1
