"""What the state machine has seen with its own eyes, whatever the parties say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from reticent.paillier import centred, pad, tag
from reticent.privacy import Norms, Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, statements
from reticent.protocol.layout import ciphertexts_from
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeyPair
from tests.system.counting.phones import Device

__all__ = ["Evidence", "Said"]

Name = tuple[bytes, bytes]
"""A query and a phone, by their digest and id."""


class Said(NamedTuple):
    """What a phone has said, opened with all keys."""

    counters: list[int]
    steps: list[int]


@dataclass(frozen=True)
class Known:
    """What the machine knows of a membership."""

    device: int
    signing: SigningKey


class Evidence:
    """Contributions on the wire, what they hold, and what servers have promised about them.

    Args:
        pair: The key pair of an id.
        query_key: The key server's key of a query that is not decided, by its digest.
    """

    def __init__(self, pair: Callable[[str], KeyPair], query_key: Callable[[bytes], AgreementKey]) -> None:
        self._pair = pair
        self._query_key = cache(query_key)
        self.queries: dict[bytes, Query] = {}
        self.members: dict[bytes, Known] = {}
        self.honest: dict[Name, wire.Contribution] = {}
        """What the participants have sent, each one thing to each query."""
        self.said: dict[Name, Said] = {}
        self.lies: dict[Name, set[bytes]] = {}
        """The hashes of ciphertexts that liars have sent."""
        self.promised: dict[Name, bytes] = {}
        """The hash of the ciphertexts that were acknowledged."""
        self.aborted: set[str] = set()

    def knows(self, device: int, phone: bytes, signing: SigningKey) -> None:
        """A phone became a member."""
        self.members.setdefault(phone, Known(device, signing))

    def asked(self, query: Query) -> None:
        """A query may be announced."""
        self.queries[query.digest] = query

    def collects(self, query: bytes) -> None:
        """A query is not decided: its key is there, which opens what is sent later."""
        self._query_key(query)

    def sent(self, device: Device, message: wire.Contribution) -> None:
        """A participant sends its answer: to one query always the same."""
        name = message.query, message.phone
        known = self.honest.setdefault(name, message)
        assert known == message, "a phone said two different things to one query"
        others = [each for each in self.honest if each[0] == message.query and each != name]
        assert all(self.members[phone].device != device.number for _, phone in others), "a phone said things twice"
        if name not in self.said:
            self.said[name] = self._opened(device, message)

    def acknowledged(self, message: wire.Contribution, answer: wire.Acknowledgement) -> None:
        """A server promises to count a contribution."""
        query = self.queries[message.query]
        contents = statements.ciphertexts_hash(message.ciphertexts)
        statement = statements.contribution(message, query.key_id)
        assert answer.contribution == statements.digest(statement), "another contribution is acknowledged"
        known = self.promised.setdefault((message.query, message.phone), contents)
        assert known == contents, "two contributions of one phone are acknowledged"

    def lied(self, message: wire.Contribution) -> None:
        """Somebody sends what no participant has made."""
        contents = statements.ciphertexts_hash(message.ciphertexts)
        self.lies.setdefault((message.query, message.phone), set()).add(contents)

    def holds(self, query: bytes, phone: bytes, contents: bytes) -> Said | None:
        """What these ciphertexts hold; None if they are a lie."""
        if contents in self.lies.get((query, phone), ()):
            return None
        message = self.honest[query, phone]
        assert statements.ciphertexts_hash(message.ciphertexts) == contents, "nobody sent what was receipted"
        return self.said[query, phone]

    def used(self, device: Device, account: str, burnt: Collection[bytes]) -> Norms:
        """How much a phone has said to the queries of an account, without those that were burnt."""
        found = (
            self.said[query, phone].steps
            for query, phone in self.said
            if self.members[phone].device == device.number
            and self.queries[query].account == account
            and query not in burnt
        )
        return _added(Norms.of(steps) for steps in found)

    def _opened(self, device: Device, message: wire.Contribution) -> Said:
        query = self.queries[message.query]
        pair = self._pair(query.key_id)
        n, query_key = pair.public.n, self._query_key(message.query)
        secret = shared_secret(
            query_key, phone=message.phone, phone_key=message.agreement_key, query_key=query_key.public
        )
        hidden = pair.decrypt(ciphertexts_from(message.ciphertexts, pair.public))
        place = message.query, message.cohort
        plain = [centred(each - pad(secret, *place, number, n), n) for number, each in enumerate(hidden)]
        found = packing_of(query, pair.public.bits).unpack(plain)
        assert found.tags == [tag(secret, *place, number) for number in range(len(plain))], "a phone's tag is wrong"
        steps = [noisy - noise for noisy, noise in zip(found.counters, device.noise(query), strict=True)]
        for counter, step in zip(query.counters, steps, strict=True):
            scale = 1 << query.fraction_bits
            assert counter.low * scale <= step <= counter.high * scale, "a phone said more than a counter's bounds"
        return Said(found.counters, steps)


def _added(norms: Iterable[Norms]) -> Norms:
    return sum(norms, Norms(0, 0))
