"""A malicious phone: a real phone whose contributions are changed on their way to the aggregation server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from reticent.privacy import Query
from reticent.protocol import statements
from reticent.protocol.invitation import Invitation
from reticent.randomness import seeded
from reticent.v1 import counting_pb2 as wire
from reticent_client import PhoneStore
from reticent_client.counting.announcements import checked_key, read_query
from reticent_client.counting.enrolment import MEMBERSHIP, Member
from reticent_client.counting.servers import Servers
from reticent_sim.engine.malice.attacks import ATTACKS, Attack
from reticent_sim.engine.malice.experience import Experience, QueryAttempts

__all__ = ["MaliciousPhone"]

MAX_REPLAYED = 4
"""A phone replays so many contributions of its own, and so many of other phones."""

Send = Callable[[wire.Contribution], Awaitable[wire.Acknowledgement]]


class MaliciousPhone:
    """The malice of one phone. Give `servers` to the real phone, and nothing else of it changes.

    The client of the phone gets an acknowledgement whatever happens, and does not try again. Where a server cannot be
    reached, the client retries, and the whole attack is repeated.

    Args:
        kind: One of `malicious_kinds`.
        number: The number of the phone.
        store: The phone's store, from which its signing key comes.
        seed: Of the simulation.
        servers: Makes the connection to both servers; of an honest phone unless given.
    """

    def __init__(
        self,
        kind: str,
        number: int,
        store: PhoneStore,
        *,
        seed: int,
        servers: Callable[[Invitation], Servers] = Servers,
    ) -> None:
        self.kind = kind
        self.number = number
        self._attack = ATTACKS[kind]
        self._store = store
        self._seed = seed
        self._servers = servers
        self._attempts: dict[str, QueryAttempts] = {}
        self._new: dict[str, QueryAttempts] | None = {}  # since the last report; None if there is nothing to report
        self._sent: dict[bytes, bytes] = {}  # by the query
        self._overheard: tuple[bytes, ...] = ()

    @property
    def experience(self) -> Experience:
        """All attempts so far, and their replies, as plain data."""
        return Experience(self.number, self.kind, tuple(self._attempts.values()))

    def take_experience(self) -> Experience | None:
        """The attempts since the last call; None if there are none, but for the first call."""
        new, self._new = self._new, None
        return None if new is None else Experience(self.number, self.kind, tuple(new.values()))

    @property
    def sent(self) -> tuple[bytes, ...]:
        """Its last accepted contributions, which other malicious phones may `overhear`."""
        return tuple(self._sent.values())[-MAX_REPLAYED:]

    def overhear(self, contributions: Iterable[bytes]) -> None:
        """Let a phone that replays have contributions of other phones, in place of those that it had before."""
        self._overheard = tuple(contributions)[-MAX_REPLAYED:]

    def servers(self, invitation: Invitation) -> Servers:
        """A connection to both servers, for the real phone."""
        servers = self._servers(invitation)
        contribute = partial(self._contribute, servers, servers.contribute)
        servers.contribute = contribute  # type: ignore[method-assign]  # whatever kind of connection it is
        return servers

    async def _contribute(self, servers: Servers, send: Send, contribution: wire.Contribution) -> wire.Acknowledgement:
        """Attack the query of a contribution; returns the acknowledgement that an honest phone gets."""
        member = Member.from_text(self._store.slot(MEMBERSHIP).read() or "")
        query = await _query(servers, member, contribution)
        key, _ = checked_key(query, await servers.key(bytes.fromhex(query.key_id)), simulation=True)
        own = [content for digest, content in self._sent.items() if digest != contribution.query]
        attack = Attack(
            query,
            key,
            member,
            contribution,
            [wire.Contribution.FromString(content) for content in (*own[-MAX_REPLAYED:], *self._overheard)],
            [int(share) for share in query.share(seeded(self._seed, "noise", self.number, query.id))],
            seeded(self._seed, "malice", self.number, query.id),
            send,
        )
        await self._attack(attack)
        self._attempts[query.id] = attack.attempts
        self._new = (self._new or {}) | {query.id: attack.attempts}
        if attack.accepted is not None:
            self._sent[contribution.query] = attack.accepted.SerializeToString()
        return wire.Acknowledgement(contribution=statements.digest(statements.contribution(contribution, query.key_id)))


async def _query(servers: Servers, member: Member, contribution: wire.Contribution) -> Query:
    signature = member.signing.sign(statements.fetching(contribution.query, member.phone))
    request = wire.QueryRequest(query=contribution.query, phone=member.phone, signature=signature)
    return read_query(await servers.query(request))
