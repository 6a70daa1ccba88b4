"""Phones of the state machine: real participants, that can be killed, and whose noise can be told afterwards."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from reticent.privacy import Cost, Query
from reticent.randomness import seeded
from reticent.retry import Backoff
from reticent.storage.database import Database
from reticent.times import Now
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participant, Participation, PhoneStore, Situation

__all__ = ["LIMIT", "Device", "Killed", "Watched", "trap"]

LIMIT = Cost(4.0, 1e-5)
"""What a phone's user spends at most: some queries, and not all that the machine asks."""


SILENT = 3
"""The number of a phone whose app never has anything to say."""


class Killed(BaseException):
    """A party died here."""


class Death(Protocol):
    """When a party dies: see `Kill` of the world."""

    @property
    def transaction(self) -> int: ...

    @property
    def after(self) -> bool: ...


@contextlib.contextmanager
def trap(databases: Sequence[Database], death: Death | None) -> Iterator[None]:
    """Have whoever writes to these files die at one of its transactions.

    Raises:
        Killed: There it was; or at the end of the block, where it was not there.
    """
    if death is None:
        yield
        return
    left = death.transaction

    def trapped(database: Database) -> Callable[..., Any]:
        run = database._execute

        def execute(statement: str, values: Sequence[Any] = ()) -> Any:
            nonlocal left
            comes_true = statement == "COMMIT" or (
                not database._connection.in_transaction and statement.startswith(("INSERT", "UPDATE", "DELETE"))
            )
            left -= comes_true
            if comes_true and left == 0:
                if death.after:
                    run(statement, values)
                raise Killed
            return run(statement, values)

        return execute

    for database in databases:
        vars(database)["_execute"] = trapped(database)
    try:
        yield
    finally:
        for database in databases:
            vars(database).pop("_execute", None)
    raise Killed


class Watched(Participant):
    """A participant of which it is known afterwards what noise it has drawn."""

    before: dict[bytes, np.random.Generator]
    """By the query: the generator as it was before the answer that was kept was made."""

    def contribute(
        self,
        announcement: wire.Announcement,
        content: bytes = b"",
        public_key: bytes = b"",
        situation: Situation | None = None,
    ) -> wire.Contribution:
        record = self.records.of(announcement.query)
        if record is None:
            assert isinstance(self._rng, np.random.Generator)
            self.before[announcement.query] = copy.deepcopy(self._rng)
        return super().contribute(announcement, content, public_key, situation)


class Device:
    """A phone with its store.

    Args:
        folder: Where the files are.
        number: Tells phones apart.
        now: What time it is for this phone.
        evidence: Records what it learns.
        kind: Which participant it runs.
    """

    def __init__(self, folder: Path, number: int, now: Now, evidence: Secrets, kind: type[Watched]) -> None:
        folder.mkdir()
        self.number = number
        self.silent = number == SILENT
        self._folder = folder
        self._now = now
        self._evidence = evidence
        self._kind = kind
        self._rng = seeded(number, "the noise of a phone")
        self.before: dict[bytes, np.random.Generator] = {}
        self.open()

    def open(self) -> None:
        """Begin, or go on after a kill."""
        self._store = PhoneStore(self._folder / "phone.db")
        self.participant = self._kind(
            self._store,
            LIMIT,
            rng=self._rng,
            now=self._now,
            policy=Participation(min_honest=2, min_liars_share=0.0),
            counters=self.counted,
            backoff=Backoff(limit=30.0, random=seeded(self.number, "the waits of a phone").random),
            simulation=True,
        )
        self.participant.before = self.before

    def restart(self) -> None:
        """Die, and begin again with what is on disk."""
        self.close()
        self.open()

    def close(self) -> None:
        self._store.close()

    @property
    def databases(self) -> tuple[Database]:
        return (self._store.database,)

    @property
    def phone(self) -> bytes:
        """Its id, empty as long as it never was a member."""
        member = self.participant.enrolment.member
        return b"" if member is None else member.phone

    def learn(self) -> None:
        """Remember the key that it signs with, which another membership would replace."""
        member = self.participant.enrolment.member
        if member is not None and member.phone:
            self._evidence.knows(self.number, member.phone, member.signing)

    def counted(self, query: Query) -> Mapping[str, float] | None:
        """What the app has counted: something else for each query and each phone."""
        if self.silent:
            return None
        digest = hashlib.sha256(query.digest + self.number.to_bytes(4, "big")).digest()
        return {
            counter.name: counter.low
            + int.from_bytes(digest[4 * place : 4 * place + 4], "big") / 2**32 * (counter.high - counter.low)
            for place, counter in enumerate(query.counters)
        }

    def noise(self, query: Query) -> list[int]:
        """What was added to the answer that was kept."""
        return [int(each) for each in query.share(copy.deepcopy(self.before[query.digest]))]


class Secrets(Protocol):
    """Whoever wants to know by which keys phones sign."""

    def knows(self, device: int, phone: bytes, signing: Any) -> None: ...
