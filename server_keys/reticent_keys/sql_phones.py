"""The phones and the invitations of a key server's journal, in SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reticent.protocol import Refusal, Refused
from reticent.storage.sql import Execute
from reticent_keys.journal import EnrolledPhone

__all__ = ["change_phone", "enrol", "find_phone", "phone_of"]


def enrol(run: Execute, invitation: bytes, phone: EnrolledPhone) -> EnrolledPhone:
    """Enrol a phone and use up its invitation, within a transaction."""
    found = run("SELECT expires, phone FROM invitations WHERE hash = ? /* FOR UPDATE */", (invitation,)).fetchone()
    if found is None:
        raise Refused(Refusal.INVITATION, "there is no such invitation")
    expires, number = found
    if number is not None:
        enrolled = phone_of(run("SELECT * FROM phones WHERE number = ?", (number,)).fetchone())
        if enrolled.verify_key != phone.verify_key:
            raise Refused(Refusal.INVITATION, "another phone has used the invitation")
        return enrolled
    if expires <= phone.enrolled:
        raise Refused(Refusal.INVITATION, "the invitation has expired")
    (number,) = run(
        "INSERT INTO phones (id, verify_key, enrolled, expires) VALUES (?, ?, ?, ?) RETURNING number", phone[:4]
    ).fetchone()
    run("UPDATE invitations SET phone = ? WHERE hash = ?", (number, invitation))
    return phone


def find_phone(run: Execute, phone_id: bytes, lock: str = "") -> EnrolledPhone:
    """The phone with this id.

    Raises:
        Refused: UNKNOWN_PHONE.
    """
    row = run(f"SELECT * FROM phones WHERE id = ?{lock}", (phone_id,)).fetchone()  # noqa: S608  # a constant
    if row is None:
        raise Refused(Refusal.UNKNOWN_PHONE, f"no phone has the id {phone_id.hex()}")
    return phone_of(row)


def change_phone(run: Execute, phone_id: bytes, change: Callable[[EnrolledPhone], EnrolledPhone]) -> EnrolledPhone:
    """Read a phone, and record its membership as `change` returns it, within a transaction."""
    phone = change(find_phone(run, phone_id, " /* FOR UPDATE */"))
    run(
        "UPDATE phones SET expires = ?, renewed_from = ?, ended = ? WHERE id = ?",
        (phone.expires, phone.renewed_from, phone.ended, phone_id),
    )
    return phone


def phone_of(row: tuple[Any, ...]) -> EnrolledPhone:
    """The phone of a whole row."""
    return EnrolledPhone(*row[1:])
