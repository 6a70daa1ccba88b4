"""From the counters of an app to the signed and encrypted message that contributes them."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Bin, Counter, Norms, Query
from reticent.protocol import AgreementKey, packing_of, shared_secret, statements
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import is_seeded
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.enrolment import Member
from reticent_client.errors import Declined, Reason

__all__ = ["PreparedContribution", "prepare", "source_of", "values_of", "within_bounds"]

KEY = b"reticent.agreement-key.1\n"  # separates these keys from any other use of the signing key
AGREEMENT_ENTROPY = 32  # bytes


class PreparedContribution(NamedTuple):
    """A contribution that was never sent.

    Args:
        message: What is sent.
        digest: Of what is signed; by it the message is acknowledged.
        norms: The size of the values before noise; 0 where no other query of a sequence has to know it.
    """

    message: wire.Contribution
    digest: bytes
    norms: Norms


def values_of(query: Query, counted: Mapping[str, float] | None) -> list[float]:
    """Run by the phone. A number for each counter, within its bounds: 0 where the app has none, or has no number (NaN).

    Whether the phone takes part is seen, so it must not depend on what was counted: any result of arithmetic becomes
    some number. Only a value of no numeric type is declined, which is a mistake of the app.

    Raises:
        Declined: The app has no counters for this query, or one that is of no numeric type.
    """
    if counted is None:
        raise Declined(Reason.NO_COUNTERS, f"there are no counters for {query.id!r}", query.id)
    values = []
    for counter in query.counters:
        source = source_of(counter.name, counted)
        value: Any = counted.get(source, math.nan)  # apps are not checked by anybody else
        try:
            number = _number(value)
        except Exception as error:  # an app's own kind of number may fail in its own way
            raise Declined(
                Reason.BAD_COUNTERS, f"{source!r} must be a number: got a {type(value).__name__}", query.id
            ) from error
        if source != counter.name and (found := Bin.of(counter.name)) is not None:
            number = float(found.contains(number))
        values.append(within_bounds(counter, number))
    return values


def within_bounds(counter: Counter, number: float) -> float:
    """The number that counts: the nearest within the counter's bounds; 0 for NaN."""
    return 0.0 if math.isnan(number) else min(max(number, float(counter.low)), float(counter.high))


def source_of(counter: str, counted: Mapping[str, float]) -> str:
    """The name of the number that a counter takes: its own, or for a bin that has none, that of the binned number."""
    if counter in counted:
        return counter
    found = Bin.of(counter)
    return counter if found is None else found.number


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str | bytes):
        raise TypeError("text is no number")
    try:
        return float(value)
    except OverflowError:  # an int may be too large
        return math.inf if value > 0 else -math.inf


def prepare(
    query: Query,
    cohort: int,
    values: list[float],
    used: Norms,
    *,
    key: PublicKey,
    query_key: bytes,
    member: Member,
    rng: np.random.Generator,
) -> PreparedContribution:
    """Run by the phone. Fit, add noise, tag, pad, encrypt and sign the values; each time another message.

    Args:
        query: The query.
        cohort: The phone's.
        values: One for each counter.
        used: The size of the contributions to other queries of the same sequence.
        key: The Paillier key that the query names.
        query_key: The key server's X25519 key for this query.
        member: The phone.
        rng: Where the noise, the agreement key and the exponents come from.

    Raises:
        ValueError: No contribution can be made, or the query's key is one with which no secret can be shared.
    """
    steps = query.fit(values, used=used)
    noisy = [int(step) + int(share) for step, share in zip(steps, query.share(rng), strict=True)]
    own_key = _agreement_key(query, cohort, noisy, member, rng)
    secret = shared_secret(own_key, phone=member.phone, phone_key=own_key.public, query_key=query_key)
    packing = packing_of(query, key.bits)
    places = range(packing.plaintexts)
    plaintexts = packing.pack(noisy, [tag(secret, query.digest, cohort, place) for place in places])
    pads = (pad(secret, query.digest, cohort, place, key.n) for place in places)
    hidden = [centred(plaintext + each, key.n) for plaintext, each in zip(plaintexts, pads, strict=True)]
    message = wire.Contribution(
        query=query.digest,
        phone=member.phone,
        cohort=cohort,
        agreement_key=own_key.public,
        ciphertexts=ciphertexts_to(key.encrypt(hidden, rng), key),
        seeded=is_seeded(rng),
    )
    statement = statements.contribution(message, query.key_id)
    message.signature = member.signing.sign(statement)
    norms = Norms(0, 0) if query.sequence is None else Norms.of(steps)
    return PreparedContribution(message, statements.digest(statement), norms)


def _agreement_key(
    query: Query, cohort: int, noisy: list[int], member: Member, rng: np.random.Generator
) -> AgreementKey:
    """A key for one contribution, which nobody keeps.

    Two contributions must never share a pad. Fresh randomness sees to that; where it comes twice, as in a phone that
    was copied while it ran, another message still gets another key, for the key depends on the message as well.
    """
    parts = (KEY, rng.bytes(AGREEMENT_ENTROPY), query.digest, f"{cohort} {noisy}".encode())
    return AgreementKey(hmac.digest(member.signing.to_bytes(), b"".join(parts), "sha256"))
