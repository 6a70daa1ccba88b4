"""The folder of a key server: its identity, its journal, its key pairs; and backups of it.

folder/identity      the signing key, encrypted under the passphrase
folder/identity.pub  the public part of it, for everybody who checks signatures
folder/journal.db    the journal
folder/pairs/ID.key  the key pairs in use, encrypted under the passphrase
folder/queries/DIGEST.key  the keys of undecided queries, encrypted
folder/records.json  the numbers of records under each key, by which a restored journal is noticed
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from reticent.paillier import KEY_BITS
from reticent.privacy import QueryLimits
from reticent.rpc.metrics import timed
from reticent.storage.databases import migrate, place_of
from reticent.storage.files import OWNER_ONLY_FOLDER, create, drafted_folder, make_folder
from reticent.storage.sql import Claim, InUse
from reticent.times import Now, milliseconds
from reticent_keys.errors import JournalError, KeysError, NoServer
from reticent_keys.identity import Identity
from reticent_keys.journal import Journal
from reticent_keys.keypair import KeyPair
from reticent_keys.keypair_store import KeyPairStore
from reticent_keys.keyring import Keyring
from reticent_keys.membership import MEMBERSHIP
from reticent_keys.metrics import STORE_SECONDS
from reticent_keys.query_key_store import QueryKeyStore
from reticent_keys.receipt_workers import ReceiptWorkers
from reticent_keys.record_counts import RecordCounts
from reticent_keys.server import DECISION_TIME, KeyServer
from reticent_keys.sql_journal import SqlJournal
from reticent_keys.sql_schema import JOURNAL

__all__ = ["Folder"]

_log = logging.getLogger(__name__)

STANDBY_PAUSE = 1.0
"""Seconds between two attempts of a standby to take over."""

PUBLIC_IDENTITY = "identity.pub"
JOURNAL_FILE = "journal.db"


class Folder:
    """The folder in which a key server keeps everything.

    Args:
        path: The folder.
        bits: The length of new key pairs.
        simulation: Accept lengths that are only good for simulation as well.
        database: The address of a PostgreSQL database that holds the journal instead.
    """

    def __init__(
        self, path: Path, *, bits: int = KEY_BITS[0], simulation: bool = False, database: str | None = None
    ) -> None:
        self.path = path
        self._place = place_of(path / JOURNAL_FILE, database)
        self._database = database
        self._bits = bits
        self._simulation = simulation

    @property
    def exists(self) -> bool:
        """Whether the folder holds a key server."""
        return self._identity.exists()

    @contextlib.contextmanager
    def served(
        self,
        passphrase: str,
        *,
        now: Now,
        limits: QueryLimits | None = None,
        lifetime: dt.timedelta = MEMBERSHIP,
        decision_time: dt.timedelta = DECISION_TIME,
        seed: int | None = None,
        standby: bool = False,
    ) -> Iterator[KeyServer]:
        """The server of this folder; a new one, with new keys, if the folder holds none.

        Raises:
            InUse: Another process serves from the folder, and this is no standby, which waits for its end.
            WrongPassphrase: The folder's secrets were sealed with another passphrase.
            JournalError: The journal belongs to another server, was restored, cannot be read, or is missing.
        """
        if not self.exists:
            self._create(passphrase)
        identity = Identity.load(self._identity, passphrase)
        with contextlib.suppress(FileExistsError):
            create(self.path / PUBLIC_IDENTITY, f"{identity.public.hex()}\n".encode())
        with (
            contextlib.closing(SqlJournal(self._place, self._counts)) as journal,
            _claimed(journal, standby=standby) as claim,
            ReceiptWorkers() as workers,
        ):
            if journal.owner() is None and any(self._pairs.glob("*")):
                raise JournalError(
                    f"{self.path} has key pairs, but no journal of the decisions under them: serve from a copy that "
                    "`reticent keys backup` made, or start a new server in another folder"
                )
            yield KeyServer(
                timed(journal, STORE_SECONDS),
                identity,
                self._pair_store(passphrase),
                QueryKeyStore(self._queries, identity.storage_key()),
                now=now,
                limits=limits,
                lifetime=lifetime,
                decision_time=decision_time,
                generate=self._generate,
                seed=seed,
                workers=workers,
                check_claim=claim.check,
            )

    def journal(self) -> Journal:
        """The journal, for work that needs no secret key.

        Raises:
            NoServer: The folder holds no key server.
        """
        if self._database is not None or self._journal.exists():
            journal = SqlJournal(self._place, self._counts)
            if journal.owner() is not None:  # the first start may have been interrupted
                return journal
            journal.close()
        raise NoServer(f"there is no key server in {self.path}: `reticent keys serve` starts one")

    def migrate(self) -> None:
        """Upgrade the journal to the version of this program.

        Raises:
            InUse: A server runs.
            NoServer: The folder holds no key server.
        """
        if self._database is None and not self._journal.exists():
            raise NoServer(f"there is no key server in {self.path}: `reticent keys serve` starts one")
        migrate(self._place, JOURNAL)

    def rotate(self, passphrase: str, now: Now, *, retire: bool = False) -> str:
        """Make a new key the active one, while the server runs or not. Returns its id.

        Args:
            passphrase: The passphrase of the folder, which encrypts the new key too.
            now: The clock.
            retire: Retire all former keys: nothing is decided under them any more.
        """
        with contextlib.closing(self.journal()) as journal:
            identity = Identity.load(self._identity, passphrase)  # or the server could not open the new pair
            pairs = self._pair_store(passphrase)
            if retire:
                journal.retire_keys()  # no query is countersigned until there is a new key
                QueryKeyStore(self._queries, identity.storage_key()).erase_all_but(())
                pairs.erase_all()  # a restored journal does not know the later ones
            return Keyring(journal, pairs, self._generate, now).rotate()

    def backup(self, target: Path, now: dt.datetime) -> None:
        """Copy what a server needs to continue to a new folder, while it runs or not.

        A server can serve from the copy. The copy lacks later decisions, so it has no key pairs, and decides no query
        that was countersigned earlier; it repeats earlier decisions.

        Raises:
            FileExistsError: The name is taken.
        """
        with contextlib.closing(self.journal()) as journal, drafted_folder(target) as draft:
            create(draft / self._identity.name, self._identity.read_bytes())
            journal.backup(draft / self._journal.name, milliseconds(now))

    def _create(self, passphrase: str) -> None:
        if self._database is None and self._journal.exists():
            raise KeysError(f"{self.path} has a journal, but no identity: restore the file {self._identity}")
        make_folder(self.path)
        self.path.chmod(OWNER_ONLY_FOLDER)
        Identity().save(self._identity, passphrase)

    def _pair_store(self, passphrase: str) -> KeyPairStore:
        make_folder(self._pairs)  # a backup has none
        return KeyPairStore(self._pairs, passphrase, simulation=self._simulation)

    @property
    def _generate(self) -> partial[KeyPair]:
        return partial(KeyPair.generate, self._bits, simulation=self._simulation)

    @property
    def _counts(self) -> RecordCounts:
        return RecordCounts(self.path / "records.json")

    @property
    def _identity(self) -> Path:
        return self.path / "identity"

    @property
    def _journal(self) -> Path:
        return self.path / JOURNAL_FILE

    @property
    def _pairs(self) -> Path:
        return self.path / "pairs"

    @property
    def _queries(self) -> Path:
        return self.path / "queries"

    def __repr__(self) -> str:
        return f"Folder({self.path})"


@contextlib.contextmanager
def _claimed(journal: SqlJournal, *, standby: bool) -> Iterator[Claim]:
    """Be the one process that serves; a standby waits until no other does."""
    is_logged = False
    while True:
        with contextlib.ExitStack() as stack:
            try:
                claim = stack.enter_context(journal.claim())
            except (InUse, OSError) as error:
                if not standby:
                    raise
                if not is_logged:
                    _log.info("standby: another process serves", extra={"reason": str(error)})
                is_logged = True
                time.sleep(STANDBY_PAUSE)
                continue
            yield claim
            return
