"""Phones for load tests: real servers enrol them and check all that they send, and a contribution costs 0.1 ms to make.

A phone adds no noise, so that a test knows the exact sum. It hides its plaintexts by one of a few powers of the key's
base, and all phones share the agreement key of a query. Both are unsafe, and neither changes what a server computes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gmpy2 import mpz

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Counter, Norms, Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, statements
from reticent.protocol.invitation import Invitation
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.contribution import prepare
from reticent_client.counting.enrolment import Member

__all__ = ["CheapContributions", "LoadPhone", "exact_query", "prepared_contribution"]

POWERS = 64
INVITATION = Invitation(token=bytes(16), identity=bytes(32), authority="", key_server="", aggregation_server="")


@dataclass
class LoadPhone:
    """A phone with its signing key; its id comes with its membership.

    Args:
        token: Of its invitation.
        signing: Its key.
        id: Given by the key server; empty before.
    """

    token: bytes
    signing: SigningKey
    id: bytes = b""

    def joining(self) -> wire.JoinRequest:
        """The request to be enrolled."""
        statement = statements.joining(self.token, self.signing.public)
        return wire.JoinRequest(
            invitation=self.token, verify_key=self.signing.public, signature=self.signing.sign(statement)
        )

    def fetching(self, query: bytes) -> wire.QueryRequest:
        """The request for a query."""
        signature = self.signing.sign(statements.fetching(query, self.id))
        return wire.QueryRequest(query=query, phone=self.id, signature=signature)


class CheapContributions:
    """Makes the contributions of many phones to one query.

    Args:
        query: The query.
        key: The Paillier key that it names.
        query_key: The key server's key for this query.
    """

    def __init__(self, query: Query, key: PublicKey, query_key: bytes) -> None:
        self._query = query
        self._packing = packing_of(query, key.bits)
        self._query_key = query_key
        self._own = _OneExchange()
        self._n = key.n
        self._n_squared = mpz(key.n) ** 2
        self._size = key.ciphertext_bytes
        self._powers = _powers(key)

    def contribution(self, phone: LoadPhone, cohort: int, values: Sequence[int]) -> wire.Contribution:
        """The signed contribution of a phone, which adds these values and no noise."""
        digest = self._query.digest
        secret = shared_secret(self._own, phone=phone.id, phone_key=self._own.public, query_key=self._query_key)
        tags = [tag(secret, digest, cohort, place) for place in range(self._packing.plaintexts)]
        ciphertexts = [
            self._hidden(plaintext + pad(secret, digest, cohort, place, self._n), phone.id[-1] + place)
            for place, plaintext in enumerate(self._packing.pack(values, tags))
        ]
        message = wire.Contribution(
            query=digest,
            phone=phone.id,
            cohort=cohort,
            agreement_key=self._own.public,
            ciphertexts=b"".join(ciphertexts),
            seeded=True,
        )
        message.signature = phone.signing.sign(statements.contribution(message, self._query.key_id))
        return message

    def _hidden(self, plaintext: int, power: int) -> bytes:
        ciphertext = (1 + centred(plaintext, self._n) * self._n) * self._powers[power % POWERS] % self._n_squared
        return int(ciphertext).to_bytes(self._size, "big")


def prepared_contribution(query: Query, key: PublicKey, query_key: bytes, phone: LoadPhone) -> tuple[bytes, float]:
    """A contribution as a real phone makes it, with noise, and the CPU seconds that it took."""
    member = Member(INVITATION, phone.signing, phone=phone.id)
    rng = secure()
    begun = time.process_time()
    made = prepare(
        query, 0, [1.0] * len(query.counters), Norms(0, 0), key=key, query_key=query_key, member=member, rng=rng
    )
    return made.message.SerializeToString(), time.process_time() - begun


def exact_query(name: str, key_id: str, phones: int, counters: int = 1, *, closes_after: int) -> Query:
    """A query to all of these phones in one cohort, whose counters are 0 or 1, and which tolerates the usual liars."""
    return Query(
        id=name,
        counters=[Counter(f"counter {number}", 0, 1) for number in range(counters)],
        epsilon=1.0,
        delta=1e-6,
        l2_squared=1,
        l1=1,
        noise="skellam",
        population=phones,
        cohorts=1,
        min_contributions=phones * 9 // 10,
        liars=phones // 20,
        key_id=key_id,
        closes_after=closes_after,
    )


class _OneExchange(AgreementKey):
    """A key pair that computes an exchange once."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange = functools.cache(super().exchange)  # type: ignore[method-assign]


@functools.lru_cache(maxsize=4)
def _powers(key: PublicKey) -> list[mpz]:
    return [mpz(number) for number in key.encrypt([0] * POWERS, secure())]
