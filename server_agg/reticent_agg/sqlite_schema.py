"""The tables of an aggregation server's SQLite file, and the longer statements."""

from __future__ import annotations

from reticent.storage.database import FileFormat
from reticent_agg.errors import BadStore

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
    decision BLOB NOT NULL,
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

COUNTERSIGN = """
UPDATE queries SET agreement_key = ?, countersignature = ?, phase = ?, closes = ?, refusal = NULL WHERE number = ?
"""
REFUSE = "UPDATE queries SET refusal = ?, detail = ? WHERE digest = ? AND phase = ?"
DECIDED_BEFORE = "SELECT number, id FROM queries WHERE phase = ? AND decided < ? AND NOT pruned"
REJECTED_BEFORE = "SELECT number, id FROM queries WHERE phase = ? AND refusal IS NOT NULL AND announced < ?"
DEALT_TO = """
SELECT digest, queries.agreement_key, countersignature, dealt.cohort, closes FROM queries
JOIN dealt ON dealt.query = number AND dealt.phone = ?
LEFT JOIN receipts ON receipts.query = number AND receipts.cohort = dealt.cohort AND receipts.phone = dealt.phone
WHERE phase = ? AND closes > ? ORDER BY receipts.phone IS NOT NULL, closes, number
"""
DEALT = """
SELECT dealt.phone, verify_key, dealt.cohort, agreement_key, ciphertexts_hash, seeded FROM dealt
LEFT JOIN receipts ON receipts.query = dealt.query AND receipts.cohort = dealt.cohort AND receipts.phone = dealt.phone
WHERE dealt.query = (SELECT number FROM queries WHERE digest = ?) AND dealt.phone IN ({})
"""
DUE = """
SELECT digest FROM queries WHERE phase = ? AND (closes <= ? OR NOT EXISTS (
    SELECT 1 FROM sums WHERE query = number AND contributors < enough
)) ORDER BY number
"""
COHORTS = """
SELECT contributors, decision FROM sums LEFT JOIN decisions USING (query, cohort)
WHERE query = (SELECT number FROM queries WHERE digest = ?) ORDER BY cohort
"""
RECEIPTS = """
SELECT phone, agreement_key, ciphertexts_hash, seeded, signature FROM receipts
WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ? AND phone > ? ORDER BY phone LIMIT ?
"""
REQUEST = """
SELECT number, head, burn, sent FROM requests JOIN queries ON number = query WHERE digest = ? AND cohort = ?
"""
DECIDED = """
UPDATE queries SET phase = ?, decided = ?, refusal = NULL, detail = NULL WHERE number = ? AND phase = ?
AND (SELECT count(*) FROM decisions WHERE query = number) = (SELECT count(*) FROM sums WHERE query = number)
"""
DECISION_FOR_PHONES = """
SELECT decision FROM decisions JOIN queries ON query = number WHERE digest = ? AND cohort = ? AND NOT withheld
"""
TO_COUNTERSIGN = "SELECT digest FROM queries WHERE phase = ? AND refusal IS NULL ORDER BY number"
TO_DECIDE = """
SELECT digest, cohort, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE decision IS NULL ORDER BY query, cohort
"""
LEASE = """
INSERT INTO leases VALUES ((SELECT number FROM queries WHERE digest = ?), ?, ?, ?)
ON CONFLICT (query, cohort) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
WHERE owner = excluded.owner OR expires <= ?
"""
RELEASE = "DELETE FROM leases WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ? AND owner = ?"
QUERY = """
SELECT digest, id, owner, phase, announced, closes, refusal, detail, pruned FROM queries WHERE {} = ?
"""
END_LEASE = "DELETE FROM leases WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?"
WITHDRAW_BURN = """
UPDATE requests SET burn = 0 WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?
"""
ALL_SENT = "UPDATE requests SET sent = 1 WHERE query = (SELECT number FROM queries WHERE digest = ?)"
OPEN_QUERIES = """
SELECT id, digest FROM queries WHERE phase != ? AND NOT (phase = ? AND refusal IS NOT NULL) ORDER BY number
"""
SENT = "UPDATE requests SET sent = 1 WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?"
BURN = "UPDATE requests SET burn = 1 WHERE query = (SELECT number FROM queries WHERE digest = ?)"
UNCOUNTERSIGNED = "SELECT content FROM queries WHERE digest = ? AND phase = ? AND refusal IS NULL"
UNDECIDED = """
SELECT head, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE decision IS NULL AND digest = ? AND cohort = ?
"""
COUNTED = """
SELECT phone, agreement_key, ciphertexts_hash, seeded FROM receipts WHERE query = ? AND cohort = ? AND phone IN ({})
"""
