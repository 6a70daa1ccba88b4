"""The contributions of phones in the aggregation server's database: each is added to a sum, and leaves a receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reticent.storage.sql import Execute, SqlDatabase
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sql_schema as sql
from reticent_agg.store import CohortBatch, Contents, PutResult

__all__ = ["in_parts", "put"]

_PHONES_AT_ONCE = 256  # in a statement


def put(database: SqlDatabase, run: Execute, batch: CohortBatch, shard: int, now: int) -> list[PutResult]:
    """Add a batch to this shard's sum of its cohort, and keep the receipts.

    Within a transaction that has locked the query.
    """
    number, collects = run(
        "SELECT number, phase = ? AND closes > ? FROM queries WHERE digest = ?", (wire.COLLECTING, now, batch.query)
    ).fetchone()
    first: dict[bytes, int] = {}  # the place of each phone's first contribution
    for place, receipt in enumerate(batch.receipts):
        first.setdefault(receipt.phone, place)
    new = _insert_receipts(database, number, batch, list(first.values())) if collects else set()
    known = _contents(run, number, batch.cohort, [phone for phone in first if phone not in new])
    known |= {phone: _contents_of(batch.receipts[first[phone]]) for phone in new}
    results = []
    for place, receipt in enumerate(batch.receipts):
        if receipt.phone not in known:
            results.append(PutResult.LATE)
        elif receipt.phone in new and first[receipt.phone] == place:
            results.append(PutResult.COUNTED)
        else:
            is_same = known[receipt.phone] == _contents_of(receipt)
            results.append(PutResult.REPEATED if is_same else PutResult.CONFLICT)
    if new:
        _add(run, number, batch, shard, sorted(first[phone] for phone in new))
    return results


def _insert_receipts(database: SqlDatabase, number: int, batch: CohortBatch, places: Sequence[int]) -> set[bytes]:
    """Keep receipts; returns the phones that had none before. In their order, so that no two batches deadlock."""
    rows = [
        (
            number,
            batch.cohort,
            each.phone,
            each.agreement_key,
            each.ciphertexts_hash,
            each.seeded,
            each.signature,
        )
        for each in sorted((batch.receipts[place] for place in places), key=lambda each: each.phone)
    ]
    return {phone for (phone,) in database.run_many(sql.RECEIPT, rows)}


def _contents(run: Execute, number: int, cohort: int, phones: Sequence[bytes]) -> dict[bytes, Contents]:
    """The contents of those of these phones' contributions that have receipts."""
    found: dict[bytes, Contents] = {}
    for marks, some in in_parts(phones):
        for phone, key, ciphertexts_hash, seeded in run(sql.COUNTED.format(marks), (*some, number, cohort)):
            if phone is not None:
                found[phone] = Contents(key, ciphertexts_hash, bool(seeded))
    return found


def _contents_of(receipt: wire.Receipt) -> Contents:
    return Contents(receipt.agreement_key, receipt.ciphertexts_hash, receipt.seeded)


def _add(run: Execute, number: int, batch: CohortBatch, shard: int, places: Sequence[int]) -> None:
    place = number, batch.cohort, shard
    found = run(sql.SUM, place).fetchone()
    if found is None:
        run(sql.NEW_SUM, (batch.cohort, shard, number))
        found = run(sql.SUM, place).fetchone()
    contributors, ciphertexts = found
    run(sql.ADD, (contributors + len(places), batch.add(ciphertexts, places), *place))


def in_parts(phones: Sequence[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """The phones, some of them twice, in lists of few lengths, with placeholders: few statements are prepared."""
    for first in range(0, len(phones), _PHONES_AT_ONCE):
        some = [*phones[first : first + _PHONES_AT_ONCE]]
        length = 1 << (len(some) - 1).bit_length()
        yield ", ".join(["(?)"] * length), some + some[-1:] * (length - len(some))
