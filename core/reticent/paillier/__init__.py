"""Paillier encryption for phones, with many counters in a plaintext and a table of powers.

The key server's part, which makes keys and decrypts, is in `reticent_keys`.
"""

from reticent.paillier._ciphertexts import BadCiphertexts
from reticent.paillier._packing import Packing, Slot, Sums
from reticent.paillier._publickey import KEY_BITS, SIMULATION_KEY_BITS, PublicKey
from reticent.paillier._tags import TAG_BITS, centred, pad, tag

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
