"""Time and bytes to encrypt on a phone and to add on a server, against phe (python-paillier) over the same gmpy2."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

from phe import EncryptedNumber, PaillierPublicKey

from benchmarks.measure import Row, best_of, in_fresh_process, memory, seconds, table
from reticent.paillier import Packing, PublicKey
from reticent.randomness import secure
from reticent_keys import KeyPair

BATCH = 256  # ciphertexts that a server checks and adds at once
RUNS = 5
MANY = 20  # encryptions in a run
COUNTERS = 1000  # of 0 or 1
PHONES = 100_000
SHARE_VARIANCE = 0.01  # of a sum's noise, a deviation of 32 when all of them answer


def run() -> Iterator[str]:
    """The time and size of an encryption, a counter and an addition."""
    pair = KeyPair.generate()
    public, rival, rng = pair.public, PaillierPublicKey(pair.public.n), secure()
    yield _encrypting(public, rival)
    memory = in_fresh_process("benchmarks.encryption:memory_of_a_table")["table"]
    fresh = [PublicKey(public.n, pow(public.base, 2 * k + 3, public.n)) for k in range(RUNS)]
    rows = [
        Row("built in", seconds(min(_computing(key.prepare) for key in fresh)), target="at most 300 ms"),
        Row("memory", f"{memory:.1f} MB", target="at most 16 MB"),
    ]
    yield table(f"The table of powers of a {public.bits}-bit key", rows)
    ciphertexts = public.encrypt(range(BATCH), rng)
    wire = [number.to_bytes(public.ciphertext_bytes, "big") for number in ciphertexts]
    phe_numbers = [EncryptedNumber(rival, number) for number in ciphertexts]
    assert pair.decrypt([public.add(ciphertexts)]) == [sum(range(BATCH))]
    ours = best_of(RUNS, lambda: public.add([int.from_bytes(number, "big") for number in wire])) / BATCH
    bare = best_of(RUNS, lambda: sum(phe_numbers[1:], phe_numbers[0])) / BATCH
    row = Row(f"one of {BATCH}", seconds(ours), seconds(bare), bare / ours, "under 20 µs")
    yield table("Adding a ciphertext: from its bytes, with all checks (phe checks nothing)", [row])


def _encrypting(public: PublicKey, rival: PaillierPublicKey) -> str:
    rng = secure()
    packing = Packing(
        [(0, 1)] * COUNTERS,
        contributors=PHONES,
        share_variance=SHARE_VARIANCE,
        cohorts=1,
        key_bits=public.bits,
    )
    values = [secrets.randbelow(2) for _ in range(COUNTERS)]
    tags = [secrets.randbits(128) for _ in range(packing.plaintexts)]
    public.prepare()
    phe_time = best_of(RUNS, lambda: rival.encrypt(1).ciphertext())
    one = best_of(RUNS, lambda: public.encrypt(range(MANY), rng)) / MANY
    counter = best_of(RUNS, lambda: public.encrypt(packing.pack(values, tags), rng)) / COUNTERS
    size, bytes_ours = public.ciphertext_bytes, packing.plaintexts * public.ciphertext_bytes / COUNTERS
    rows = [
        Row("one encryption", seconds(one), seconds(phe_time), phe_time / one, "at least 12 x"),
        Row(f"a counter, of {COUNTERS:,}", seconds(counter), seconds(phe_time), phe_time / counter, "at least 500 x"),
        Row("its bytes", f"{bytes_ours:.1f}", f"{size}", size / bytes_ours, "at least 30 x"),
    ]
    return table(f"Encrypting under {public.bits} bits (the rival is phe with gmpy2), {PHONES:,} phones", rows)


def _computing(call: Callable[[], None]) -> float:
    """The CPU seconds of a call: a table is made once, and the machine may be busy."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def memory_of_a_table() -> dict[str, float]:
    """Run in a fresh process: the memory of the table of powers, in MB."""
    public = KeyPair.generate().public
    public.encrypt([0], secure())  # loads everything but the table
    before = memory()
    public.prepare()
    return {"table": memory() - before}
