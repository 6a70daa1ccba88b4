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
