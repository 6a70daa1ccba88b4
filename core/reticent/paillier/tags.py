"""Tags and pads: how the key server knows what a sum is made of, without seeing any part of it.

Every plaintext of a contribution carries a tag. The tags of a sum add up to what the key server expects if exactly
the phones that it expects are in the sum, each once, with this plaintext of this query.

A tag alone does not bind the counters beside it: who adds ciphertexts can also multiply them, and there are factors
that turn a plaintext into one that fills the counters and leaves the tag as it was. So each plaintext also lies under
a pad, uniform modulo n, that the key server takes away again. Any sum but the right one stays under a pad, and says
nothing whatever.
"""

from __future__ import annotations

import hashlib
import hmac

from reticent.arguments import whole

__all__ = ["TAG_BITS", "centred", "pad", "tag"]

TAG_BITS = 128
SECRET_BYTES = 32
DIGEST_BYTES = 32
NUMBER_BYTES = 4
UNIFORM_BYTES = 16  # beyond the length of n, so that the remainder modulo n is uniform but for 2^-128
TAG = b"reticent.paillier.tag\x00"  # separates tags from any other use of the same secret
PAD = b"reticent.paillier.pad\x00"


def tag(secret: bytes, query_digest: bytes, cohort: int, plaintext: int) -> int:
    """Run by the phone, and by the key server. The tag of one plaintext of one phone's contribution.

    The first 128 bits of HMAC-SHA-256.

    Args:
        secret: The 32 bytes that this one contribution shares with the key server.
        query_digest: The 32 bytes that name the query.
        cohort: The phone's cohort.
        plaintext: Which of the contribution's plaintexts: without it, those of one phone could change places.
    """
    _check(secret, query_digest)
    digest = hmac.digest(secret, TAG + query_digest + _place(cohort, plaintext), hashlib.sha256)
    return int.from_bytes(digest[: TAG_BITS // 8], "big")


def pad(secret: bytes, query_digest: bytes, cohort: int, plaintext: int, n: int) -> int:
    """Run by the phone, and by the key server. What hides one plaintext of one phone's contribution, modulo n.

    16 bytes more than n has, from SHAKE-256, modulo n. The phone encrypts `centred(plaintext + pad, n)`; of what it
    decrypts, the key server takes `centred(plaintext - pads, n)`.

    Args:
        secret: The 32 bytes that this one contribution shares with the key server.
        query_digest: The 32 bytes that name the query.
        cohort: The phone's cohort.
        plaintext: Which of the contribution's plaintexts.
        n: The public key's.
    """
    _check(secret, query_digest)
    if whole("n", n) < 1:
        raise ValueError(f"n must be positive: got {n}")
    stream = hashlib.shake_256(PAD + secret + query_digest + _place(cohort, plaintext))
    size = -(-n.bit_length() // 8) + UNIFORM_BYTES
    return int.from_bytes(stream.digest(size), "big") % n


def centred(number: int, n: int) -> int:
    """The plaintext that a number stands for modulo n, which is odd: the one between -n/2 and n/2."""
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
