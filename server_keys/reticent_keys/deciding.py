"""Deciding a cohort, once: its sum is released; or it is burnt, and never decrypted; or it is void.

The source is "Count" of section 5.4 of Götz's dissertation, in which the holder of the secret key decrypts whatever it
gets. Here a sum is released only if it is the sum of contributions for which there are receipts (docs/encryption.md).
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from reticent.paillier import BadCiphertexts, PublicKey, centred
from reticent.privacy import Query
from reticent.protocol import AgreementKey, Refusal, Refused, packing_of, statements
from reticent.protocol.layout import ciphertexts_from
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.dealing import query_of
from reticent_keys.errors import KeyFileError
from reticent_keys.identity import Identity
from reticent_keys.journal import CountersignedQuery, Journal, RecordedDecision
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Keyring
from reticent_keys.metrics import DECISIONS
from reticent_keys.query_key_store import QueryKeyStore
from reticent_keys.receipt_workers import ReceiptWorkers
from reticent_keys.receipts import CheckedReceipts, Expectation, Receipts, check

__all__ = ["Decider", "DecisionRequest"]

_log = logging.getLogger(__name__)

RECEIPTS_PER_BATCH = 1000
FEW = 2000
"""Receipts that are checked in this process: others take longer to start."""
NOT_THEIR_SUM = "the decrypted sum is not that of these contributions"
TOO_FEW = "{} contributions, at least {} are required"
GIVEN_UP = "the aggregation server aborted the cohort"
TOO_LATE = "the query was not decided in time, and its key is erased"


class Cohort(NamedTuple):
    """A cohort of a countersigned query."""

    number: int
    query: Query
    recorded: CountersignedQuery


@dataclass
class Decryption:
    """A sum to decrypt.

    Args:
        pair: Decrypts it.
        ciphertexts: The sum.
    """

    pair: KeyPair
    ciphertexts: list[int]


class Checking:
    """The receipts of a cohort while they arrive. Few are in memory at a time.

    Args:
        journal: Has the phones of the cohort.
        cohort: The cohort.
        expectation: What the receipts are checked against.
        workers: Check them; without them, this thread does.
    """

    def __init__(
        self, journal: Journal, cohort: Cohort, expectation: Expectation, workers: ReceiptWorkers | None
    ) -> None:
        self._journal = journal
        self._cohort = cohort
        self._expectation = expectation
        self._workers = workers
        self._pending = deque[Future[CheckedReceipts]]()
        self._is_abandoned = False
        self._last = b""
        places = expectation.plaintexts
        self._checked = CheckedReceipts([0] * places, [0] * places)

    def add(self, receipts: Sequence[wire.Receipt]) -> None:
        """Check more receipts. This waits while the workers have many.

        Raises:
            Refused: BAD_RECEIPTS, also for earlier receipts.
        """
        for receipt in receipts:
            if receipt.phone <= self._last:
                raise Refused(Refusal.BAD_RECEIPTS, "the receipts are not in the order of their phones, one of each")
            self._last = receipt.phone
        phones = [receipt.phone for receipt in receipts]
        some = Receipts(receipts, self._journal.verify_keys(self._cohort.recorded.number, self._cohort.number, phones))
        if self._workers is None:
            self._checked.add(check(self._expectation, some))
            return
        self._pending.append(self._workers.submit(self._expectation, some))
        if self._is_abandoned:
            self.abandon()
        if len(self._pending) > 2 * self._workers.processes:
            self._checked.add(self._pending.popleft().result())

    def abandon(self) -> None:
        """Drop the receipts that no worker checks yet, while another thread may add some: nobody wants the result."""
        self._is_abandoned = True
        with contextlib.suppress(IndexError):
            while True:
                self._pending.popleft().cancel()

    def result(self) -> CheckedReceipts:
        """The sums that all receipts yield.

        Raises:
            Refused: BAD_RECEIPTS. UNAVAILABLE: they are abandoned.
        """
        with contextlib.suppress(IndexError):
            while True:
                self._checked.add(self._pending.popleft().result())
        if self._is_abandoned:  # some are missing
            raise Refused(Refusal.UNAVAILABLE, "the request is abandoned")
        return self._checked


@dataclass
class DecisionRequest:
    """A request to decide a cohort, while its receipts arrive: for `Decider.add` and `Decider.decide`."""

    head: wire.DecideHead
    cohort: Cohort
    digest: statements.RequestDigest
    checking: Checking | None = None
    """None if the cohort is decided: then the request is only compared."""
    decryption: Decryption | None = None
    """None to burn the cohort."""
    received: int = 0


class Decider:
    """Decides cohorts.

    A request is begun, gets its receipts in parts, and is decided. No method waits for the caller, so a caller that
    sends no receipts holds nobody up.

    Args:
        journal: Records decisions before they are sent.
        identity: Signs them.
        keyring: Has the secret keys.
        query_keys: Has the keys of single queries.
        now: The clock.
        workers: Check receipts, if there are many and several cores; otherwise the calling thread does.
    """

    def __init__(  # noqa: PLR0917  # the parts of a key server
        self,
        journal: Journal,
        identity: Identity,
        keyring: Keyring,
        query_keys: QueryKeyStore,
        now: Now,
        workers: ReceiptWorkers | None = None,
    ) -> None:
        self._journal = journal
        self._identity = identity
        self._keyring = keyring
        self._query_keys = query_keys
        self._now = now
        self._workers = workers if workers is not None and workers.processes > 1 else None
        self._locks = WeakValueDictionary[tuple[int, int], threading.Lock]()  # by query and cohort
        self._locks_lock = threading.Lock()

    def begin(self, head: wire.DecideHead) -> DecisionRequest:
        """Begin a request.

        Args:
            head: Which cohort, and its sum.

        Raises:
            Refused: MALFORMED, UNKNOWN_QUERY, KEY_RETIRED, UNAVAILABLE, BAD_RECEIPTS, BAD_CIPHERTEXTS, ALREADY_DECIDED.
        """
        cohort = self._cohort(head)
        request = DecisionRequest(head, cohort, statements.RequestDigest(head))
        if self._journal.decision(cohort.recorded.number, cohort.number) is not None:
            return request
        cohort.recorded.key.refuse_retired()
        n = plaintexts = 0
        query_key = b""
        if head.contributors >= cohort.query.min_contributions and head.ciphertexts:
            self._refuse_late(cohort)
            pair, query_key = self._keyring.pair(cohort.recorded.key), self._query_key(cohort).to_bytes()
            request.decryption = Decryption(pair, _ciphertexts(head, cohort.query, pair.public))
            n, plaintexts = pair.public.n, len(request.decryption.ciphertexts)
        expectation = Expectation(cohort.recorded.digest, cohort.query.key_id, cohort.number, n, plaintexts, query_key)
        workers = self._workers if head.contributors > FEW else None
        request.checking = Checking(self._journal, cohort, expectation, workers)
        return request

    def add(self, request: DecisionRequest, receipts: Sequence[wire.Receipt]) -> None:
        """Take the next receipts of a request. They are not kept.

        Raises:
            Refused: BAD_RECEIPTS, UNAVAILABLE.
        """
        request.received += len(receipts)
        if request.received > request.head.contributors:
            raise Refused(Refusal.BAD_RECEIPTS, _wrong_number(request.head))
        request.digest.add(receipts)
        if request.checking is not None:
            for first in range(0, len(receipts), RECEIPTS_PER_BATCH):
                request.checking.add(receipts[first : first + RECEIPTS_PER_BATCH])

    def abandon(self, request: DecisionRequest) -> None:
        """Drop what is left of a request that is decided, was refused, or whose caller is gone."""
        if request.checking is not None:
            request.checking.abandon()

    def decide(self, request: DecisionRequest) -> wire.Decision:
        """Decide a request that has all its receipts; the same request gets the same decision again.

        Raises:
            Refused: KEY_RETIRED, UNAVAILABLE, BAD_RECEIPTS; ALREADY_DECIDED, also if the sum of another request was
                decrypted and no decision was recorded. Nothing changes then.
        """
        cohort = request.cohort
        if request.received != request.head.contributors:
            raise Refused(Refusal.BAD_RECEIPTS, _wrong_number(request.head))
        checked = None if request.checking is None else request.checking.result()
        with self._lock(cohort):  # of two that race, the second finds the decision, and decrypts nothing
            earlier = self._journal.decision(cohort.recorded.number, cohort.number)
            if earlier is not None or checked is None:
                return _repeated(earlier, request.digest.digest())
            if request.decryption is None:
                return self._record(cohort, _burnt(request, checked))
            self._refuse_late(cohort)
            self._journal.note_decryption(cohort.recorded.number, cohort.number, request.digest.digest())
            return self._record(cohort, _decrypted(request, request.decryption, checked))

    def _cohort(self, head: wire.DecideHead) -> Cohort:
        recorded = self._journal.query(head.query)
        if recorded is None:
            raise Refused(Refusal.UNKNOWN_QUERY)
        query = query_of(recorded.content)
        if head.cohort >= query.cohorts:
            raise Refused(Refusal.MALFORMED, f"the query has {query.cohorts} cohorts: got {head.cohort}")
        if head.contributors > query.cohort_populations[head.cohort]:
            is_decided = self._journal.decision(recorded.number, head.cohort) is not None
            raise Refused(Refusal.ALREADY_DECIDED if is_decided else Refusal.BAD_RECEIPTS)
        return Cohort(head.cohort, query, recorded)

    def _refuse_late(self, cohort: Cohort) -> None:
        if cohort.recorded.deadline <= milliseconds(self._now()):
            raise Refused(Refusal.KEY_RETIRED, TOO_LATE)

    def _lock(self, cohort: Cohort) -> threading.Lock:
        """The lock of a cohort: decisions for others run meanwhile."""
        with self._locks_lock:
            return self._locks.setdefault((cohort.recorded.number, cohort.number), threading.Lock())

    def _query_key(self, cohort: Cohort) -> AgreementKey:
        try:
            key = self._query_keys.get(cohort.query.digest)
        except (KeyFileError, OSError) as error:
            raise _unopened(cohort.query, str(error)) from error
        if key.public != cohort.recorded.agreement_key:  # with another process's key, each sum would be void
            raise _unopened(cohort.query, "it is another key than the countersigned one")
        return key

    def _record(self, cohort: Cohort, decision: wire.Decision) -> wire.Decision:
        """Sign a decision and record it; or repeat the one that another process has recorded."""
        decision.signature = self._identity.signing.sign(statements.decision(decision))
        signed = RecordedDecision(decision.request, decision.SerializeToString(deterministic=True))
        recorded = self._journal.decide(cohort.recorded.number, cohort.number, signed, milliseconds(self._now()))
        if self._journal.is_decided(cohort.recorded.number):  # if this fails, maintenance does it
            self._query_keys.erase(cohort.recorded.digest)
        self._keyring.erase_unused()
        if recorded == signed:
            DECISIONS.labels(wire.Outcome.Name(decision.outcome).lower()).inc()
            _log.info(
                "decided",
                extra={
                    "query": cohort.query.id,
                    "cohort": cohort.number,
                    "outcome": wire.Outcome.Name(decision.outcome),
                    "contributors": decision.contributors,
                    "reason": decision.reason,
                },
            )
        return _repeated(recorded, decision.request)


def _unopened(query: Query, reason: str) -> Refused:
    _log.error("the key of a query cannot be opened", extra={"query": query.id, "reason": reason})
    return Refused(Refusal.UNAVAILABLE, f"the key of {query.id!r} cannot be opened at present")


def _ciphertexts(head: wire.DecideHead, query: Query, key: PublicKey) -> list[int]:
    try:
        ciphertexts = ciphertexts_from(head.ciphertexts, key)
        key.check(ciphertexts)
    except (BadCiphertexts, ValueError) as error:
        raise Refused(Refusal.BAD_CIPHERTEXTS, str(error)) from error
    plaintexts = packing_of(query, key.bits).plaintexts
    if len(ciphertexts) != plaintexts:
        raise Refused(Refusal.BAD_CIPHERTEXTS, f"the query has {plaintexts} ciphertexts: got {len(ciphertexts)}")
    return ciphertexts


def _wrong_number(head: wire.DecideHead) -> str:
    return f"the head announces {head.contributors} receipts: there are fewer or more"


def _burnt(request: DecisionRequest, checked: CheckedReceipts) -> wire.Decision:
    enough = request.cohort.query.min_contributions
    return wire.Decision(
        query=request.head.query,
        cohort=request.cohort.number,
        outcome=wire.BURNT,
        contributors=checked.contributors,
        reason=TOO_FEW.format(checked.contributors, enough) if checked.contributors < enough else GIVEN_UP,
        request=request.digest.digest(),
    )


def _decrypted(request: DecisionRequest, decryption: Decryption, checked: CheckedReceipts) -> wire.Decision:
    n, bits = decryption.pair.public.n, decryption.pair.public.bits
    padded = decryption.pair.decrypt(decryption.ciphertexts)
    plain = [centred(number - pads, n) for number, pads in zip(padded, checked.pads, strict=True)]
    sums = packing_of(request.cohort.query, bits).unpack(plain)
    decision = wire.Decision(
        query=request.cohort.recorded.digest,
        cohort=request.cohort.number,
        contributors=checked.contributors,
        seeded=checked.seeded,
        request=request.digest.digest(),
    )
    if _are_equal(sums.tags, checked.tags, bits):
        decision.outcome = wire.RELEASED
        decision.sums.extend(map(statements.integer_to, sums.counters))
    else:
        decision.outcome = wire.VOID
        decision.reason = NOT_THEIR_SUM
    return decision


def _are_equal(found: Sequence[int], expected: Sequence[int], bits: int) -> bool:
    """Whether the tags are equal, in a time that does not depend on where they differ."""
    size = bits // 8 + 1
    return hmac.compare_digest(
        b"".join(number.to_bytes(size, "big", signed=True) for number in found),
        b"".join(number.to_bytes(size, "big", signed=True) for number in expected),
    )


def _repeated(recorded: RecordedDecision | None, request: bytes) -> wire.Decision:
    """The recorded decision, for the request that was decided and no other."""
    if recorded is None or not hmac.compare_digest(recorded.request, request):
        raise Refused(Refusal.ALREADY_DECIDED)
    return wire.Decision.FromString(recorded.content)
