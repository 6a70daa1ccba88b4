"""The key server: holds the secret key, and decrypts sums."""

from reticent_keys.errors import KeyFileError, KeysError, WrongPassphrase
from reticent_keys.keypair import KeyPair

__all__ = ["KeyFileError", "KeyPair", "KeysError", "WrongPassphrase"]
