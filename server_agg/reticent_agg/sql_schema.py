"""The tables of an aggregation server's database, and the longer statements."""

from __future__ import annotations

from reticent.storage.sql import FileFormat
from reticent_agg.errors import BadStore

NO_COHORT = -1
"""In place of a cohort, in the lease of a countersignature."""

# Times are milliseconds of Unix time; phases are those of the wire. A query's number stands for its digest in the
# tables with a row for each phone. Each process that takes contributions adds them to sums of its own, in its shard.
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
    zero BLOB,
    closes INTEGER,
    decided INTEGER,
    aborted BOOLEAN NOT NULL DEFAULT FALSE,
    refusal TEXT,
    detail TEXT,
    pruned BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX queries_by_phase ON queries (phase, number);
CREATE INDEX queries_by_owner ON queries (owner, number);
CREATE INDEX queries_by_decision ON queries (pruned, decided);
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
    seeded BOOLEAN NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (query, cohort, phone)
) WITHOUT ROWID;
CREATE TABLE cohorts (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    enough INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE sums (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    contributors INTEGER NOT NULL,
    ciphertexts BLOB NOT NULL,
    PRIMARY KEY (query, cohort, shard)
);
CREATE TABLE requests (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    head BLOB NOT NULL,
    burn BOOLEAN NOT NULL,
    sent BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE decisions (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    decision BLOB NOT NULL,
    withheld BOOLEAN NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE leases (
    query INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    owner TEXT NOT NULL,
    expires INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (query, cohort)
);
CREATE TABLE pruning (
    query INTEGER PRIMARY KEY
);
"""

FORMAT = FileFormat(
    "an aggregation server's database",
    0x52414747,
    _SCHEMA,
    BadStore,
    first=2,  # version 1 was never released, and had other tables
    namespace="reticent_agg",
    migrate="reticent agg migrate",
    restored="reticent agg restored",
)

COUNTERSIGN = """
UPDATE queries SET agreement_key = ?, countersignature = ?, zero = ?, phase = ?, closes = ?, refusal = NULL
WHERE number = ?
"""
REFUSE = "UPDATE queries SET refusal = ?, detail = ? WHERE digest = ? AND phase = ?"
DECIDED_BEFORE = "SELECT number FROM queries WHERE pruned = FALSE AND decided < ? ORDER BY decided LIMIT 1"
LOST_BEFORE = """
SELECT number FROM queries WHERE phase = ? AND refusal IS NOT NULL AND pruned = FALSE AND closes < ?
ORDER BY number LIMIT 1
"""
REJECTED_BEFORE = """
SELECT digest, id FROM queries WHERE phase = ? AND refusal IS NOT NULL AND announced < ? ORDER BY number LIMIT ?
"""
DELETE_REJECTED = "DELETE FROM queries WHERE digest = ? AND phase = ? AND refusal IS NOT NULL"
ANNOUNCED_TO = """
SELECT number, digest, agreement_key, countersignature, dealt.cohort, closes FROM (
    SELECT number, digest, agreement_key, countersignature, closes FROM queries
    WHERE phase = ? AND number > ? ORDER BY number LIMIT ?
) AS collecting LEFT JOIN dealt ON dealt.query = number AND dealt.phone = ? ORDER BY number
"""
QUERIES_OF = "SELECT number, id FROM queries WHERE owner {} AND number < ? ORDER BY number DESC LIMIT ?"
# A LEFT JOIN from the wanted phones makes databases look each one up, however wrong their statistics are.
DEALT = """
WITH wanted (phone) AS (VALUES {})
SELECT dealt.phone, verify_key, dealt.cohort, agreement_key, ciphertexts_hash, seeded FROM wanted
LEFT JOIN dealt ON dealt.query = (SELECT number FROM queries WHERE digest = ?) AND dealt.phone = wanted.phone
LEFT JOIN receipts ON receipts.query = dealt.query AND receipts.cohort = dealt.cohort AND receipts.phone = dealt.phone
"""
COUNTED = """
WITH wanted (phone) AS (VALUES {})
SELECT receipts.phone, agreement_key, ciphertexts_hash, seeded FROM wanted
LEFT JOIN receipts ON query = ? AND cohort = ? AND receipts.phone = wanted.phone
"""
DUE = """
SELECT digest FROM queries WHERE phase = ? AND (closes <= ? OR NOT EXISTS (
    SELECT 1 FROM cohorts WHERE query = number AND enough > (
        SELECT coalesce(sum(contributors), 0) FROM sums WHERE sums.query = number AND sums.cohort = cohorts.cohort
    )
)) ORDER BY number
"""
COHORTS = """
SELECT (
    SELECT CAST(coalesce(sum(contributors), 0) AS INTEGER) FROM sums
    WHERE sums.query = cohorts.query AND sums.cohort = cohorts.cohort
), decision FROM cohorts LEFT JOIN decisions USING (query, cohort)
WHERE query = (SELECT number FROM queries WHERE digest = ?) ORDER BY cohort
"""
NEW_SUM = """
INSERT INTO sums SELECT number, ?, ?, 0, zero FROM queries WHERE number = ? ON CONFLICT DO NOTHING
"""
SUM = "SELECT contributors, ciphertexts FROM sums WHERE query = ? AND cohort = ? AND shard = ? /* FOR UPDATE */"
ADD = "UPDATE sums SET contributors = ?, ciphertexts = ? WHERE query = ? AND cohort = ? AND shard = ?"
RECEIPT = "INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING phone"
PARTIAL_SUMS = """
SELECT cohort, contributors, ciphertexts FROM cohorts LEFT JOIN sums USING (query, cohort)
WHERE query = ? ORDER BY cohort, shard
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
AND (SELECT count(*) FROM decisions WHERE query = number) = (SELECT count(*) FROM cohorts WHERE query = number)
"""
DECIDE = "INSERT INTO decisions VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
DECISION_FOR_PHONES = """
SELECT decision FROM decisions JOIN queries ON query = number WHERE digest = ? AND cohort = ? AND NOT withheld
"""
TO_COUNTERSIGN = "SELECT digest FROM queries WHERE phase = ? AND refusal IS NULL ORDER BY number"
TO_DECIDE = """
SELECT digest, cohort, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE decision IS NULL AND pruned = FALSE ORDER BY query, cohort
"""
LEASE = """
INSERT INTO leases VALUES ((SELECT number FROM queries WHERE digest = ?), ?, ?, ?, 1)
ON CONFLICT (query, cohort) DO UPDATE
SET owner = excluded.owner, expires = excluded.expires, attempts = leases.attempts + 1
WHERE leases.owner = excluded.owner OR leases.expires <= ?
"""
RENEW = """
UPDATE leases SET expires = ? WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ? AND owner = ?
"""
ATTEMPTS = "SELECT max(attempts) FROM leases WHERE query = (SELECT number FROM queries WHERE digest = ?)"
QUERY = """
SELECT digest, id, owner, phase, announced, closes, refusal, detail, pruned FROM queries WHERE {} = ?
"""
LATEST_OPEN = """
SELECT digest, id, owner, phase, announced, closes, refusal, detail, pruned FROM queries
WHERE phase IN (?, ?, ?) AND NOT (phase = ? AND refusal IS NOT NULL) ORDER BY number DESC LIMIT ?
"""
END_LEASE = "DELETE FROM leases WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?"
WITHDRAW_BURN = """
UPDATE requests SET burn = FALSE WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?
"""
ALL_SENT = "UPDATE requests SET sent = TRUE WHERE query = (SELECT number FROM queries WHERE digest = ?)"
OPEN_QUERIES = """
SELECT id, digest FROM queries WHERE phase != ? AND NOT (phase = ? AND refusal IS NOT NULL) ORDER BY number
"""
SENT = "UPDATE requests SET sent = TRUE WHERE query = (SELECT number FROM queries WHERE digest = ?) AND cohort = ?"
BURN = "UPDATE requests SET burn = TRUE WHERE query = (SELECT number FROM queries WHERE digest = ?)"
UNCOUNTERSIGNED = "SELECT content FROM queries WHERE digest = ? AND phase = ? AND refusal IS NULL"
UNDECIDED = """
SELECT head, burn FROM requests JOIN queries ON number = query
LEFT JOIN decisions USING (query, cohort) WHERE decision IS NULL AND pruned = FALSE AND digest = ? AND cohort = ?
"""
