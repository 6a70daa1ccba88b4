"""The tables of an aggregation server's SQLite file."""

from __future__ import annotations

from reticent.storage.database import FileFormat
from reticent_agg.errors import BadStore

__all__ = ["FORMAT", "NO_COHORT"]

NO_COHORT = -1
"""In place of a cohort, in the lease of a countersignature."""

# Times are milliseconds of Unix time; phases are those of the wire. A query's number stands for its digest in the
# tables with a row for each phone.
_SCHEMA = """
CREATE TABLE keys (
    id BLOB PRIMARY KEY,
    content BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL,
    phase INTEGER NOT NULL,
    announced INTEGER NOT NULL,
    owner TEXT,
    agreement_key BLOB,
    countersignature BLOB,
    closes INTEGER,
    decided INTEGER,
    aborted INTEGER NOT NULL DEFAULT 0,
    refusal TEXT,
    detail TEXT,
    pruned INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX queries_by_phase ON queries (phase, closes);
CREATE TABLE dealt (
    query INTEGER NOT NULL,
    phone BLOB NOT NULL,
    verify_key BLOB NOT NULL,
    cohort INTEGER NOT NULL,
    PRIMARY KEY (query, phone)
) WITHOUT ROWID;
CREATE TABLE receipts (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    phone BLOB NOT NULL,
    agreement_key BLOB NOT NULL,
    ciphertexts_hash BLOB NOT NULL,
    seeded INTEGER NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (query, cohort, phone)
) WITHOUT ROWID;
CREATE TABLE sums (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    enough INTEGER NOT NULL,
    contributors INTEGER NOT NULL,
    ciphertexts BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE requests (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    head BLOB NOT NULL,
    burn INTEGER NOT NULL,
    sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    answer BLOB NOT NULL,
    withheld INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE leases (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    owner TEXT NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
"""

FORMAT = FileFormat("an aggregation server's file", 0x52414747, 1, _SCHEMA, BadStore)
