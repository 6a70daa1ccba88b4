"""Tags and pads: they tell the key server which contributions a sum consists of, without any single one.

Each plaintext of a contribution carries a tag. The tags of a sum add up to the expected value only if the sum holds the
expected contributions to this query, each once and in its place.

A tag alone does not bind the counters beside it: the server that adds ciphertexts can also multiply plaintexts, and
some factors fill the counters and do not change the tag. So a pad, uniform modulo n, hides each plaintext as well. The
key server subtracts the pads of the expected contributions. Any other sum stays hidden by a pad, and reveals nothing.
"""

from __future__ import annotations

import hashlib
import hmac

from reticent.arguments import whole

__all__ = ["TAG_BITS", "centred", "pad", "tag"]

TAG_BITS = 128
"""The length of a tag."""

SECRET_BYTES = 32
DIGEST_BYTES = 32
NUMBER_BYTES = 4
UNIFORM_BYTES = 16  # more than n has, so that the remainder modulo n is uniform up to 2^-128
TAG = b"reticent.paillier.tag\x00"  # separates tags from other uses of the secret
PAD = b"reticent.paillier.pad\x00"


def tag(secret: bytes, query_digest: bytes, cohort: int, plaintext: int) -> int:
    """Run by the phone and by the key server. The tag of one plaintext of a contribution.

    The tag is the first 128 bits of HMAC-SHA-256.

    Args:
        secret: The 32 bytes that this contribution shares with the key server.
        query_digest: The query's SHA-256 digest.
        cohort: The phone's cohort.
        plaintext: The place of the plaintext; without it, plaintexts of one phone could be swapped.
    """
    _check(secret, query_digest)
    digest = hmac.digest(secret, TAG + query_digest + _place(cohort, plaintext), hashlib.sha256)
    return int.from_bytes(digest[: TAG_BITS // 8], "big")


def pad(secret: bytes, query_digest: bytes, cohort: int, plaintext: int, n: int) -> int:
    """Run by the phone and by the key server. The pad of one plaintext of a contribution, modulo n.

    SHAKE-256 gives 16 bytes more than n has, which are reduced modulo n. The phone encrypts `centred(plaintext + pad,
    n)`. The key server decrypts, and computes `centred(plaintext - pads, n)`.

    Args:
        secret: The 32 bytes that this contribution shares with the key server.
        query_digest: The query's SHA-256 digest.
        cohort: The phone's cohort.
        plaintext: The place of the plaintext.
        n: The modulus of the public key.
    """
    _check(secret, query_digest)
    if whole("n", n) < 1:
        raise ValueError(f"n must be positive: got {n}")
    stream = hashlib.shake_256(PAD + secret + query_digest + _place(cohort, plaintext))
    size = -(-n.bit_length() // 8) + UNIFORM_BYTES
    return int.from_bytes(stream.digest(size), "big") % n


def centred(number: int, n: int) -> int:
    """The number between -n/2 and n/2 that is congruent to `number` modulo n, which is odd."""
    rest = number % n
    return rest - n if 2 * rest > n else rest


def _check(secret: bytes, query_digest: bytes) -> None:
    if any(not isinstance(each, bytes) for each in (secret, query_digest)):
        raise ValueError("the secret and the query's digest must be bytes")
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret must have {SECRET_BYTES} bytes: got {len(secret)}")
    if len(query_digest) != DIGEST_BYTES:
        raise ValueError(f"the query's digest must have {DIGEST_BYTES} bytes: got {len(query_digest)}")


def _place(cohort: int, plaintext: int) -> bytes:
    return _encoded("cohort", cohort) + _encoded("plaintext", plaintext)


def _encoded(name: str, number: int) -> bytes:
    try:
        return whole(f"the {name}", number).to_bytes(NUMBER_BYTES, "big")
    except OverflowError:
        raise ValueError(f"the {name} must lie in [0, 2^{8 * NUMBER_BYTES}): got {number}") from None
