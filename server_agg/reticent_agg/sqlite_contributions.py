"""The contributions of phones in the aggregation server's SQLite file: each is added to a sum, and leaves a receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reticent.storage.database import Execute
from reticent.v1 import counting_pb2 as wire
from reticent_agg import sqlite_schema as sql
from reticent_agg.store import CohortBatch, Contents, PutResult

__all__ = ["in_parts", "put"]

_PHONES_AT_ONCE = 256  # in a statement


def put(run: Execute, batch: CohortBatch, now: int) -> list[PutResult]:
    """Add a batch to the sum of its cohort, and keep the receipts."""
    number, collects = run(
        "SELECT number, phase = ? AND closes > ? FROM queries WHERE digest = ?", (wire.COLLECTING, now, batch.query)
    ).fetchone()
    counted = _counted(run, number, batch)
    new: list[int] = []
    results = []
    for place, receipt in enumerate(batch.receipts):
        contents = Contents(receipt.agreement_key, receipt.ciphertexts_hash, receipt.seeded)
        if receipt.phone in counted:
            results.append(PutResult.REPEATED if counted[receipt.phone] == contents else PutResult.CONFLICT)
        elif collects:
            counted[receipt.phone] = contents
            new.append(place)
            results.append(PutResult.COUNTED)
        else:
            results.append(PutResult.LATE)
    if new:
        _add(run, number, batch, new)
    return results


def _counted(run: Execute, number: int, batch: CohortBatch) -> dict[bytes, Contents]:
    """The contents of those of these contributions' phones that have contributed before."""
    found: dict[bytes, Contents] = {}
    for marks, some in in_parts([receipt.phone for receipt in batch.receipts]):
        for phone, key, ciphertexts_hash, seeded in run(sql.COUNTED.format(marks), (number, batch.cohort, *some)):
            found[phone] = Contents(key, ciphertexts_hash, bool(seeded))
    return found


def _add(run: Execute, number: int, batch: CohortBatch, places: Sequence[int]) -> None:
    contributors, ciphertexts = run(
        "SELECT contributors, ciphertexts FROM sums WHERE query = ? AND cohort = ?", (number, batch.cohort)
    ).fetchone()
    run(
        "UPDATE sums SET contributors = ?, ciphertexts = ? WHERE query = ? AND cohort = ?",
        (contributors + len(places), batch.add(ciphertexts, places), number, batch.cohort),
    )
    for receipt in sorted((batch.receipts[place] for place in places), key=lambda each: each.phone):
        run(
            "INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                batch.cohort,
                receipt.phone,
                receipt.agreement_key,
                receipt.ciphertexts_hash,
                receipt.seeded,
                receipt.signature,
            ),
        )


def in_parts(phones: Sequence[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """The phones, some of them twice, in lists of few lengths, with placeholders: SQLite caches prepared statements."""
    for first in range(0, len(phones), _PHONES_AT_ONCE):
        some = [*phones[first : first + _PHONES_AT_ONCE]]
        length = 1 << (len(some) - 1).bit_length()
        yield ", ".join("?" * length), some + some[-1:] * (length - len(some))
