"""The settings of PostgreSQL in benchmarks: unlike those of the tests, a commit waits for the disk."""

from __future__ import annotations

DURABLE = ("listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=128MB", "max_wal_size=2GB")
