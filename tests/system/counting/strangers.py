"""Messages that must change nothing: bad contributions, and requests to decide that are wrong."""

from __future__ import annotations

from hypothesis import strategies as st

from reticent.paillier import PublicKey
from reticent.protocol import statements
from reticent.protocol.layout import ciphertexts_to
from reticent.v1 import counting_pb2 as wire
from tests.system.counting.evidence import Evidence

__all__ = ["BAD", "WRONG_REQUEST", "made_bad", "made_wrong", "signed"]

BAD = st.sampled_from(["bit", "cohort", "query", "signature", "nothing", "factor", "short", "phone", "seeded"])
WRONG_REQUEST = st.sampled_from(["again", "ciphertexts", "receipts", "repeated", "burn"])


def signed(message: wire.Contribution, evidence: Evidence) -> None:
    """Sign a contribution as its phone would."""
    statement = statements.contribution(message, evidence.queries[message.query].key_id)
    message.signature = evidence.members[message.phone].signing.sign(statement)


def made_bad(
    sent: wire.Contribution, other: wire.Contribution, bad: str, key: PublicKey, evidence: Evidence
) -> wire.Contribution:
    """A contribution that must not be counted, made of one that may be, by a stranger or by its own phone."""
    message = wire.Contribution()
    message.CopyFrom(sent)
    match bad:
        case "bit":
            message.ciphertexts = sent.ciphertexts[:-1] + bytes([sent.ciphertexts[-1] ^ 1])
        case "signature":
            message.ciphertexts = other.ciphertexts[::-1]
            message.signature = bytes(64)
        case "phone":
            message.phone = bytes(16)
        case "seeded":
            message.seeded = not sent.seeded
        case "query":
            message.query = statements.digest(sent.query)
        case "cohort":
            message.cohort += 1
            signed(message, evidence)
        case "nothing":
            message.ciphertexts = bytes(len(sent.ciphertexts))
            signed(message, evidence)
        case "factor":
            message.ciphertexts = ciphertexts_to([key.n], key)
            signed(message, evidence)
        case "short":
            message.ciphertexts = sent.ciphertexts[:-1]
            signed(message, evidence)
    return message


def made_wrong(head: wire.DecideHead, receipts: list[wire.Receipt], wrong: str) -> bool:
    """Make a request wrong in this way; False if it cannot be."""
    if wrong == "again":
        return True
    if wrong == "burn":
        head.ClearField("ciphertexts")
    elif wrong == "ciphertexts":
        head.ciphertexts = bytes(len(head.ciphertexts))
    elif not receipts:
        return False
    elif wrong == "receipts":
        receipts[0].seeded = not receipts[0].seeded
    elif len(receipts) < 2:
        return False
    else:
        receipts[0].CopyFrom(receipts[1])
    return True
