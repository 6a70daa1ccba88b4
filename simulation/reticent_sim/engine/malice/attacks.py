"""The kinds of malice: the messages that a phone sends to the aggregation server in place of its contribution."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent.paillier import Packing, PublicKey
from reticent.privacy import Query
from reticent.protocol import Refusal, Refused, packing_of, statements
from reticent.protocol.keys import KEY_BYTES, PHONE_BYTES, SIGNATURE_BYTES
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting.enrolment import Member
from reticent_sim.engine.malice.experience import ACKNOWLEDGED, QueryAttempts

__all__ = ["ATTACKS", "Attack", "honest_kinds", "malicious_kinds", "wild_numbers"]

MAX_FLOOD = 400
"""The most calls of a flood; the aggregation server's rate limit for a phone ends it earlier."""
CONCURRENT_CALLS = 8
WILD_SHARE = 3 / 8, 1 / 2
"""A wild value as a share of all sums that fit the place of a counter; beyond a half it would be nearer from below."""


@dataclass
class Attack:
    """One attack on one query.

    Args:
        query: The query.
        key: The Paillier key of the query.
        member: The phone.
        contribution: The honest contribution of its client.
        earlier: Contributions to replay: of its own to other queries, and of other phones.
        noise: Its share of the noise, which only a colluder discloses.
        rng: The source of all choices.
        send: Sends a contribution.
    """

    query: Query
    key: PublicKey
    member: Member
    contribution: wire.Contribution
    earlier: Sequence[wire.Contribution]
    noise: Sequence[int]
    rng: np.random.Generator
    send: Callable[[wire.Contribution], Awaitable[wire.Acknowledgement]]
    replies: Counter[str] = field(default_factory=Counter)
    accepted: wire.Contribution | None = None
    """The contribution of the phone that was accepted."""
    disclosed: tuple[int, ...] = ()
    """The share of the noise that the phone has disclosed."""

    @property
    def attempts(self) -> QueryAttempts:
        """The attempts so far, as plain data."""
        replies, is_accepted = dict(sorted(self.replies.items())), self.accepted is not None
        return QueryAttempts(self.query.id, self.contribution.cohort, replies, is_accepted, self.disclosed)

    async def contribute(self, contribution: wire.Contribution) -> None:
        """Send the contribution that is to count.

        Raises:
            As `attempt`.
        """
        if await self.attempt(contribution):
            self.accepted = contribution

    async def attempt(self, message: wire.Contribution) -> bool:
        """Send a message, and note the reply; whether it was accepted.

        Raises:
            Refused: The same message may be accepted later, so the attack has to be repeated.
            Unreachable: The same.
        """
        try:
            await self.send(message)
        except Refused as refused:
            if refused.refusal.retry:
                raise
            self.replies[refused.refusal.name] += 1
            return False
        self.replies[ACKNOWLEDGED] += 1
        return True

    def signed(self, **changes: Any) -> wire.Contribution:
        """The contribution with changes, signed by this phone."""
        message = changed(self.contribution, **changes)
        message.signature = self.member.signing.sign(statements.contribution(message, self.query.key_id))
        return message

    def added(self, numbers: Sequence[int]) -> wire.Contribution:
        """The contribution with a number added to each plaintext, properly encrypted and signed."""
        own = ciphertexts_from(self.contribution.ciphertexts, self.key)
        total = self.key.add_pairs(own, self.key.encrypt(numbers, self.rng))
        return self.signed(ciphertexts=ciphertexts_to(total, self.key))


def changed(message: wire.Contribution, **changes: Any) -> wire.Contribution:
    """A message with other fields, under its old signature."""
    other = wire.Contribution.FromString(message.SerializeToString())
    for name, value in changes.items():
        setattr(other, name, value)
    return other


async def garbage(attack: Attack) -> None:
    """Send messages that are no contributions: of odd sizes, unsigned, no ciphertexts, or to another cohort."""
    own, rng = attack.contribution, attack.rng
    size = len(own.ciphertexts)
    for message in (
        changed(own, signature=rng.bytes(SIGNATURE_BYTES - 1)),
        changed(own, agreement_key=rng.bytes(KEY_BYTES + 1)),
        changed(own, signature=rng.bytes(SIGNATURE_BYTES)),
        changed(own, ciphertexts=rng.bytes(size)),
        attack.signed(ciphertexts=rng.bytes(size - 1)),
        attack.signed(ciphertexts=b"\xff" * size),
        attack.signed(cohort=own.cohort + 1),
    ):
        await attack.attempt(message)


async def wild(attack: Attack) -> None:
    """Contribute enormous values, properly encrypted, tagged and signed.

    Either each counter is nearly as far off as its place in the plaintext allows, or the numbers exceed all places and
    change the tag.
    """
    packing = packing_of(attack.query, attack.key.bits)
    await attack.contribute(attack.added(wild_numbers(packing, attack.key.bits, attack.rng)))


def wild_numbers(packing: Packing, key_bits: int, rng: np.random.Generator) -> list[int]:
    """The numbers that a wild phone adds to the plaintexts."""
    if rng.integers(2):
        numbers = [0] * packing.plaintexts
        for slot in packing.slots:
            numbers[slot.plaintext] += int((1 << slot.width) * rng.uniform(*WILD_SHARE)) << slot.offset
        return numbers
    return [int.from_bytes(rng.bytes(key_bits // 8 - 1), "big") for _ in range(packing.plaintexts)]


async def replay(attack: Attack) -> None:
    """Contribute, and send old contributions again: as they are, to this query, and in other names."""
    own = attack.contribution
    await attack.attempt(changed(own, phone=attack.rng.bytes(PHONE_BYTES)))
    for message in attack.earlier:
        await attack.attempt(changed(message, query=own.query, cohort=own.cohort, phone=own.phone))
    await attack.contribute(own)
    for message in (own, *attack.earlier):
        await attack.attempt(message)


async def flood(attack: Attack) -> None:
    """Contribute, and send the same message until the aggregation server refuses it as BUSY."""
    await attack.contribute(attack.contribution)
    for _ in range(MAX_FLOOD // CONCURRENT_CALLS):
        calls = (attack.send(attack.contribution) for _ in range(CONCURRENT_CALLS))
        replies = await asyncio.gather(*calls, return_exceptions=True)
        errors = [reply for reply in replies if isinstance(reply, BaseException)]
        for error in errors:
            if not (isinstance(error, Refused) and error.refusal is Refusal.BUSY):
                raise error
            attack.replies[Refusal.BUSY.name] = 1
            await asyncio.sleep(error.retry_after or 0.0)  # so that the next contribution is accepted
        if errors:
            return


async def silence(_: Attack) -> None:
    """Send nothing."""


async def colluder(attack: Attack) -> None:
    """Contribute, and disclose the noise in the contribution."""
    await attack.contribute(attack.contribution)
    attack.disclosed = tuple(int(share) for share in attack.noise)


ATTACKS: Mapping[str, Callable[[Attack], Coroutine[Any, Any, None]]] = {
    attack.__name__: attack for attack in (garbage, wild, replay, flood, silence, colluder)
}
malicious_kinds = tuple(ATTACKS)
"""The kinds of malicious phones."""
honest_kinds = ("replay", "flood", "colluder")
"""The kinds of which the honest contribution counts, and no other one."""
