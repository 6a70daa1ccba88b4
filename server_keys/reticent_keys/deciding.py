"""Deciding a cohort, once: its sum is released; or it is burnt, and never decrypted; or it is void.

The source is "Count" of section 5.4 of Götz's dissertation, in which the holder of the secret key decrypts whatever it
gets. Here a sum is released only if it is the sum of contributions for which there are receipts (docs/encryption.md).
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from reticent.paillier import BadCiphertexts, PublicKey, centred, pad, tag
from reticent.privacy import Query
from reticent.protocol import AgreementKey, Refusal, Refused, packing_of, shared_secret, signed_by, statements
from reticent.protocol.keys import KEY_BYTES
from reticent.protocol.layout import ciphertexts_from
from reticent.times import Now, milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys.dealing import query_of
from reticent_keys.errors import KeyFileError
from reticent_keys.identity import Identity
from reticent_keys.journal import CountersignedQuery, Journal, RecordedDecision
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Keyring
from reticent_keys.query_key_store import QueryKeyStore

__all__ = ["Decider"]

_log = logging.getLogger(__name__)

RECEIPTS_PER_BATCH = 200
NO_SECRET = bytes(KEY_BYTES)
NOT_THEIR_SUM = "the decrypted sum is not that of these contributions"
TOO_FEW = "{} contributions, at least {} are required"
GIVEN_UP = "the aggregation server aborted the cohort"
TOO_LATE = "the query was not decided in time, and its key is erased"


class Cohort(NamedTuple):
    """A cohort of a countersigned query."""

    number: int
    query: Query
    recorded: CountersignedQuery


class ExpectedSum:
    """The parts of a cohort's plaintexts beside the counters, computed from its receipts.

    Args:
        cohort: The cohort.
        key: The public key of its query.
        query_key: The key server's key for its query.
    """

    def __init__(self, cohort: Cohort, key: PublicKey, query_key: AgreementKey) -> None:
        self._cohort = cohort
        self._n = key.n
        self._query_key = query_key
        plaintexts = packing_of(cohort.query, key.bits).plaintexts
        self.tags = [0] * plaintexts
        self.pads = [0] * plaintexts
        self.contributors = 0
        self.seeded = False

    def add(self, receipt: wire.Receipt) -> None:
        """Add the tags and pads of one contribution."""
        phone, phone_key, query_key = receipt.phone, receipt.agreement_key, self._query_key
        try:
            secret = shared_secret(query_key, phone=phone, phone_key=phone_key, query_key=query_key.public)
        except ValueError:  # the phone chose a key with which nothing is secret: it harms only itself
            secret = NO_SECRET
        self.contributors += 1
        self.seeded |= receipt.seeded
        for place in range(len(self.tags)):
            self.tags[place] += tag(secret, self._cohort.recorded.digest, self._cohort.number, place)
            self.pads[place] += pad(secret, self._cohort.recorded.digest, self._cohort.number, place, self._n)


class Decider:
    """Decides cohorts.

    Args:
        journal: Records decisions before they are sent.
        identity: Signs them.
        keyring: Has the secret keys.
        query_keys: Has the keys of single queries.
        now: The clock.
    """

    def __init__(
        self, journal: Journal, identity: Identity, keyring: Keyring, query_keys: QueryKeyStore, now: Now
    ) -> None:
        self._journal = journal
        self._identity = identity
        self._keyring = keyring
        self._query_keys = query_keys
        self._now = now
        self._one_at_a_time = threading.Lock()

    def decide(self, head: wire.DecideHead, receipts: Iterable[wire.Receipt]) -> wire.Decision:
        """Decide a cohort; the same request gets the same decision again.

        Args:
            head: Which cohort, and its sum.
            receipts: One for each contribution in the sum. They are read once, and not kept.

        Raises:
            Refused: MALFORMED, UNKNOWN_QUERY, KEY_RETIRED, UNAVAILABLE, BAD_RECEIPTS, BAD_CIPHERTEXTS; ALREADY_DECIDED,
                also if the sum of another request was decrypted and no decision was recorded. Nothing changes then.
        """
        cohort = self._cohort(head)
        request = statements.RequestDigest(head)
        counted = _counted(head, request, receipts)
        earlier = self._journal.decision(cohort.recorded.number, cohort.number)
        if earlier is not None:
            for _ in counted:
                pass
            return _repeated(earlier, request.digest())
        cohort.recorded.key.refuse_retired()
        if head.contributors < cohort.query.min_contributions or not head.ciphertexts:
            return self._burn(cohort, head, request, counted)
        if cohort.recorded.deadline <= milliseconds(self._now()):
            raise Refused(Refusal.KEY_RETIRED, TOO_LATE)
        pair, query_key = self._keyring.pair(cohort.recorded.key), self._query_key(cohort.query)
        ciphertexts = _ciphertexts(head, cohort.query, pair.public)
        expected = ExpectedSum(cohort, pair.public, query_key)
        for receipt in self._checked(cohort, counted):
            expected.add(receipt)
        with self._one_at_a_time:  # of two that race, the second finds the decision, and decrypts nothing
            earlier = self._journal.decision(cohort.recorded.number, cohort.number)
            if earlier is not None:
                return _repeated(earlier, request.digest())
            self._journal.note_decryption(cohort.recorded.number, cohort.number, request.digest())
            return self._record(cohort, _decrypted(cohort, request, pair, ciphertexts, expected))

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

    def _burn(
        self, cohort: Cohort, head: wire.DecideHead, request: statements.RequestDigest, receipts: Iterator[wire.Receipt]
    ) -> wire.Decision:
        contributors = sum(1 for _ in self._checked(cohort, receipts))
        is_small = contributors < cohort.query.min_contributions
        decision = wire.Decision(
            query=head.query,
            cohort=head.cohort,
            outcome=wire.BURNT,
            contributors=contributors,
            reason=TOO_FEW.format(contributors, cohort.query.min_contributions) if is_small else GIVEN_UP,
            request=request.digest(),
        )
        with self._one_at_a_time:
            return self._record(cohort, decision)

    def _checked(self, cohort: Cohort, receipts: Iterator[wire.Receipt]) -> Iterator[wire.Receipt]:
        """The receipts, refused unless they are signed by distinct phones that were dealt to the cohort."""
        seen: set[bytes] = set()
        while batch := list(islice(receipts, RECEIPTS_PER_BATCH)):
            phones = (receipt.phone for receipt in batch)
            verify_keys = self._journal.verify_keys(cohort.recorded.number, cohort.number, phones)
            for receipt, verify_key in zip(batch, verify_keys, strict=True):
                if verify_key is None:
                    raise Refused(Refusal.BAD_RECEIPTS, "a receipt is of a phone that was not dealt to this cohort")
                if receipt.phone in seen:
                    raise Refused(Refusal.BAD_RECEIPTS, "there are two receipts of one phone")
                if len(receipt.agreement_key) != KEY_BYTES:
                    raise Refused(Refusal.BAD_RECEIPTS, f"a receipt names an agreement key of {KEY_BYTES} bytes")
                statement = statements.contribution_of(cohort.query.digest, cohort.query.key_id, cohort.number, receipt)
                if not signed_by(verify_key, statement, receipt.signature):
                    raise Refused(Refusal.BAD_RECEIPTS, "a receipt is not signed by its phone")
                seen.add(receipt.phone)
                yield receipt

    def _query_key(self, query: Query) -> AgreementKey:
        try:
            return self._query_keys.get(query.digest)
        except (KeyFileError, OSError) as error:
            _log.error("the key of a query cannot be opened", extra={"query": query.id, "reason": str(error)})
            raise Refused(Refusal.UNAVAILABLE, f"the key of {query.id!r} cannot be opened at present") from error

    def _record(self, cohort: Cohort, decision: wire.Decision) -> wire.Decision:
        """Sign a decision and record it; or repeat the one that another process has recorded."""
        decision.signature = self._identity.signing.sign(statements.decision(decision))
        signed = RecordedDecision(decision.request, decision.SerializeToString(deterministic=True))
        recorded = self._journal.decide(cohort.recorded.number, cohort.number, signed, milliseconds(self._now()))
        if self._journal.is_decided(cohort.recorded.number):  # a server that dies before this does it when it starts
            self._query_keys.erase(cohort.recorded.digest)
        self._keyring.erase_unused()
        if recorded == signed:
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


def _counted(
    head: wire.DecideHead, request: statements.RequestDigest, receipts: Iterable[wire.Receipt]
) -> Iterator[wire.Receipt]:
    """The receipts, each added to the digest of the request; refused unless they are as many as the head says."""
    count = 0
    for receipt in receipts:
        request.add((receipt,))
        count += 1
        if count > head.contributors:
            break
        yield receipt
    if count != head.contributors:
        raise Refused(Refusal.BAD_RECEIPTS, f"the head announces {head.contributors} receipts: there are fewer or more")


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


def _decrypted(
    cohort: Cohort, request: statements.RequestDigest, pair: KeyPair, ciphertexts: list[int], expected: ExpectedSum
) -> wire.Decision:
    padded = pair.decrypt(ciphertexts)
    plain = [centred(number - pads, pair.public.n) for number, pads in zip(padded, expected.pads, strict=True)]
    sums = packing_of(cohort.query, pair.public.bits).unpack(plain)
    decision = wire.Decision(
        query=cohort.recorded.digest,
        cohort=cohort.number,
        contributors=expected.contributors,
        seeded=expected.seeded,
        request=request.digest(),
    )
    if _are_equal(sums.tags, expected.tags, pair.public.bits):
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


def _repeated(recorded: RecordedDecision, request: bytes) -> wire.Decision:
    """The recorded decision, for the request that was decided and no other."""
    if not hmac.compare_digest(recorded.request, request):
        raise Refused(Refusal.ALREADY_DECIDED)
    return wire.Decision.FromString(recorded.content)
