"""The key server: enrols phones, countersigns queries, holds the secret key, and decrypts sums."""

from reticent_keys.errors import JournalError, KeyFileError, KeysError, WrongPassphrase
from reticent_keys.identity import Identity
from reticent_keys.journal import Journal
from reticent_keys.keypair import KeyPair
from reticent_keys.keypair_store import KeyPairStore
from reticent_keys.query_key_store import QueryKeyStore
from reticent_keys.server import KeyServer
from reticent_keys.sql_journal import SqlJournal

__all__ = [
    "Identity",
    "Journal",
    "JournalError",
    "KeyFileError",
    "KeyPair",
    "KeyPairStore",
    "KeyServer",
    "KeysError",
    "QueryKeyStore",
    "SqlJournal",
    "WrongPassphrase",
]
