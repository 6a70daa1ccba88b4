"""Encryption for phones: Paillier's, with many counters in a plaintext and powers from a table.

The key server's half, which makes keys and decrypts, is `reticent_keys`.
"""

from reticent.paillier.ciphertexts import BadCiphertexts
from reticent.paillier.packing import Packing, Slot, Sums
from reticent.paillier.publickey import KEY_BITS, SIMULATION_KEY_BITS, PublicKey
from reticent.paillier.tags import TAG_BITS, centred, pad, tag

__all__ = [
    "KEY_BITS",
    "SIMULATION_KEY_BITS",
    "TAG_BITS",
    "BadCiphertexts",
    "Packing",
    "PublicKey",
    "Slot",
    "Sums",
    "centred",
    "pad",
    "tag",
]
