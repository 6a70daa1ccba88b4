"""The persistent state of the key server, and its transactions.

A journal records the phones that were enrolled, the key pairs, the queries that were countersigned, the phones that
were dealt to them, and the decisions. Each method is atomic: it changes all that it describes, or nothing where it
raises. A change is durable when the method returns. Threads and processes may share a journal.

Times are milliseconds of Unix time. Of invitations, a journal has hashes only. Its sensitive content is which phones a
query could be sent to, which the aggregation server knows as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple

from reticent.privacy import Query
from reticent.protocol import Refusal, Refused
from reticent_keys.summaries import KeyServerSummary, PhoneSummary

__all__ = [
    "IN_USE",
    "CountersignedQuery",
    "Deal",
    "Ending",
    "EnrolledPhone",
    "Journal",
    "Key",
    "KeyState",
    "RecordedDecision",
]

Ending = Literal["left", "revoked"]
"""The end of a membership before it expired."""


class KeyState(Enum):
    """The permitted use of a key pair."""

    PENDING = "it was made ahead, and becomes active when a new key is due"
    ACTIVE = "queries are countersigned and decided under it"
    DRAINING = "the queries that were countersigned under it are decided"
    DESTROYED = "all queries that were countersigned under it are decided or overdue, and the secret key is erased"
    RETIRED = "this journal was restored from a backup, which may lack later decisions under it: it decides nothing"


IN_USE = (KeyState.ACTIVE, KeyState.DRAINING)
"""The states in which a secret key is kept."""


class EnrolledPhone(NamedTuple):
    """An enrolled phone."""

    id: bytes
    verify_key: bytes
    enrolled: int
    expires: int
    renewed_from: int | None = None
    """The former expiry of the membership, as the phone stated in its last renewal."""
    ended: Ending | None = None


class Key(NamedTuple):
    """The public part of a key pair."""

    id: str
    bits: int
    public: bytes
    state: KeyState = KeyState.ACTIVE

    def refuse_retired(self) -> None:
        """Refuse what needs a complete record of the decisions under this key.

        Raises:
            Refused: KEY_RETIRED.
        """
        if self.state is KeyState.RETIRED:
            raise Refused(Refusal.KEY_RETIRED, self.state.value)


class CountersignedQuery(NamedTuple):
    """A query that the key server countersigned."""

    number: int
    """The journal's own name for it."""
    digest: bytes
    content: bytes
    agreement_key: bytes
    deadline: int
    """In milliseconds: from then on no sum is decrypted, and the query's own key is erased."""
    key: Key


class Deal(NamedTuple):
    """The phones of a query, and the public key for their contributions."""

    agreement_key: bytes
    cohorts: Iterable[tuple[int, int]]
    """The number of a phone, and its cohort."""


class RecordedDecision(NamedTuple):
    """A decision as it was signed."""

    request: bytes
    """The digest of the request that was decided."""
    content: bytes


class Journal(ABC):
    """The records of one key server."""

    # The server

    @abstractmethod
    def take_ownership(self, identity: bytes) -> None:
        """Make a new journal that of the server with this public key; otherwise check that it is.

        Raises:
            JournalError: It belongs to another server.
        """

    @abstractmethod
    def check_complete(self) -> None:
        """Check that no key and no record is missing that this server has made and replied to.

        Raises:
            JournalError: The journal was restored from a backup. `countersign`, `note_decryption` and `decide` then
                raise Refused: UNAVAILABLE. Nothing is refused any more after `retire_keys`.
        """

    @abstractmethod
    def owner(self) -> bytes | None:
        """The public key of the server; None before `take_ownership`."""

    @abstractmethod
    def claim(self) -> AbstractContextManager[object]:
        """Be the only process that serves from this journal. Other processes may still read and change it.

        Raises:
            InUse: Another process serves from it.
        """

    @abstractmethod
    def backup(self, path: Path, now: int) -> None:
        """Copy the journal to a new file, in which no key is in use: it lacks whatever is decided later.

        Raises:
            FileExistsError: The name is taken.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the file."""

    @abstractmethod
    def summary(self, now: int) -> KeyServerSummary:
        """The content in numbers, all of one moment."""

    # Phones

    @abstractmethod
    def add_invitations(self, hashes: Sequence[bytes], expires: int) -> None:
        """Record new invitations by their hashes."""

    @abstractmethod
    def enrol(self, invitation: bytes, phone: EnrolledPhone) -> EnrolledPhone:
        """Enrol a phone and use up its invitation, by the invitation's hash.

        Returns:
            The phone; as it is now, if it was enrolled before by the same invitation with the same key.

        Raises:
            Refused: INVITATION: it is unknown, expired when the phone enrols, or used by a phone with another key.
        """

    @abstractmethod
    def phone(self, phone_id: bytes) -> EnrolledPhone:
        """The phone with this id.

        Raises:
            Refused: UNKNOWN_PHONE.
        """

    @abstractmethod
    def change_phone(self, phone_id: bytes, change: Callable[[EnrolledPhone], EnrolledPhone]) -> EnrolledPhone:
        """Read a phone, and record its membership as `change` returns it; no other change happens in between.

        Raises:
            Refused: UNKNOWN_PHONE; or what `change` raises.
        """

    @abstractmethod
    def phone_ids(self, first: bytes, last: bytes) -> list[bytes]:
        """Up to two ids from the first to the last."""

    @abstractmethod
    def phones(self, now: int) -> Iterator[PhoneSummary]:
        """All phones that were ever enrolled, the earliest first."""

    @abstractmethod
    def member_count(self, now: int) -> int:
        """The number of phones that can be dealt to queries."""

    # Key pairs

    @abstractmethod
    def keys(self, *states: KeyState) -> list[Key]:
        """The keys that are in one of these states; at most one is active."""

    @abstractmethod
    def key(self, key_id: str) -> Key | None:
        """The key with this id, if there ever was one."""

    @abstractmethod
    def active_since(self) -> int | None:
        """The time at which the active key became active; None if none is active."""

    @abstractmethod
    def add_pending(self, key: Key, now: int) -> None:
        """Record a key that is made ahead."""

    @abstractmethod
    def activate(self, key: Key, now: int, replaces: str | None = None) -> None:
        """Make a new or pending key the active one. The former one drains, or is destroyed if no query needs it.

        Other pending keys are destroyed. A key that was active or destroyed before changes nothing.

        Args:
            key: The key.
            now: In milliseconds.
            replaces: The id of the former key; nothing changes if another one is active. None for any.
        """

    @abstractmethod
    def destroy_unused(self, now: int) -> None:
        """Mark the draining keys as destroyed of which all queries are decided or overdue."""

    @abstractmethod
    def retire_keys(self) -> None:
        """Retire all keys that are in use: this journal may lack decisions under them."""

    # Queries

    @abstractmethod
    def query(self, digest: bytes) -> CountersignedQuery | None:
        """The query with this digest, if it was countersigned."""

    @abstractmethod
    def countersigned(self, query: Query) -> CountersignedQuery | None:
        """The record of this query, if it was countersigned.

        Raises:
            Refused: CONFLICT: another query has its id. KEY_RETIRED.
        """

    @abstractmethod
    def countersign(
        self, query: Query, deal: Callable[[Sequence[int]], Deal], now: int, deadline: int
    ) -> CountersignedQuery:
        """Record a query together with its phones, once; or return what was recorded of it.

        Args:
            query: Names the active key.
            deal: Chooses among the numbers of all members. It is called only for a query that is not recorded, and no
                other change happens meanwhile.
            now: Decides who is a member.
            deadline: Of its decryption.

        Raises:
            Refused: CONFLICT: another query has its id. KEY_RETIRED: its key is not the active one. What `deal` raises.
        """

    @abstractmethod
    def dealt_phones(self, query: int, page: int) -> Iterator[list[tuple[bytes, bytes, int]]]:
        """The id, the verify key and the cohort of each phone of a query, always in the same order, page by page.

        Raises:
            Refused: ALREADY_DECIDED: the query is decided or overdue, and its phones are deleted.
        """

    @abstractmethod
    def verify_keys(self, query: int, cohort: int, phones: Sequence[bytes]) -> list[bytes | None]:
        """The verify key of each phone, by its id; None if the phone was not dealt to this cohort.

        Raises:
            Refused: KEY_RETIRED: the phones of the query are deleted.
        """

    @abstractmethod
    def undecided_queries(self, now: int) -> list[bytes]:
        """The digests of the queries with an undecided cohort, under keys in use, before their deadline."""

    @abstractmethod
    def erase_all_but_undecided(self, erase: Callable[[list[bytes]], None], now: int) -> None:
        """Call `erase` with the digests of `undecided_queries`, while no query is countersigned.

        Otherwise it would erase the key of a query that another process is countersigning.

        Raises:
            JournalError: As `check_complete` does.
        """

    # Decisions

    @abstractmethod
    def decision(self, query: int, cohort: int) -> RecordedDecision | None:
        """The decision on a cohort, if there is one."""

    @abstractmethod
    def note_decryption(self, query: int, cohort: int, request: bytes) -> None:
        """Record which request is about to be decrypted: from now on, no other one can be decided.

        Otherwise a crash after the decryption would allow another request for the cohort: phones could take their
        budget back although their sum was seen.

        Args:
            query: The journal's number for it.
            cohort: The cohort.
            request: The digest of the request.

        Raises:
            Refused: ALREADY_DECIDED: another request was noted. KEY_RETIRED.
        """

    @abstractmethod
    def decide(self, query: int, cohort: int, decision: RecordedDecision, now: int) -> RecordedDecision:
        """Record a decision, once; a draining key is destroyed with the last decision under it.

        Returns:
            The decision on the cohort: this one, or an earlier one, whatever its request.

        Raises:
            Refused: ALREADY_DECIDED: another request was noted for decryption. KEY_RETIRED. Neither if there is a
                decision.
        """

    @abstractmethod
    def prune(self, before: int, rows: int) -> int:
        """Delete some of what is needed no more: the phones and noted decryptions of a query.

        Its last cohort was decided before then; or its deadline was before then; or it was countersigned before then,
        under a key that is retired since. From then on, nothing of it is decided any more. If there is no such query,
        invitations that expired before then and were not used. Decisions stay for ever.

        Args:
            before: In milliseconds.
            rows: The most rows to delete, so that others wait only briefly.

        Returns:
            The number of deleted rows; 0 if there is nothing more to delete.
        """

    @abstractmethod
    def is_decided(self, query: int) -> bool:
        """Whether all cohorts of a query are decided."""
