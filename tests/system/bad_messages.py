"""Messages that are refused: for which reason, and by which method of which server."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from reticent.protocol import Refusal, SigningKey, statements
from reticent.v1 import counting_pb2 as wire
from tests.parties.phone import Phone
from tests.system.deployment import MAX_BYTES, Deployment


def resigned(target: Deployment, **changes: Any) -> wire.JoinRequest:
    """A request to join of an invitation that is open, changed and then signed."""
    phone = Phone(target.spare.token)
    request = phone.joining()
    for name, value in changes.items():
        setattr(request, name, value)
    statement = statements.joining(request.invitation, request.verify_key)
    request.signature = phone.signing.sign(statement)
    return request


def changed(message: Any, **changes: Any) -> Any:
    """A message, changed after it was signed."""
    made = type(message).FromString(message.SerializeToString())
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def twelve_hundred(target: Deployment) -> wire.DecisionsRequest:
    wanted = wire.DecisionWanted(query=target.open.digest)
    return wire.DecisionsRequest(wanted=[wanted] * 1200)


def asking(target: Deployment, **changes: Any) -> bytes:
    """The bytes of a query that is open, with changes."""
    return dataclasses.replace(target.open, **changes).to_bytes()


def head(target: Deployment, **changes: Any) -> wire.DecideRequest:
    """The head of a request about a cohort that collects, with a ciphertext that is one."""
    parts: dict[str, Any] = {
        "query": target.open.digest,
        "contributors": 4,
        "ciphertexts": (1).to_bytes(256, "big"),
    }
    return wire.DecideRequest(head=wire.DecideHead(**parts | changes))


def renewing_at(phone: Phone, expires: int) -> wire.RenewRequest:
    """What a phone signs that believes that its membership expires then."""
    signature = phone.signing.sign(statements.renewal(phone.id, expires))
    return wire.RenewRequest(phone=phone.id, expires=expires, signature=signature)


NOBODY = bytes(range(16))
OTHER = SigningKey()
SHORT = b"short"

Bad = tuple[str, Callable[[Deployment], Message | Sequence[Message]], Refusal]
R = Refusal
BAD: dict[str, Bad] = {
    # Joining, and what comes after.
    "join: nothing": ("Enrolment/Join", lambda _: wire.JoinRequest(), R.MALFORMED),
    "join: a short token": ("Enrolment/Join", lambda c: resigned(c, invitation=SHORT), R.MALFORMED),
    "join: a short key": ("Enrolment/Join", lambda c: resigned(c, verify_key=SHORT), R.MALFORMED),
    "join: a weak key": ("Enrolment/Join", lambda c: resigned(c, verify_key=bytes(32)), R.MALFORMED),
    "join: unsigned": ("Enrolment/Join", lambda c: changed(resigned(c), signature=bytes(64)), R.BAD_SIGNATURE),
    "join: with another's key": ("Enrolment/Join", lambda c: resigned(c, verify_key=OTHER.public), R.BAD_SIGNATURE),
    "join: uninvited": ("Enrolment/Join", lambda c: resigned(c, invitation=bytes(16)), R.INVITATION),
    "join: too late": ("Enrolment/Join", lambda c: Phone(c.late_invitation).joining(), R.INVITATION),
    "join: in another's place": ("Enrolment/Join", lambda c: Phone(c.phones[0].token).joining(), R.INVITATION),
    "join: revoked": ("Enrolment/Join", lambda c: c.revoked.joining(), R.REVOKED),
    "join: gone": ("Enrolment/Join", lambda c: c.left.joining(), R.REVOKED),
    "join: expired": ("Enrolment/Join", lambda c: c.expired.joining(), R.EXPIRED),
    "renew: nobody": ("Enrolment/Renew", lambda c: changed(c.phones[0].renewing(), phone=NOBODY), R.UNKNOWN_PHONE),
    "renew: a short id": ("Enrolment/Renew", lambda c: changed(c.phones[0].renewing(), phone=SHORT), R.MALFORMED),
    "renew: unsigned": (
        "Enrolment/Renew",
        lambda c: changed(c.phones[0].renewing(), signature=bytes(64)),
        R.BAD_SIGNATURE,
    ),
    "renew: another time": ("Enrolment/Renew", lambda c: renewing_at(c.phones[0], 1), R.CONFLICT),
    "renew: revoked": ("Enrolment/Renew", lambda c: c.revoked.renewing(), R.REVOKED),
    "renew: expired": ("Enrolment/Renew", lambda c: c.expired.renewing(), R.EXPIRED),
    "leave: nobody": ("Enrolment/Leave", lambda c: changed(c.phones[0].leaving(), phone=NOBODY), R.UNKNOWN_PHONE),
    "leave: by another": (
        "Enrolment/Leave",
        lambda c: changed(c.phones[0].leaving(), signature=c.phones[1].leaving().signature),
        R.BAD_SIGNATURE,
    ),
    # Contributing.
    "contribute: nothing": ("Collecting/Contribute", lambda _: wire.Contribution(), R.MALFORMED),
    "contribute: a short id": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=SHORT), R.MALFORMED),
    "contribute: a short signature": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=SHORT),
        R.MALFORMED,
    ),
    "contribute: to nothing": ("Collecting/Contribute", lambda c: changed(c.said(1), query=bytes(32)), R.UNKNOWN_QUERY),
    "contribute: nobody": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=NOBODY), R.NOT_DEALT),
    "contribute: revoked": ("Collecting/Contribute", lambda c: changed(c.said(1), phone=c.revoked.id), R.NOT_DEALT),
    "contribute: elsewhere": ("Collecting/Contribute", lambda c: c.said(1, cohort=7), R.WRONG_COHORT),
    "contribute: unsigned": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=bytes(64)),
        R.BAD_SIGNATURE,
    ),
    "contribute: for another": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), signature=c.said(2).signature),
        R.BAD_SIGNATURE,
    ),
    "contribute: seeded after all": (
        "Collecting/Contribute",
        lambda c: changed(c.said(1), seeded=True),
        R.BAD_SIGNATURE,
    ),
    "contribute: too little": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=b""), R.BAD_CIPHERTEXTS),
    "contribute: too much": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(512)), R.BAD_CIPHERTEXTS),
    "contribute: zero": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(256)), R.BAD_CIPHERTEXTS),
    "contribute: too large a number": (
        "Collecting/Contribute",
        lambda c: c.said(1, ciphertexts=b"\xff" * 256),
        R.BAD_CIPHERTEXTS,
    ),
    "contribute: a factor": (
        "Collecting/Contribute",
        lambda c: c.said(1, ciphertexts=c.key.n.to_bytes(256, "big")),
        R.BAD_CIPHERTEXTS,
    ),
    "contribute: something else": ("Collecting/Contribute", lambda c: c.said(0), R.CONFLICT),
    "contribute: late": ("Collecting/Contribute", lambda c: c.said(1, query=c.closed), R.LATE),
    "contribute: oversized": ("Collecting/Contribute", lambda c: c.said(1, ciphertexts=bytes(MAX_BYTES)), R.OVERSIZED),
    # Asking the aggregation server.
    "announcements: a short id": (
        "Collecting/Announcements",
        lambda _: wire.AnnouncementsRequest(phone=SHORT),
        R.MALFORMED,
    ),
    "key: another": ("Collecting/Key", lambda _: wire.KeyRequest(key_id=bytes(32)), R.KEY_RETIRED),
    "decisions: too many": ("Collecting/Decisions", twelve_hundred, R.OVERSIZED),
    "announce: nothing": ("Counting/Announce", lambda _: wire.AnnounceRequest(), R.BAD_QUERY),
    "announce: garbage": ("Counting/Announce", lambda _: wire.AnnounceRequest(query=bytes(90)), R.BAD_QUERY),
    "announce: the name of another": (
        "Counting/Announce",
        lambda c: wire.AnnounceRequest(query=asking(c, epsilon=0.5)),
        R.CONFLICT,
    ),
    "announce: another key": (
        "Counting/Announce",
        lambda c: wire.AnnounceRequest(query=asking(c, id="new", key_id=bytes(32).hex())),
        R.KEY_RETIRED,
    ),
    "status: of nothing": ("Counting/Status", lambda _: wire.StatusRequest(id="nothing"), R.UNKNOWN_QUERY),
    "abort: nothing": ("Counting/Abort", lambda _: wire.AbortRequest(id="nothing"), R.UNKNOWN_QUERY),
    # Asking the key server.
    "countersign: nothing": ("Deciding/Countersign", lambda _: wire.CountersignRequest(), R.BAD_QUERY),
    "countersign: the name of another": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, epsilon=0.5)),
        R.CONFLICT,
    ),
    "countersign: another key": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", key_id=bytes(32).hex())),
        R.KEY_RETIRED,
    ),
    "countersign: too many": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", population=1000, min_contributions=400)),
        R.TOO_FEW_ENROLLED,
    ),
    "countersign: too dear": (
        "Deciding/Countersign",
        lambda c: wire.CountersignRequest(query=asking(c, id="new", epsilon=10.0)),
        R.BAD_QUERY,
    ),
    "decide: nothing": ("Deciding/Decide", lambda _: [], R.MALFORMED),
    "decide: no head": ("Deciding/Decide", lambda _: wire.DecideRequest(receipts=wire.Receipts()), R.MALFORMED),
    "decide: two heads": ("Deciding/Decide", lambda c: [head(c), head(c)], R.MALFORMED),
    "decide: no query": ("Deciding/Decide", lambda c: head(c, query=bytes(32)), R.UNKNOWN_QUERY),
    "decide: no cohort": ("Deciding/Decide", lambda c: head(c, cohort=9), R.MALFORMED),
    "decide: no receipts": ("Deciding/Decide", head, R.BAD_RECEIPTS),
    "decide: zero": ("Deciding/Decide", lambda c: head(c, ciphertexts=bytes(256)), R.BAD_CIPHERTEXTS),
    "decide: again": (
        "Deciding/Decide",
        lambda c: head(c, query=c.closed.digest, contributors=0),
        R.ALREADY_DECIDED,
    ),
}
