"""Contributions: checked, receipted and added up, many at a time, in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from reticent.paillier import BadCiphertexts
from reticent.protocol import Refusal, Refused, signed_by
from reticent.protocol import statements as said
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES, SIGNATURE_BYTES
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.storage.database import Database, Execute
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg.counting.queries import Asked, Queries

__all__ = ["Collection", "Outcome"]

DIGEST_BYTES = 32
_ASKED_AT_ONCE = 256  # phones, in a statement of SQL

Outcome: TypeAlias = wire.Acknowledgement | Refused
"""What becomes of a contribution."""

_DEALT = """
SELECT dealt.phone, verify_key, dealt.cohort, agreement_key, ciphertexts_hash, seeded FROM dealt
LEFT JOIN receipts ON receipts.query = dealt.query AND receipts.cohort = dealt.cohort AND receipts.phone = dealt.phone
WHERE dealt.query = ? AND dealt.phone IN ({})
"""


class _Open(NamedTuple):
    """A query's row, with what never changes about it."""

    number: int
    collecting: bool
    pruned: bool
    asked: Asked


class _Dealt(NamedTuple):
    """What is known of a phone to which a query was dealt; the last three where it has contributed."""

    verify_key: bytes
    cohort: int
    agreement_key: bytes | None
    ciphertexts_hash: bytes | None
    seeded: int | None

    @property
    def has_contributed(self) -> bool:
        return self.ciphertexts_hash is not None


@dataclass(frozen=True)
class _Candidate:
    """A contribution that nothing cheap speaks against."""

    place: int
    message: wire.Contribution
    query: _Open
    receipt: wire.Receipt
    statement: bytes

    @property
    def cohort(self) -> tuple[int, int]:
        return self.query.number, self.message.cohort

    @property
    def row(self) -> tuple[int, int, bytes, bytes, bytes, int, bytes]:
        """Of the table of receipts."""
        receipt = self.receipt
        return *self.cohort, receipt.phone, *_contents(receipt), receipt.signature


class Collection:
    """Takes contributions in.

    Args:
        database: The aggregation server's.
        queries: Of the same database.
        now: The time, in UTC.
    """

    def __init__(self, database: Database, queries: Queries, now: Now) -> None:
        self._database = database
        self._queries = queries
        self._now = now

    def contribute(self, contributions: Sequence[wire.Contribution]) -> list[Outcome]:
        """What becomes of each contribution. Those that are acknowledged are on disk when this returns.

        Raises:
            OSError: The disk fails: it is as if none of them had been sent. Where it has failed after it was told to
                keep them, they may be on it: sent again, each is acknowledged then, and counted once.
        """
        outcomes: dict[int, Outcome] = {}
        with self._database.transaction() as run:
            for round_ in _rounds(contributions):
                outcomes |= self._taken(run, round_)
        return [outcomes[place] for place in range(len(contributions))]

    def _taken(self, run: Execute, contributions: dict[int, wire.Contribution]) -> dict[int, Outcome]:
        """Take in contributions of which no two are of one phone to one query."""
        outcomes: dict[int, Outcome] = {}
        queries = self._open(run, {each.query for each in contributions.values()})
        dealt = _dealt(run, queries, contributions.values())
        by_cohort: dict[tuple[int, int], list[_Candidate]] = defaultdict(list)
        for place, message in contributions.items():
            outcome = _judged(place, message, queries, dealt)
            if isinstance(outcome, _Candidate):
                by_cohort[outcome.cohort].append(outcome)
            else:
                outcomes[place] = outcome
        for cohort, candidates in by_cohort.items():
            outcomes |= _added(run, cohort, candidates)
        return outcomes

    def _open(self, run: Execute, digests: set[bytes]) -> dict[bytes, _Open]:
        """The queries of these digests of which phones can know."""
        found = {}
        now = milliseconds(self._now())
        for digest in digests:
            row = run("SELECT number, phase, closes, pruned FROM queries WHERE digest = ?", (digest,)).fetchone()
            if row is not None and row[1] != wire.ANNOUNCED:
                collecting = row[1] == wire.COLLECTING and now < row[2]
                found[digest] = _Open(row[0], collecting, bool(row[3]), self._queries.asked(run, digest))
        return found


def _rounds(contributions: Sequence[wire.Contribution]) -> Iterator[dict[int, wire.Contribution]]:
    """The contributions by their places, so that those of one phone to one query come one after the other."""
    rounds: list[dict[int, wire.Contribution]] = []
    seen: dict[tuple[bytes, bytes], int] = defaultdict(int)
    for place, each in enumerate(contributions):
        number = seen[each.query, each.phone]
        seen[each.query, each.phone] += 1
        if number == len(rounds):
            rounds.append({})
        rounds[number][place] = each
    yield from rounds


def _dealt(
    run: Execute, queries: dict[bytes, _Open], contributions: Iterable[wire.Contribution]
) -> dict[tuple[bytes, bytes], _Dealt]:
    """What is known of the phones that contribute, by query and phone."""
    phones: dict[bytes, list[bytes]] = defaultdict(list)
    for each in contributions:
        phones[each.query].append(each.phone)
    found: dict[tuple[bytes, bytes], _Dealt] = {}
    for digest, query in queries.items():
        for some in _in_parts(phones[digest]):
            rows = run(_DEALT.format(", ".join("?" * len(some))), [query.number, *some])
            found |= {(digest, phone): _Dealt(*row) for phone, *row in rows}
    return found


def _in_parts(phones: list[bytes]) -> Iterator[list[bytes]]:
    """The phones, some of them twice, in lists of few lengths: SQLite keeps what it has prepared for each length."""
    for first in range(0, len(phones), _ASKED_AT_ONCE):
        some = phones[first : first + _ASKED_AT_ONCE]
        length = 1 << (len(some) - 1).bit_length()
        yield some + some[-1:] * (length - len(some))


def _judged(
    place: int,
    sent: wire.Contribution,
    queries: dict[bytes, _Open],
    dealt: dict[tuple[bytes, bytes], _Dealt],
) -> Outcome | _Candidate:
    """Check whatever can be checked of a contribution on its own, the cheap things first."""
    try:
        query = _query_of(sent, queries)
        phone = _phone_of(sent, query, dealt)
        receipt = said.receipt_of(sent)
        statement = said.receipted(sent.query, query.asked.query.key_id, sent.cohort, receipt)
        if phone.has_contributed:
            return _said_again(receipt, phone, statement)
    except Refused as refused:
        return refused
    if not signed_by(phone.verify_key, statement, sent.signature):
        return Refused(Refusal.BAD_SIGNATURE)
    return _Candidate(place, sent, query, receipt, statement)


def _query_of(sent: wire.Contribution, queries: dict[bytes, _Open]) -> _Open:
    sizes = [len(part) for part in (sent.query, sent.phone, sent.agreement_key, sent.signature)]
    if sizes != [DIGEST_BYTES, PHONE_BYTES, KEY_BYTES, SIGNATURE_BYTES]:
        raise Refused(
            Refusal.MALFORMED, f"the query, phone, agreement key or signature has the wrong size: got {sizes} bytes"
        )
    query = queries.get(sent.query)
    if query is None:
        raise Refused(Refusal.UNKNOWN_QUERY)
    return query


def _phone_of(sent: wire.Contribution, query: _Open, dealt: dict[tuple[bytes, bytes], _Dealt]) -> _Dealt:
    phone = dealt.get((sent.query, sent.phone))
    if phone is None:
        raise Refused(Refusal.LATE if query.pruned else Refusal.NOT_ASKED)
    if sent.cohort != phone.cohort:
        raise Refused(Refusal.WRONG_COHORT)
    if phone.has_contributed:  # what was said before is compared whatever its size, and after closing too
        return phone
    if not query.collecting:
        raise Refused(Refusal.LATE)
    asked = query.asked
    if len(sent.ciphertexts) != asked.ciphertexts_bytes:
        raise Refused(
            Refusal.BAD_CIPHERTEXTS,
            f"{asked.plaintexts} ciphertexts have {asked.ciphertexts_bytes} bytes in all: got {len(sent.ciphertexts)}",
        )
    return phone


def _said_again(receipt: wire.Receipt, phone: _Dealt, statement: bytes) -> wire.Acknowledgement:
    if (phone.agreement_key, phone.ciphertexts_hash, phone.seeded) != _contents(receipt):
        raise Refused(Refusal.CONFLICT, "the phone has contributed something else, which stands")
    return _acknowledged(statement)


def _added(run: Execute, cohort: tuple[int, int], candidates: list[_Candidate]) -> dict[int, Outcome]:
    """Add contributions to the sum of their cohort, but those of which a ciphertext is none."""
    asked = candidates[0].query.asked
    contributors, content = run(
        "SELECT contributors, ciphertexts FROM sums WHERE query = ? AND cohort = ?", cohort
    ).fetchone()
    rows = [ciphertexts_from(each.message.ciphertexts, asked.key) for each in candidates]
    sums, faults = _sums(asked, ciphertexts_from(content, asked.key), rows)
    good = [candidate for number, candidate in enumerate(candidates) if number not in faults]
    if good:
        run(
            "UPDATE sums SET contributors = ?, ciphertexts = ? WHERE query = ? AND cohort = ?",
            (contributors + len(good), ciphertexts_to(sums, asked.key), *cohort),
        )
    for candidate in sorted(good, key=lambda each: each.message.phone):
        run("INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?)", candidate.row)
    bad = {
        candidates[number].place: Refused(Refusal.BAD_CIPHERTEXTS, f"a ciphertext {fault}")
        for number, fault in faults.items()
    }
    return {each.place: _acknowledged(each.statement) for each in good} | bad


def _sums(asked: Asked, before: list[int], rows: list[list[int]]) -> tuple[list[int], dict[int, str]]:
    """The sums with these contributions in them, and what is wrong with those that had to be left out."""
    faults: dict[int, str] = {}
    sums = []
    for so_far, *column in zip(before, *rows, strict=True):
        try:
            sums.append(asked.key.add([so_far, *column]))
        except BadCiphertexts as error:
            faults |= {number - 1: fault for number, fault in error.faults.items()}
    if not faults:
        return sums, {}
    sums, _ = _sums(asked, before, [row for number, row in enumerate(rows) if number not in faults])
    return sums, faults


def _contents(receipt: wire.Receipt) -> tuple[bytes, bytes, int]:
    """What tells one contribution of a phone from another."""
    return receipt.agreement_key, receipt.ciphertexts_hash, int(receipt.seeded)


def _acknowledged(statement: bytes) -> wire.Acknowledgement:
    return wire.Acknowledgement(contribution=said.digest(statement))
