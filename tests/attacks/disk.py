"""Single contributions out of the files of an aggregation server: from its write-ahead log, by division.

The sum of a cohort is overwritten with each transaction. SQLite writes each state to the log first, where it stays
until the log is overwritten; other databases and file systems keep old states, too. The quotient of two states is the
product of what came between them: of one contribution, where it came alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gmpy2

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Query
from reticent.protocol import AgreementKey, packing_of, shared_secret
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent_keys import KeyPair

__all__ = ["Recovered", "opened", "recovered"]

_HEADER, _FRAME = 32, 24
"""Bytes of the log's header, and before each page in it."""


class Recovered(NamedTuple):
    """The ciphertexts of one contribution, which match its receipt."""

    query: bytes
    cohort: int
    phone: bytes
    agreement_key: bytes
    ciphertexts: list[int]


def recovered(database: Path, folder: Path) -> list[Recovered]:
    """The contributions that a database and its log give away, while nobody uses them.

    Args:
        database: The aggregation server's file.
        folder: An empty one, for copies.
    """
    found: dict[tuple[bytes, bytes], Recovered] = {}
    receipts = _receipts(database, folder)
    before: dict[tuple[bytes, int], list[int]] = {}
    for state in _states(database, folder):
        for (query, cohort), content in _sums(state).items():
            key = receipts.keys_by_query.get(query)
            if key is None or not content:
                continue
            now = ciphertexts_from(content, key)
            if (query, cohort) in before and before[query, cohort] != now:
                quotient = _quotient(now, before[query, cohort], key)
                name = hashlib.sha256(ciphertexts_to(quotient, key)).digest()
                for phone, agreement_key in receipts.by_hash.get((query, cohort, name), ()):
                    found[query, phone] = Recovered(query, cohort, phone, agreement_key, quotient)
            before[query, cohort] = now
    return list(found.values())


def opened(found: Recovered, query: Query, pair: KeyPair, query_key: AgreementKey) -> list[int] | None:
    """The counters of a contribution, for whoever has the keys of both servers; None where these do not open it."""
    secret = shared_secret(query_key, phone=found.phone, phone_key=found.agreement_key, query_key=query_key.public)
    n, place = pair.public.n, (found.query, found.cohort)
    hidden = pair.decrypt(found.ciphertexts)
    plain = [centred(each - pad(secret, *place, number, n), n) for number, each in enumerate(hidden)]
    sums = packing_of(query, pair.public.bits).unpack(plain)
    right = sums.tags == [tag(secret, *place, number) for number in range(len(plain))]
    return sums.counters if right else None


class _Receipts(NamedTuple):
    by_hash: dict[tuple[bytes, int, bytes], list[tuple[bytes, bytes]]]
    keys_by_query: dict[bytes, PublicKey]


def _receipts(database: Path, folder: Path) -> _Receipts:
    copy = _copied(database, folder / "last")
    with contextlib.closing(sqlite3.connect(copy)) as last:
        rows = last.execute(
            "SELECT digest, cohort, ciphertexts_hash, phone, receipts.agreement_key FROM receipts"
            " JOIN queries ON number = query"
        ).fetchall()
        by_hash: dict[tuple[bytes, int, bytes], list[tuple[bytes, bytes]]] = {}
        for query, cohort, name, phone, agreement_key in rows:
            by_hash.setdefault((query, cohort, name), []).append((phone, agreement_key))
        public = dict(last.execute("SELECT id, content FROM keys").fetchall())
        keys = {}
        for digest, content in last.execute("SELECT digest, content FROM queries").fetchall():
            key_id = bytes.fromhex(Query.from_bytes(content).key_id)
            keys[digest] = PublicKey.from_bytes(public[key_id], simulation=True)
    return _Receipts(by_hash, keys)


def _copied(database: Path, folder: Path) -> Path:
    folder.mkdir()
    copy = folder / database.name
    for end in ("", "-wal"):
        source = Path(f"{database}{end}")
        if source.exists():
            shutil.copy(source, f"{copy}{end}")
    return copy


def _states(database: Path, folder: Path) -> Iterator[Path]:
    """The database as it was after each transaction that the log holds, also those that were overwritten in part."""
    state = folder / "state.db"
    shutil.copy(database, state)
    yield state
    log = Path(f"{database}-wal")
    content = log.read_bytes() if log.exists() else b""
    if len(content) < _HEADER:
        return
    (size,) = struct.unpack(">I", content[8:12])
    pages: list[tuple[int, bytes]] = []
    for start in range(_HEADER, len(content) - _FRAME - size + 1, _FRAME + size):
        page, after_commit = struct.unpack(">II", content[start : start + 8])
        pages.append((page, content[start + _FRAME : start + _FRAME + size]))
        if after_commit:
            _apply(state, pages, size)
            pages = []
            yield state


def _apply(state: Path, pages: Sequence[tuple[int, bytes]], size: int) -> None:
    with state.open("r+b") as file:
        for page, content in pages:
            file.seek((page - 1) * size)
            file.write(content)
        file.seek(18)
        file.write(b"\1\1")  # as if there were no log


def _sums(state: Path) -> dict[tuple[bytes, int], bytes]:
    with contextlib.closing(sqlite3.connect(state)) as database, contextlib.suppress(sqlite3.DatabaseError):
        rows = database.execute(
            "SELECT digest, cohort, coalesce(ciphertexts, zero)"  # a sum of nothing before the first contribution
            " FROM cohorts JOIN queries ON number = query LEFT JOIN sums USING (query, cohort)"
        ).fetchall()
        return {(digest, cohort): content for digest, cohort, content in rows}
    return {}


def _quotient(now: Sequence[int], before: Sequence[int], key: PublicKey) -> list[int]:
    modulus = key.n**2
    return [int(one * gmpy2.invert(other, modulus) % modulus) for one, other in zip(now, before, strict=True)]
