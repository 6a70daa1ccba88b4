"""The folder of a key server: its identity, its journal, its key pairs; and copies of it.

folder/identity      by what phones know the server, sealed
folder/identity.pub  the public part of it, for whoever checks signatures
folder/journal.db    what it must never forget
folder/pairs/ID.key  the key pairs that are in use, sealed
folder/queries/DIGEST.key  the keys of single queries that are not decided, encrypted
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from reticent.paillier import KEY_BITS
from reticent.privacy.limits import QueryLimits
from reticent.storage.database import Database
from reticent.storage.files import OWNER_ONLY_FOLDER, create, sync_folder
from reticent.times import Now, milliseconds
from reticent_keys.errors import JournalError, KeysError, NoServer
from reticent_keys.identity import Identity
from reticent_keys.journal import is_owned, open_journal
from reticent_keys.keypair import KeyPair
from reticent_keys.keyring import Keyring, Vault, retire_all
from reticent_keys.membership import MEMBERSHIP
from reticent_keys.query_keys import QueryKeys
from reticent_keys.server import KeyServer

__all__ = ["Folder"]

PUBLIC_IDENTITY = "identity.pub"


class Folder:
    """Where a key server keeps everything.

    Args:
        path: The folder.
        bits: How long the keys are that are made.
        simulation: Accept lengths that are only good for simulation as well.
    """

    def __init__(self, path: Path, *, bits: int = KEY_BITS[0], simulation: bool = False) -> None:
        self.path = path
        self._bits = bits
        self._simulation = simulation

    @property
    def is_there(self) -> bool:
        """Whether a key server was begun here."""
        return self._identity.exists()

    @contextlib.contextmanager
    def served(
        self,
        passphrase: str,
        *,
        now: Now,
        limits: QueryLimits | None = None,
        lifetime: dt.timedelta = MEMBERSHIP,
    ) -> Iterator[KeyServer]:
        """The server of this folder; a new one, with keys of its own, where there is none.

        Raises:
            InUse: Another process serves from the folder.
            WrongPassphrase: The folder's secrets were sealed with another one.
            JournalError: The journal is another server's, or cannot be read, or is gone.
        """
        if not self.is_there:
            self._begin(passphrase)
        identity = Identity.load(self._identity, passphrase)
        with contextlib.suppress(FileExistsError):
            create(self.path / PUBLIC_IDENTITY, f"{identity.public.hex()}\n".encode())
        with contextlib.closing(open_journal(self._journal)) as journal, journal.claim():
            if not is_owned(journal) and any(self._pairs.glob("*")):
                raise JournalError(
                    f"{self.path} has key pairs and no journal of what was decided under them: serve from a copy that "
                    "`reticent keys backup` made, or begin anew in another folder"
                )
            yield KeyServer(
                journal,
                identity,
                self._vault(passphrase),
                QueryKeys(self._queries, identity.storage_key()),
                now=now,
                limits=limits,
                lifetime=lifetime,
                generate=self._generate,
            )

    def journal(self) -> Database:
        """The journal, for whoever needs no secret key.

        Raises:
            NoServer: There is no key server here.
        """
        if self._journal.exists():
            with contextlib.ExitStack() as stack:
                journal = stack.enter_context(contextlib.closing(open_journal(self._journal)))
                if is_owned(journal):  # it may have been killed before
                    stack.pop_all()
                    return journal
        raise NoServer(f"there is no key server in {self.path}: `reticent keys serve` begins one")

    def rotate(self, passphrase: str, now: Now, *, retire: bool = False) -> str:
        """Make a new key the active one, while the server runs or not; the new key's id.

        Args:
            passphrase: That of the folder: the new key is sealed with it.
            now: Says what time it is.
            retire: Have nothing be decided under any former key.
        """
        with contextlib.closing(self.journal()) as journal:
            identity = Identity.load(self._identity, passphrase)  # the server must open what is sealed here
            if retire:
                retire_all(journal)
                QueryKeys(self._queries, identity.storage_key()).erase_all_but(
                    ()
                )  # before anything is countersigned again
            return Keyring(journal, self._vault(passphrase), self._generate, now).rotate()

    def backup(self, target: Path, now: dt.datetime) -> None:
        """Copy what a server needs to go on to a new folder, while it runs or not.

        The copy is a folder to serve from. As it cannot know what was decided after it was made, no former key is good
        for anything there, and none is copied; what was decided before is told again.

        Raises:
            FileExistsError: There is something of that name.
        """
        with contextlib.closing(self.journal()) as journal:
            draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
            try:
                if not target.parent.is_dir():
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
                if os.path.lexists(target):
                    raise FileExistsError(errno.EEXIST, "it is there already: name a new folder", str(target))
                draft.mkdir(mode=OWNER_ONLY_FOLDER)
                shutil.copy2(self._identity, draft / self._identity.name)
                self._copy_journal(journal, draft / self._journal.name, now)
                sync_folder(draft)
                draft.rename(target)
                sync_folder(target.parent)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    @staticmethod
    def _copy_journal(journal: Database, path: Path, now: dt.datetime) -> None:
        journal.backup(path)
        with contextlib.closing(open_journal(path)) as copy:
            retire_all(copy)
            with copy.transaction() as run:
                run("UPDATE server SET copied = ?", (milliseconds(now),))

    def _begin(self, passphrase: str) -> None:
        if self._journal.exists():
            raise KeysError(f"{self.path} has a journal and no identity: put back the file {self._identity}")
        self._pairs.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        self.path.chmod(OWNER_ONLY_FOLDER)
        Identity().save(self._identity, passphrase)

    def _vault(self, passphrase: str) -> Vault:
        self._pairs.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)  # a copy has none
        return Vault(self._pairs, passphrase, simulation=self._simulation)

    @property
    def _generate(self) -> partial[KeyPair]:
        return partial(KeyPair.generate, self._bits, simulation=self._simulation)

    @property
    def _identity(self) -> Path:
        return self.path / "identity"

    @property
    def _journal(self) -> Path:
        return self.path / "journal.db"

    @property
    def _pairs(self) -> Path:
        return self.path / "pairs"

    @property
    def _queries(self) -> Path:
        return self.path / "queries"

    def __repr__(self) -> str:
        return f"Folder({self.path})"
