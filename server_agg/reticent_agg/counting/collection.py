"""Contributions: checked, added up and receipted, many at a time, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from reticent.paillier import BadCiphertexts
from reticent.protocol import Refusal, Refused, signed_by, statements
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES, SIGNATURE_BYTES
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.queries import AnnouncedQuery, Queries
from reticent_agg.store import AggregationStore, CohortBatch, DealtPhone, PutResult

__all__ = ["RETRY_AFTER", "Collection", "ContributionResult", "refuse_odd_phone"]

DIGEST_BYTES = 32
_SIZES = [DIGEST_BYTES, PHONE_BYTES, KEY_BYTES, SIGNATURE_BYTES]

RETRY_AFTER = 1.0
"""Seconds after which a phone tries again, when a contribution cannot be written now."""
_REFUSALS: Mapping[PutResult, tuple[Refusal, str, float | None]] = {
    PutResult.CONFLICT: (Refusal.CONFLICT, "the phone has contributed something else, which stands", None),
    PutResult.LATE: (Refusal.LATE, "", None),
    PutResult.BUSY: (Refusal.BUSY, "the query is being closed", RETRY_AFTER),
}

ContributionResult: TypeAlias = wire.Acknowledgement | Refused
"""The reply to a contribution."""


class _Target(NamedTuple):
    """The query of some contributions, and those of their phones to which it was dealt."""

    announced: AnnouncedQuery
    collects: bool
    pruned: bool
    phones: Mapping[bytes, DealtPhone]


@dataclass(frozen=True)
class _Candidate:
    """A contribution whose signature is right; `place` is its place in the batch."""

    place: int
    message: wire.Contribution
    receipt: wire.Receipt
    acknowledgement: wire.Acknowledgement


class Collection:
    """Takes contributions.

    Args:
        store: The aggregation server's.
        queries: Over the same store.
        now: The time, in UTC.
    """

    def __init__(self, store: AggregationStore, queries: Queries, now: Now) -> None:
        self._store = store
        self._queries = queries
        self._now = now

    def contribute(self, contributions: Sequence[wire.Contribution]) -> list[ContributionResult]:
        """The result of each contribution. Those that are acknowledged are durable when this returns.

        Raises:
            OSError: The disk is full, or fails. No contribution is acknowledged, and each may be sent again: if it is
                in the sum, it is acknowledged then, and counted once.
        """
        now = milliseconds(self._now())
        targets = self._targets(contributions, now)
        results: dict[int, ContributionResult] = {}
        by_cohort: dict[tuple[bytes, int], list[_Candidate]] = defaultdict(list)
        for place, message in enumerate(contributions):
            result = _judge(place, message, targets)
            if isinstance(result, _Candidate):
                by_cohort[message.query, message.cohort].append(result)
            else:
                results[place] = result
        good: list[list[_Candidate]] = []
        batches: list[CohortBatch] = []
        for candidates in by_cohort.values():
            target = targets[candidates[0].message.query]
            faults, batch = _summed(candidates, target.announced)
            good.append([each for number, each in enumerate(candidates) if number not in faults])
            batches.append(batch)
            results |= {candidates[number].place: _bad_ciphertexts(fault) for number, fault in faults.items()}
        for candidates, puts in zip(good, self._store.put_contributions(batches, now), strict=True):
            for each, put in zip(candidates, puts, strict=True):
                results[each.place] = _refused(put) if put in _REFUSALS else each.acknowledgement
        return [results[place] for place in range(len(contributions))]

    def _targets(self, contributions: Sequence[wire.Contribution], now: int) -> dict[bytes, _Target]:
        """The queries of these contributions that phones can know, by their digests."""
        phones: dict[bytes, list[bytes]] = defaultdict(list)
        for each in contributions:
            phones[each.query].append(each.phone)
        found = {}
        for digest, some in phones.items():
            query = self._store.query(digest)
            if query is not None and query.closes is not None:  # otherwise it is not countersigned
                collects = query.phase == wire.COLLECTING and now < query.closes
                dealt = self._store.dealt(digest, some)
                found[digest] = _Target(self._queries.announced(digest), collects, query.pruned, dealt)
        return found


def _judge(place: int, message: wire.Contribution, targets: Mapping[bytes, _Target]) -> ContributionResult | _Candidate:
    """Check whatever can be checked of a contribution on its own, the cheap things first."""
    try:
        target = _target_of(message, targets)
        phone = _phone_of(message, target)
    except Refused as refused:
        return refused
    receipt = statements.receipt_of(message)
    statement = statements.contribution_of(message.query, target.announced.query.key_id, message.cohort, receipt)
    acknowledgement = wire.Acknowledgement(contribution=statements.digest(statement))
    if phone.contents is not None:
        is_same = phone.contents == (receipt.agreement_key, receipt.ciphertexts_hash, receipt.seeded)
        return acknowledgement if is_same else _refused(PutResult.CONFLICT)
    if not signed_by(phone.verify_key, statement, message.signature):
        return Refused(Refusal.BAD_SIGNATURE)
    return _Candidate(place, message, receipt, acknowledgement)


def _refused(put: PutResult) -> Refused:
    refusal, detail, retry_after = _REFUSALS[put]
    return Refused(refusal, detail, retry_after=retry_after)


def _target_of(message: wire.Contribution, targets: Mapping[bytes, _Target]) -> _Target:
    sizes = [len(part) for part in (message.query, message.phone, message.agreement_key, message.signature)]
    if sizes != _SIZES:
        raise Refused(
            Refusal.MALFORMED, f"the query, phone, agreement key or signature has the wrong size: got {sizes} bytes"
        )
    target = targets.get(message.query)
    if target is None:
        raise Refused(Refusal.UNKNOWN_QUERY)
    return target


def _phone_of(message: wire.Contribution, target: _Target) -> DealtPhone:
    phone = target.phones.get(message.phone)
    if phone is None:
        raise Refused(Refusal.LATE if target.pruned else Refusal.NOT_DEALT)
    if message.cohort != phone.cohort:
        raise Refused(Refusal.WRONG_COHORT)
    if phone.contents is not None:  # it is compared whatever its size, and after the query has closed
        return phone
    if not target.collects:
        raise Refused(Refusal.LATE)
    announced = target.announced
    size, sent = announced.plaintexts * announced.key.ciphertext_bytes, len(message.ciphertexts)
    if sent != size:
        raise Refused(
            Refusal.BAD_CIPHERTEXTS, f"{announced.plaintexts} ciphertexts have {size} bytes in all: got {sent}"
        )
    return phone


def _summed(candidates: Sequence[_Candidate], announced: AnnouncedQuery) -> tuple[dict[int, str], CohortBatch]:
    """The faults of the ciphertexts of a cohort's contributions, and a batch of those without any."""
    key = announced.key
    rows = [ciphertexts_from(each.message.ciphertexts, key) for each in candidates]
    total, faults = _product(rows, announced)
    good = [number for number in range(len(candidates)) if number not in faults]
    if faults:
        rows = [rows[number] for number in good]
        total, _ = _product(rows, announced)

    def add(ciphertexts: bytes, places: Sequence[int]) -> bytes:
        chosen = total if len(places) == len(rows) else _product([rows[place] for place in places], announced)[0]
        return ciphertexts_to(key.add_pairs(ciphertexts_from(ciphertexts, key), chosen), key)

    first = candidates[0].message
    return faults, CohortBatch(first.query, first.cohort, [candidates[number].receipt for number in good], add)


def _product(rows: list[list[int]], announced: AnnouncedQuery) -> tuple[list[int], dict[int, str]]:
    """The sum of these contributions, and the faults of those with bad ciphertexts; with a fault the sum is wrong."""
    faults: dict[int, str] = {}
    total = [1] * announced.plaintexts
    for column, ciphertexts in enumerate(zip(*rows, strict=True)):
        try:
            total[column] = announced.key.add(ciphertexts)
        except BadCiphertexts as error:
            faults |= error.faults
    return total, faults


def _bad_ciphertexts(fault: str) -> Refused:
    return Refused(Refusal.BAD_CIPHERTEXTS, f"a ciphertext {fault}")


def refuse_odd_phone(phone: bytes) -> None:
    """Refuse a phone's id of another length."""
    if len(phone) != PHONE_BYTES:
        raise Refused(Refusal.MALFORMED, f"the id of a phone has {PHONE_BYTES} bytes: got {len(phone)}")
