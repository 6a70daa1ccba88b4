"""Deciding a cohort, once: its sum is released, or it is burnt and never decrypted, or it is void.

The source is "Count" of section 5.4 of Götz's dissertation, which has the secret key's holder decrypt whatever it is
given. Here a sum is told only if it is that of contributions for which there are receipts (docs/encryption.md).
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Self

from reticent.paillier import centred, pad, tag
from reticent.paillier.ciphertexts import BadCiphertexts
from reticent.privacy import Query
from reticent.protocol import AgreementKey, Refusal, Refused, packing_of, shared_secret, signed_by, statements
from reticent.protocol.keys import KEY_BYTES
from reticent.protocol.layout import ciphertexts_from
from reticent.storage.database import Database, Execute
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.dealing import query_of
from reticent_keys.errors import KeyFileError
from reticent_keys.identity import Identity
from reticent_keys.journal import IS_DECIDED
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Keyring, PublicPart, finish_drained, refuse_retired
from reticent_keys.query_keys import QueryKeys

__all__ = ["Decider"]

_log = logging.getLogger(__name__)

RECEIPTS_AT_A_TIME = 200
NO_SECRET = bytes(KEY_BYTES)
NOT_THEIR_SUM = "what was decrypted is not the sum of these contributions"
TOO_FEW = "there are {} contributions, and the fewest are {}"
GIVEN_UP = "the aggregation server gave the cohort up"


class Asked(NamedTuple):
    """What the journal says of the query of a request."""

    number: int
    query: Query
    key: PublicPart


class Dealt(NamedTuple):
    """What the journal says of a phone that was dealt to the cohort."""

    number: int
    verify_key: bytes


@dataclass
class Collected:
    """What a sum must be made of, as its receipts tell: the tags and the pads of each plaintext, added up."""

    tags: list[int]
    pads: list[int]
    seeded: bool = False
    phones: int = 0

    @classmethod
    def of(cls, plaintexts: int) -> Self:
        """Nothing yet, for so many plaintexts."""
        return cls([0] * plaintexts, [0] * plaintexts)


class Decider:
    """Decides cohorts.

    Args:
        journal: Where decisions are written down before they are told.
        identity: Signs them, and shares secrets with phones.
        keyring: Has the secret keys.
        query_keys: Has those of single queries.
        now: Says what time it is.
    """

    def __init__(
        self, journal: Database, identity: Identity, keyring: Keyring, query_keys: QueryKeys, now: Now
    ) -> None:
        self._journal = journal
        self._identity = identity
        self._keyring = keyring
        self._query_keys = query_keys
        self._now = now
        self._one_at_a_time = threading.Lock()

    def decide(self, head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> wire.Decision:
        """Decide a cohort; or tell again what was decided.

        Args:
            head: What is to be decided.
            receipts: One for each contribution in the sum. They are read once, and not kept.

        Raises:
            Refused: MALFORMED, UNKNOWN_QUERY, ALREADY_DECIDED (or as good as decided, by a request of which the sum was
                decrypted), KEY_RETIRED, UNAVAILABLE, BAD_RECEIPTS, BAD_CIPHERTEXTS. Nothing is recorded then.
        """
        asked = self._asked(head)
        if self._stored(asked, head.cohort) is not None:
            return self._repeated(asked, head, _request(head, receipts))
        refuse_retired(asked.key.state)
        if head.contributors < asked.query.min_contributions or not head.ciphertexts:
            return self._burnt(asked, head, receipts)
        pair, query_key = self._keyring.pair(asked.key), self._query_key(asked.query)
        ciphertexts = _ciphertexts(head, asked.query, pair)
        request = statements.Request(head)
        collected = Collected.of(packing_of(asked.query, asked.key.bits).plaintexts)
        for receipt in self._checked(asked, head, _counted(head, _told(request, receipts))):
            collected.seeded |= receipt.seeded
            _expect(head, pair.public.n, query_key, receipt, collected)
        with self._one_at_a_time:  # whoever comes second finds the decision, and decrypts nothing
            if self._stored(asked, head.cohort) is not None:
                return self._repeated(asked, head, request.digest())
            self._begin(asked, head.cohort, request.digest())
            made = self._decrypted(asked, head, pair, ciphertexts, collected)
            made.request = request.digest()
            return self._recorded(asked, made)

    def _asked(self, head: wire.DecideHead) -> Asked:
        with self._journal.reading() as run:
            row = run("SELECT number, content, key FROM queries WHERE digest = ?", (head.query,)).fetchone()
        if row is None:
            raise Refused(Refusal.UNKNOWN_QUERY)
        asked = Asked(row[0], query_of(row[1]), self._keyring.of_number(row[2]))
        if head.cohort >= asked.query.cohorts:
            raise Refused(Refusal.MALFORMED, f"the query has {asked.query.cohorts} cohorts: got {head.cohort}")
        if head.contributors > asked.query.cohort_populations[head.cohort]:
            decided = self._stored(asked, head.cohort) is not None
            raise Refused(Refusal.ALREADY_DECIDED if decided else Refusal.BAD_RECEIPTS)
        return asked

    def _stored(self, asked: Asked, cohort: int) -> tuple[bytes, bytes] | None:
        """The request that was decided, and its answer."""
        with self._journal.reading() as run:
            row: tuple[bytes, bytes] | None = run(
                "SELECT request, answer FROM decisions WHERE query = ? AND cohort = ?", (asked.number, cohort)
            ).fetchone()
        return row

    def _repeated(self, asked: Asked, head: wire.DecideHead, request: bytes) -> wire.Decision:
        stored = self._stored(asked, head.cohort)
        assert stored is not None  # noqa: S101  # it is there for ever
        return _answer(stored, request)

    def _burnt(self, asked: Asked, head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> wire.Decision:
        request = statements.Request(head)
        checked = sum(1 for _ in self._checked(asked, head, _counted(head, _told(request, receipts))))
        reason = (
            TOO_FEW.format(head.contributors, asked.query.min_contributions)
            if head.contributors < asked.query.min_contributions
            else GIVEN_UP
        )
        made = wire.Decision(
            query=head.query,
            cohort=head.cohort,
            outcome=wire.BURNT,
            contributors=checked,
            reason=reason,
            request=request.digest(),
        )
        with self._one_at_a_time:
            return self._recorded(asked, made)

    def _checked(self, asked: Asked, head: wire.DecideHead, receipts: Iterator[wire.Receipt]) -> Iterator[wire.Receipt]:
        """The receipts, if all are of phones that were dealt to the cohort, distinct, and signed."""
        seen: set[int] = set()
        while some := list(islice(receipts, RECEIPTS_AT_A_TIME)):
            for receipt, phone in zip(some, self._phones_of(asked, head.cohort, some), strict=True):
                self._check(asked.query, head.cohort, receipt, phone, seen)
                seen.add(phone.number)
                yield receipt

    def _phones_of(self, asked: Asked, cohort: int, receipts: Sequence[wire.Receipt]) -> list[Dealt]:
        with self._journal.reading() as run:
            rows = [
                run(
                    "SELECT phones.number, phones.verify_key FROM phones"
                    " JOIN dealt ON dealt.phone = phones.number"
                    " WHERE phones.id = ? AND dealt.query = ? AND dealt.cohort = ?",
                    (receipt.phone, asked.number, cohort),
                ).fetchone()
                for receipt in receipts
            ]
        if None in rows:
            raise Refused(Refusal.BAD_RECEIPTS, "a receipt is of a phone that was not dealt to this cohort")
        return [Dealt(*row) for row in rows]

    @staticmethod
    def _check(query: Query, cohort: int, receipt: wire.Receipt, phone: Dealt, seen: set[int]) -> None:
        if phone.number in seen:
            raise Refused(Refusal.BAD_RECEIPTS, "there are two receipts of one phone")
        if len(receipt.agreement_key) != KEY_BYTES:
            raise Refused(Refusal.BAD_RECEIPTS, f"a receipt names an agreement key of {KEY_BYTES} bytes")
        statement = statements.receipted(query.digest, query.key_id, cohort, receipt)
        if not signed_by(phone.verify_key, statement, receipt.signature):
            raise Refused(Refusal.BAD_RECEIPTS, "a receipt is not signed by its phone")

    def _query_key(self, query: Query) -> AgreementKey:
        try:
            return self._query_keys.get(query.digest)
        except (KeyFileError, OSError) as error:
            _log.error("a query's key cannot be opened", extra={"query": query.id, "reason": str(error)})
            raise Refused(Refusal.UNAVAILABLE, f"the key of {query.id!r} cannot be opened at present") from error

    @staticmethod
    def _decrypted(
        asked: Asked, head: wire.DecideHead, pair: KeyPair, ciphertexts: list[int], collected: Collected
    ) -> wire.Decision:
        n = pair.public.n
        hidden = pair.decrypt(ciphertexts)
        plain = [centred(number - pads, n) for number, pads in zip(hidden, collected.pads, strict=True)]
        found = packing_of(asked.query, asked.key.bits).unpack(plain)
        made = wire.Decision(query=head.query, cohort=head.cohort, contributors=collected.phones)
        made.seeded = collected.seeded
        if _same(found.tags, collected.tags, asked.key.bits):
            made.outcome = wire.RELEASED
            made.sums.extend(map(statements.shortest, found.counters))
        else:
            made.outcome = wire.VOID
            made.reason = NOT_THEIR_SUM
        return made

    def _begin(self, asked: Asked, cohort: int, request: bytes) -> None:
        """Write down which request is about to be decrypted: after a crash in the midst of it, no other one counts.

        Or the cohort could be burnt, and its phones take their budget back, after its sum was seen.
        """
        with self._journal.transaction() as run:
            refuse_retired(self._keyring.of_number(asked.key.number).state)  # it may have been meanwhile
            run("INSERT OR IGNORE INTO begun VALUES (?, ?, ?)", (asked.number, cohort, request))
            _refuse_another(run, asked, cohort, request)

    def _recorded(self, asked: Asked, made: wire.Decision) -> wire.Decision:
        """Sign a decision and write it down, unless there is one, which then is the answer."""
        made.signature = self._identity.signing.sign(statements.decision(made))
        with self._journal.transaction() as run:
            stored = self._stored(asked, made.cohort)
            if stored is not None:  # by another process
                return _answer(stored, made.request)
            _refuse_another(run, asked, made.cohort, made.request)
            refuse_retired(self._keyring.of_number(asked.key.number).state)  # it may have been meanwhile
            answer = made.SerializeToString(deterministic=True)
            run(
                "INSERT INTO decisions (query, cohort, request, answer, made) VALUES (?, ?, ?, ?, ?)",
                (asked.number, made.cohort, made.request, answer, milliseconds(self._now())),
            )
            finish_drained(run, asked.key.number)
            over = run(f"SELECT 1 FROM queries WHERE number = ? AND {IS_DECIDED}", (asked.number,)).fetchone()  # noqa: S608  # constants
        if over:  # a kill before this is made up for when the server begins
            self._query_keys.erase(asked.query.digest)
        self._keyring.clear()
        told = {"query": asked.query.id, "cohort": made.cohort, "outcome": wire.Outcome.Name(made.outcome)}
        _log.info("decided", extra=told | {"contributors": made.contributors, "reason": made.reason})
        return made


def _expect(
    head: wire.DecideHead, n: int, query_key: AgreementKey, receipt: wire.Receipt, collected: Collected
) -> None:
    """Add the tags and pads of a contribution to those of the others."""
    try:
        secret = shared_secret(
            query_key, phone=receipt.phone, phone_key=receipt.agreement_key, query_key=query_key.public
        )
    except ValueError:  # the phone has chosen a key with which nothing is secret: it harms only itself
        secret = NO_SECRET
    collected.phones += 1
    for place in range(len(collected.tags)):
        collected.tags[place] += tag(secret, head.query, head.cohort, place)
        collected.pads[place] += pad(secret, head.query, head.cohort, place, n)


def _refuse_another(run: Execute, asked: Asked, cohort: int, request: bytes) -> None:
    """Refuse a request where the sum of another one was decrypted."""
    begun = run("SELECT request FROM begun WHERE query = ? AND cohort = ?", (asked.number, cohort)).fetchone()
    if begun is not None and not hmac.compare_digest(begun[0], request):
        raise Refused(Refusal.ALREADY_DECIDED)


def _request(head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> bytes:
    """The digest of a request whose receipts say nothing that is asked."""
    request = statements.Request(head)
    for _ in _counted(head, _told(request, receipts)):
        pass
    return request.digest()


def _told(request: statements.Request, receipts: Iterable[wire.Receipt]) -> Iterator[wire.Receipt]:
    """The receipts, each taken into the request's digest."""
    for receipt in receipts:
        request.add((receipt,))
        yield receipt


def _counted(head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> Iterator[wire.Receipt]:
    """The receipts, if they are as many as the head says."""
    count = 0
    for receipt in receipts:
        count += 1
        if count > head.contributors:
            break
        yield receipt
    if count != head.contributors:
        raise Refused(Refusal.BAD_RECEIPTS, f"there must be {head.contributors} receipts: there are others")


def _ciphertexts(head: wire.DecideHead, query: Query, pair: KeyPair) -> list[int]:
    try:
        ciphertexts = ciphertexts_from(head.ciphertexts, pair.public)
        pair.public.check(ciphertexts)
    except (BadCiphertexts, ValueError) as error:
        raise Refused(Refusal.BAD_CIPHERTEXTS, str(error)) from error
    wanted = packing_of(query, pair.public.bits).plaintexts
    if len(ciphertexts) != wanted:
        raise Refused(Refusal.BAD_CIPHERTEXTS, f"the query has {wanted} ciphertexts: got {len(ciphertexts)}")
    return ciphertexts


def _same(found: Sequence[int], expected: Sequence[int], bits: int) -> bool:
    """Whether the tags are those that are expected, told in a time that does not depend on where they differ."""
    size = bits // 8 + 1
    told = b"".join(number.to_bytes(size, "big", signed=True) for number in found)
    return hmac.compare_digest(told, b"".join(number.to_bytes(size, "big", signed=True) for number in expected))


def _answer(stored: tuple[bytes, bytes], request: bytes) -> wire.Decision:
    decided, answer = stored
    if not hmac.compare_digest(decided, request):
        raise Refused(Refusal.ALREADY_DECIDED)
    return wire.Decision.FromString(answer)
