"""Phones that an attacker holds, or whose backups they restore: real ones, each with its two files."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
from collections.abc import Sequence
from pathlib import Path

from reticent.privacy import Cost, Query
from reticent.protocol.invitation import Invitation
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participant, Participation, PhoneStore
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import enrol

__all__ = ["AttackedPhone", "joined"]

TRUSTING = Participation(min_honest=2, min_liars_share=0.0)
"""Small counts are enough for an attack."""


class AttackedPhone:
    """A phone whose files can be copied and put back.

    Args:
        folder: Where its files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.value = 0.0
        """What its app says to every counter."""
        folder.mkdir(parents=True)
        self._open()

    @property
    def id(self) -> bytes:
        member = self.participant.enrolment.member
        assert member is not None
        return member.phone

    def contribution(self, announcement: wire.Announcement, query: Query, key: bytes) -> wire.Contribution:
        """What it answers an announcement with."""
        return self.participant.contribute(announcement, query.to_bytes(), key)

    def backup(self) -> Path:
        """A copy of its files."""
        self.close()
        copy = self.folder.with_suffix(".backup")
        shutil.copytree(self.folder, copy)
        self._open()
        return copy

    def restore(self, copy: Path) -> None:
        """Put the files of a copy in the place of what is there."""
        self.close()
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)
        self._open()

    def close(self) -> None:
        self._store.close()

    def _open(self) -> None:
        self._store = PhoneStore(self.folder / "phone.db")
        self.participant = Participant(
            self._store,
            Cost(100.0, 1e-2),
            rng=secure(),
            now=lambda: dt.datetime.now(dt.UTC),
            policy=TRUSTING,
            counters=lambda query: {counter.name: self.value for counter in query.counters},
            simulation=True,
        )


def joined(invitations: Sequence[Invitation], folder: Path) -> list[AttackedPhone]:
    """Phones that have joined by these invitations, with their files in a folder."""
    phones = [AttackedPhone(folder / f"phone-{number}") for number in range(len(invitations))]

    async def join() -> None:
        for phone, invitation in zip(phones, invitations, strict=True):
            phone.participant.enrolment.join(invitation)
            async with Servers(invitation) as servers:
                await enrol(phone.participant, servers)

    asyncio.run(join())
    return phones
