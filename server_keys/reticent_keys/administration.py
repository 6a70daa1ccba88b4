"""What an operator does to a journal, while the server runs or not: none of it needs a secret key."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from reticent.protocol import Refusal, Refused
from reticent.protocol.invitation import TOKEN_BYTES
from reticent.protocol.keys import PHONE_BYTES
from reticent.storage.database import Database
from reticent.times import instant, milliseconds
from reticent_keys.journal import MEMBER, UNDECIDED
from reticent_keys.membership import REVOKED, end, invitation_hash

__all__ = ["Enrolled", "KeyReport", "Report", "enrolled", "invite", "phone_of", "report", "revoke"]

PAGE = 1000
SHORTEST = 16  # digits of a phone's id that are enough to name it, where no other begins with them


@dataclass(frozen=True)
class Enrolled:
    """A phone, as a list for people shows it.

    Args:
        phone: Its id, in hexadecimal.
        state: member, expired, left or revoked.
        enrolled: When it joined.
        expires: When its membership is or was over.
    """

    phone: str
    state: str
    enrolled: dt.datetime
    expires: dt.datetime


@dataclass(frozen=True)
class KeyReport:
    """A key pair.

    Args:
        id: Its id.
        state: What it is good for, by the name of its `KeyState`.
        bits: Its length.
        made: When it was made.
        queries: How many queries were countersigned under it.
        undecided: How many of their cohorts are not decided.
    """

    id: str
    state: str
    bits: int
    made: dt.datetime
    queries: int
    undecided: int


@dataclass(frozen=True)
class Report:
    """How a key server stands.

    Args:
        identity: Its public key, in hexadecimal.
        members: How many phones can be asked.
        phones: How many were ever enrolled.
        invitations: How many are open.
        queries: How many were countersigned.
        decided: How many cohorts were decided.
        keys: Its key pairs, the latest first.
        copied: When the backup was made that this journal is, if it is one.
    """

    identity: str
    members: int
    phones: int
    invitations: int
    queries: int
    decided: int
    keys: tuple[KeyReport, ...]
    copied: dt.datetime | None


def invite(journal: Database, count: int, *, expires: dt.datetime) -> list[bytes]:
    """Make invitations, each good once and until then; their tokens."""
    if count < 1:
        raise ValueError(f"at least one phone can be invited: got {count}")
    tokens = [secrets.token_bytes(TOKEN_BYTES) for _ in range(count)]
    with journal.transaction() as run:
        for token in tokens:
            run(
                "INSERT INTO invitations (hash, expires) VALUES (?, ?)", (invitation_hash(token), milliseconds(expires))
            )
    return tokens


def phone_of(journal: Database, digits: str) -> bytes:
    """The phone whose id this is, or how it begins: as phones show it themselves.

    Raises:
        Refused: UNKNOWN_PHONE.
    """
    size = 2 * PHONE_BYTES
    try:
        first, last = (bytes.fromhex(digits.ljust(size, fill)) for fill in "0f")
    except ValueError:
        first = last = b""
    if not SHORTEST <= len(digits) <= size or len(first) != PHONE_BYTES:
        raise ValueError(f"a phone's id is {size} hexadecimal digits, or the first {SHORTEST} of them: got {digits!r}")
    with journal.reading() as run:
        found = run("SELECT id FROM phones WHERE id BETWEEN ? AND ? LIMIT 2", (first, last)).fetchall()
    if not found:
        raise Refused(Refusal.UNKNOWN_PHONE, f"no phone has the id {digits}")
    if len(found) > 1:
        raise ValueError(f"more than one phone's id begins with {digits}: say all of it")
    return bytes(found[0][0])


def revoke(journal: Database, phone: bytes) -> bool:
    """Have a phone be no member any more, whatever it says. Queries that were dealt before are not changed.

    Returns:
        Whether it was not revoked before.

    Raises:
        Refused: UNKNOWN_PHONE.
    """
    with journal.reading() as run:
        found = run("SELECT number, gone FROM phones WHERE id = ?", (phone,)).fetchone()
    if found is None:
        raise Refused(Refusal.UNKNOWN_PHONE, f"no phone has the id {phone.hex()}")
    end(journal, found[0], REVOKED)
    return bool(found[1] != REVOKED)


def enrolled(journal: Database, now: dt.datetime) -> Iterator[Enrolled]:
    """All phones that ever joined, in the order in which they did."""
    last = 0
    while True:
        with journal.reading() as run:
            rows = run(
                "SELECT number, id, enrolled, expires, gone FROM phones WHERE number > ? ORDER BY number LIMIT ?",
                (last, PAGE),
            ).fetchall()
        if not rows:
            return
        for last, phone, since, expires, gone in rows:  # noqa: B007  # the last one is where the next page begins
            state = gone or ("member" if expires > milliseconds(now) else "expired")
            yield Enrolled(phone.hex(), state, instant(since), instant(expires))


def report(journal: Database, now: dt.datetime) -> Report:
    """How the server stands whose journal this is."""
    present = milliseconds(now)
    with journal.reading() as run:
        identity, copied = run("SELECT identity, copied FROM server").fetchone()
        keys = run(
            "SELECT id, state, bits, made, (SELECT count(*) FROM queries WHERE key = keys.number),"  # noqa: S608  # constants
            f" {UNDECIDED} FROM keys ORDER BY number DESC"
        ).fetchall()
        counts = [
            run(statement, values).fetchone()[0]
            for statement, values in (
                (f"SELECT count(*) FROM phones WHERE {MEMBER}", (present,)),  # noqa: S608  # constants
                ("SELECT count(*) FROM phones", ()),
                ("SELECT count(*) FROM invitations WHERE phone IS NULL AND expires > ?", (present,)),
                ("SELECT count(*) FROM queries", ()),
                ("SELECT count(*) FROM decisions", ()),
            )
        ]
    made = tuple(KeyReport(key[0], key[1], key[2], instant(key[3]), key[4], key[5]) for key in keys)
    members, phones, invitations, queries, decided = counts
    since = None if copied is None else instant(copied)
    return Report(identity.hex(), members, phones, invitations, queries, decided, made, since)
