"""From what an app has counted to the signed message that says it to nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Norms, Query
from reticent.protocol import packing_of, statements
from reticent.protocol.layout import ciphertexts_to
from reticent.randomness import is_seeded
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.conditions import Declined, Reason
from reticent_client.counting.enrolment import Member

__all__ = ["Answer", "answer", "values_of"]


class Answer(NamedTuple):
    """A contribution that was never sent.

    Args:
        message: What is sent.
        digest: Of what is signed; by it the message is acknowledged.
        norms: The size of what it says, without the noise.
    """

    message: wire.Contribution
    digest: bytes
    norms: Norms


def values_of(query: Query, counted: Mapping[str, float] | None) -> list[float]:
    """Run by the phone. A number for each counter, within its bounds: 0 where the app has none, or has no number (NaN).

    Whether the phone takes part is seen, so it must not depend on what was counted: whatever arithmetic may bring
    about is said as some number. Only what is of no numeric type is declined, which is a mistake of the app.

    Raises:
        Declined: The app has nothing to say to this query, or says what is of no numeric type.
    """
    if counted is None:
        raise Declined(Reason.NOTHING_TO_SAY, f"there are no counters for {query.id!r}", query.id)
    values = []
    for counter in query.counters:
        value: Any = counted.get(counter.name, 0.0)  # apps are not checked by anybody else
        try:
            number = _number(value)
        except Exception as error:  # an app's own kind of number may fail in its own way
            raise Declined(
                Reason.BAD_COUNTERS, f"{counter.name!r} must be a number: got a {type(value).__name__}", query.id
            ) from error
        values.append(0.0 if math.isnan(number) else min(max(number, float(counter.low)), float(counter.high)))
    return values


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError("text is no number")
    try:
        return float(value)
    except OverflowError:  # an int may be too large
        return math.inf if value > 0 else -math.inf


def answer(
    query: Query, cohort: int, values: list[float], used: Norms, *, key: PublicKey, member: Member,
    rng: np.random.Generator,
) -> Answer:  # fmt: skip
    """Run by the phone. Fit, hide, tag, encrypt and sign what was counted; each time another message.

    Args:
        query: What is asked.
        cohort: The phone's.
        values: One for each counter.
        used: What was said to other queries of the same sequence.
        key: The one that the query names.
        member: Who says it.
        rng: Where the noise and the exponents come from.
    """
    steps = query.fit(values, used=used)
    noisy = [int(step) + int(share) for step, share in zip(steps, query.share(rng), strict=True)]
    packing, secret = packing_of(query, key.bits), member.secret()
    places = range(packing.plaintexts)
    plaintexts = packing.pack(noisy, [tag(secret, query.digest, cohort, place) for place in places])
    pads = (pad(secret, query.digest, cohort, place, key.n) for place in places)
    hidden = [centred(plaintext + each, key.n) for plaintext, each in zip(plaintexts, pads, strict=True)]
    ciphertexts = ciphertexts_to(key.encrypt(hidden, rng), key)
    message = wire.Contribution(
        query=query.digest, phone=member.phone, cohort=cohort, ciphertexts=ciphertexts, seeded=is_seeded(rng)
    )
    statement = statements.contribution(message, query.key_id)
    message.signature = member.signing.sign(statement)
    return Answer(message, statements.digest(statement), Norms.of(steps))
