"""The key server: enrols phones, countersigns queries, holds the secret key, and decrypts sums."""

from reticent_keys.errors import JournalError, KeyFileError, KeysError, WrongPassphrase
from reticent_keys.identity import Identity
from reticent_keys.journal import open_journal
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Vault
from reticent_keys.query_keys import QueryKeys
from reticent_keys.server import KeyServer

__all__ = [
    "Identity",
    "JournalError",
    "KeyFileError",
    "KeyPair",
    "KeyServer",
    "KeysError",
    "QueryKeys",
    "Vault",
    "WrongPassphrase",
    "open_journal",
]
