"""The queries in an aggregation server's database, as it keeps them: one row each."""

from __future__ import annotations

from typing import Any

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import Execute
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sql_schema as sql
from reticent_agg.store import StoredQuery

__all__ = ["known_query", "query_of", "stored", "text_of"]


def query_of(run: Execute, column: str, value: bytes | str) -> StoredQuery | None:
    """The query with this value in a column; None if there is none."""
    row = run(sql.QUERY.format(column), (value,)).fetchone()
    return None if row is None else stored(row)


def stored(row: tuple[Any, ...]) -> StoredQuery:
    """The query of a row."""
    digest, query_id, owner, phase, announced, closes, refusal, detail, pruned = row
    refused = None if refusal is None else Refused(Refusal[refusal], detail)
    return StoredQuery(
        digest, query_id, owner, wire.Phase.ValueType(phase), announced, closes, refused, pruned=bool(pruned)
    )


def known_query(run: Execute, digest: bytes) -> StoredQuery:
    """The query of a digest that this transaction has read or written."""
    query = query_of(run, "digest", digest)
    if query is None:
        raise AssertionError("the query was read or written in this transaction")
    return query


def text_of(detail: str) -> str:
    """The detail of a refusal, as every database can keep it."""
    return detail.replace("\0", "\N{REPLACEMENT CHARACTER}")
