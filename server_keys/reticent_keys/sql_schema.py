"""The tables of a key server's journal, and its longer statements."""

from __future__ import annotations

from reticent.storage.sql import FileFormat
from reticent_keys.errors import JournalError

__all__ = ["JOURNAL", "PRUNE", "PRUNED", "PRUNE_DECRYPTIONS", "PRUNE_INVITATIONS", "VERIFY_KEYS"]

SCHEMA = """
CREATE TABLE server (
    identity BLOB NOT NULL,
    copied INTEGER
);
CREATE TABLE keys (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    bits INTEGER NOT NULL,
    public BLOB NOT NULL,
    made INTEGER NOT NULL,
    activated INTEGER,
    records INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_is_active ON keys (state) WHERE state = 'ACTIVE';
CREATE TABLE phones (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    verify_key BLOB NOT NULL,
    enrolled INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    renewed_from INTEGER,
    ended TEXT
);
CREATE INDEX members ON phones (expires) WHERE ended IS NULL;
CREATE TABLE invitations (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    expires INTEGER NOT NULL,
    phone INTEGER UNIQUE REFERENCES phones
);
CREATE TABLE queries (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL,
    agreement_key BLOB NOT NULL,
    key INTEGER NOT NULL REFERENCES keys,
    cohorts INTEGER NOT NULL,
    countersigned INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    pruned BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX queries_of_keys ON queries (key);
CREATE TABLE dealt (
    query INTEGER NOT NULL,
    phone INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    PRIMARY KEY (query, phone)
) WITHOUT ROWID;
CREATE TABLE decryptions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    PRIMARY KEY (query, cohort)
) WITHOUT ROWID;
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    request BLOB NOT NULL,
    decision BLOB NOT NULL,
    made INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE VIEW progress AS
SELECT number AS query, digest, key, deadline,
    cohorts - (SELECT count(*) FROM decisions WHERE query = queries.number) AS undecided
FROM queries;
"""

JOURNAL = FileFormat(
    "a key server's journal",
    0x524B4A31,
    SCHEMA,
    JournalError,
    migrations=("ALTER TABLE keys ADD COLUMN records INTEGER NOT NULL DEFAULT 0;",),
    first=3,
    namespace="reticent_keys",
    migrate="reticent keys migrate",
)
VERIFY_KEYS = """
SELECT id, verify_key FROM phones
WHERE id IN ({}) AND EXISTS (SELECT 1 FROM dealt WHERE query = ? AND phone = number AND cohort = ?)
"""
PRUNED = """
SELECT number FROM queries
WHERE (EXISTS (SELECT 1 FROM dealt WHERE query = number) OR EXISTS (SELECT 1 FROM decryptions WHERE query = number))
AND (cohorts = (SELECT count(*) FROM decisions WHERE query = number AND made < ?)
    OR deadline < ? OR (countersigned < ? AND key IN (SELECT number FROM keys WHERE state = 'RETIRED')))
ORDER BY number LIMIT 1
"""
PRUNE = """
DELETE FROM dealt WHERE query = ? AND phone IN (SELECT phone FROM dealt WHERE query = ? ORDER BY phone LIMIT ?)
"""
PRUNE_DECRYPTIONS = """
DELETE FROM decryptions WHERE query = ? AND cohort IN
    (SELECT cohort FROM decryptions WHERE query = ? ORDER BY cohort LIMIT ?)
"""
PRUNE_INVITATIONS = """
DELETE FROM invitations WHERE number IN
    (SELECT number FROM invitations WHERE phone IS NULL AND expires < ? LIMIT ?)
"""
