"""What the state machine of the counting protocol drives: both servers, phones, and a network that loses things.

There are two worlds of the same rules: one of the synchronous cores in this process, and one of real processes.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from asyncio import Runner
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, cast

from google.protobuf.message import Message

from reticent.privacy import Query
from reticent.protocol import AgreementKey, Refused, Unreachable
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent_client import Situation
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import take_part
from reticent_client.errors import AlreadyJoined, NotJoined
from reticent_keys import KeyPair
from tests.system.counting.evidence import Evidence
from tests.system.counting.phones import Device, Killed, Watched, trap

__all__ = ["AGGREGATION", "KEYS", "START", "Fault", "Kill", "Way", "World"]

START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
MEMBERSHIP = dt.timedelta(days=4)
MIN_HONEST = 2
KEYS, AGGREGATION = "the key server", "the aggregation server"


class Fault(Enum):
    """What may happen to a call."""

    NONE = "it is answered"
    REQUEST_LOST = "it never arrives"
    ANSWER_LOST = "it arrives, and its answer does not"
    REPEATED = "it arrives twice"
    KILLED_BEFORE = "whoever is called dies before it has written anything"
    KILLED_AFTER = "whoever is called dies when it has written, and before it answers"

    @property
    def kills(self) -> bool:
        return self in {Fault.KILLED_BEFORE, Fault.KILLED_AFTER}


class Kill(NamedTuple):
    """When a party dies: at which of its transactions, counted from 1, and whether that one still comes true."""

    transaction: int
    after: bool


class World(ABC):
    """Both servers, and the phones; a rule of the machine is a call here."""

    phone: type[Watched] = Watched
    most_rotations = 3

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.evidence = Evidence(self.pair, self.query_key)
        self.devices: list[Device] = []
        self.seen: Counter[str] = Counter()
        """How often what has happened."""

    # What the two worlds do in their own ways.

    @abstractmethod
    def now(self, party: str) -> dt.datetime:
        """What time it is for a party."""

    @abstractmethod
    def pass_time(self, seconds: float, *, ahead: str = "", by: float = 0.0) -> None:
        """Move all clocks forward, and that of one party further."""

    @abstractmethod
    async def deliver(self, call: str, message: Message) -> Message:
        """Have a message answered."""

    @abstractmethod
    async def deliver_killed(self, call: str, message: Message, kill: Kill) -> Message:
        """Have a message answered by somebody who dies over it; what is returned got out before that."""

    @abstractmethod
    def kill(self, party: str) -> None:
        """Have a server die, and begin again."""

    @abstractmethod
    def countersign(self, fault: Fault) -> None:
        """Have the aggregation server ask for a countersignature."""

    @abstractmethod
    def close_due(self, kill: Kill | None) -> None:
        """Have the aggregation server close what is to be closed."""

    @abstractmethod
    def decide(self, fault: Fault, which: int) -> None:
        """Have the aggregation server ask for a decision."""

    @abstractmethod
    async def ask_to_decide(self, head: wire.DecideHead, receipts: Sequence[wire.Receipt]) -> wire.Decision:
        """Ask the key server for a decision in the aggregation server's name."""

    @abstractmethod
    def invitation(self) -> Invitation:
        """A new one, by the key server's operator."""

    @abstractmethod
    def revoke(self, phone: bytes) -> None:
        """By the key server's operator."""

    @abstractmethod
    def rotate(self, kill: Kill | None) -> None:
        """By the key server's operator."""

    @abstractmethod
    def journal(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the key server's journal holds."""

    @abstractmethod
    def collected(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the aggregation server's database holds."""

    @abstractmethod
    def pair(self, key_id: str) -> KeyPair:
        """A key pair that the key server has or had."""

    @abstractmethod
    def query_key(self, query: bytes) -> AgreementKey:
        """The key server's key of a query that is not decided."""

    @abstractmethod
    def query_keys_kept(self) -> set[bytes] | None:
        """The queries of which the key server has a key; None where it may be about to erase one."""

    @abstractmethod
    def pairs_kept(self) -> set[str] | None:
        """The ids of the key pairs that the key server can use; None while it may be about to destroy one."""

    @abstractmethod
    def decryptions(self, query: bytes, cohort: int) -> int | None:
        """How often the key server has decrypted a sum of this cohort and lived to tell it; None if nobody knows."""

    @property
    @abstractmethod
    def identity(self) -> bytes:
        """The key server's."""

    @abstractmethod
    def settle(self) -> None:
        """Have both servers do all that is to be done, without faults."""

    # What is the same in both.

    async def call(self, call: str, message: Message, fault: Fault) -> Message:
        """Send a message over a network that may fail.

        Raises:
            Refused: The server refuses.
            Unreachable: No answer comes.
        """
        if fault is Fault.REQUEST_LOST:
            raise Unreachable("the request was lost")
        try:
            if fault.kills:
                answer = await self.deliver_killed(call, message, Kill(1, after=fault is Fault.KILLED_AFTER))
            else:
                answer = await self.deliver(call, message)
        except Refused as refused:
            self.seen[refused.refusal.name] += 1
            raise
        self.note(message, answer)
        if fault is Fault.REPEATED:
            answer = await self.deliver(call, message)
        if fault is Fault.ANSWER_LOST:
            raise Unreachable("the answer was lost")
        return answer

    def note(self, message: Message, answer: Message) -> None:
        """Remember what a server has promised."""
        if isinstance(message, wire.Contribution) and isinstance(answer, wire.Acknowledgement):
            self.evidence.acknowledged(message, answer)

    def upload(self, contribution: wire.Contribution, fault: Fault = Fault.NONE) -> Refused | None:
        """Send a contribution, whoever made it; why it is refused, if it is."""
        try:
            self.runner.run(self.call("Contribute", contribution, fault))
        except Refused as refused:
            return refused
        except Unreachable:
            return None
        return None

    def ask(self, call: str, message: Message, fault: Fault = Fault.NONE) -> Message | None:
        """Run by an analyst; None where no answer comes.

        Raises:
            Refused: The aggregation server refuses.
        """
        try:
            return self.runner.run(self.call(call, message, fault))
        except Unreachable:
            return None

    def terms(self) -> wire.Terms:
        """Who could be asked now, and under which key."""
        answer = self.ask("GetTerms", wire.TermsRequest())
        assert isinstance(answer, wire.Terms)
        return answer

    def visit(self, device: Device, faults: Sequence[Fault] = (), kill: Kill | None = None) -> None:
        """Have a phone do all that it has to do now; it may die over it."""
        way = Way(self, device, faults)
        try:
            with trap(device.databases, kill):
                self.runner.run(take_part(device.participant, way, Situation()))
        except Killed:
            self.seen["a phone died"] += 1
            device.restart()
        device.learn()

    def enrol(self, faults: Sequence[Fault] = ()) -> Device:
        """A new phone that wants to join, and may not have got through."""
        number = len(self.devices)
        device = Device(self.place_of(number), number, lambda: self.now(f"phone {number}"), self.evidence, self.phone)
        self.devices.append(device)
        device.participant.enrolment.join(self.invitation())
        self.visit(device, faults)
        return device

    def rejoin(self, device: Device) -> None:
        """A phone that is no member gets another invitation."""
        try:
            device.participant.enrolment.join(self.invitation())
        except AlreadyJoined:
            return
        self.visit(device)

    def leave(self, device: Device, faults: Sequence[Fault]) -> None:
        """A phone wants to take part no more."""
        try:
            device.participant.enrolment.leave()
        except NotJoined:
            return
        self.visit(device, faults)

    @abstractmethod
    def place_of(self, number: int) -> Path:
        """The folder of a phone."""

    @abstractmethod
    def close(self) -> None:
        """The schedule is over."""

    def name_of(self, thing: int | str) -> str:
        """What a query or a sequence is called."""
        return f"{thing}"

    def is_ours(self, query: bytes) -> bool:
        """Whether a query is of this schedule, by its digest."""
        del query
        return True

    def queries(self) -> list[Query]:
        """Those that the key server has countersigned."""
        found = self.journal("SELECT digest, content FROM queries ORDER BY number")
        return [Query.from_bytes(content) for digest, content in found if self.is_ours(digest)]


class Way(Servers):
    """How a phone reaches both servers of a world.

    Args:
        world: Has the servers.
        device: Whose way it is.
        faults: What happens to the next calls; no more faults after that.
    """

    def __init__(self, world: World, device: Device, faults: Sequence[Fault]) -> None:
        self._world = world
        self._device = device
        self._faults = list(faults)

    @property
    def keys(self) -> str:
        return "the key server"

    @property
    def aggregation(self) -> str:
        return "the aggregation server"

    async def join(self, asked: wire.JoinRequest) -> wire.Membership:
        return cast("wire.Membership", await self._call("Join", asked))

    async def renew(self, asked: wire.RenewRequest) -> wire.Membership:
        return cast("wire.Membership", await self._call("Renew", asked))

    async def leave(self, asked: wire.LeaveRequest) -> None:
        await self._call("Leave", asked)

    async def announcements(self, phone: bytes, after: int = 0) -> wire.AnnouncementsReply:
        asked = wire.AnnouncementsRequest(phone=phone, after=after)
        return cast("wire.AnnouncementsReply", await self._call("Announcements", asked))

    async def query(self, asked: wire.QueryRequest) -> bytes:
        reply = cast("wire.QueryReply", await self._call("Query", asked))
        self._world.evidence.collects(asked.query)
        return reply.query

    async def key(self, key_id: bytes) -> bytes:
        return cast("wire.KeyReply", await self._call("Key", wire.KeyRequest(key_id=key_id))).public_key

    async def contribute(self, contribution: wire.Contribution) -> wire.Acknowledgement:
        self._device.learn()
        self._world.evidence.sent(self._device, contribution)
        return cast("wire.Acknowledgement", await self._call("Contribute", contribution))

    async def decisions(self, wanted: Sequence[wire.DecisionWanted]) -> Sequence[wire.Decision]:
        asked = wire.DecisionsRequest(wanted=wanted)
        return cast("wire.DecisionsReply", await self._call("Decisions", asked)).decisions

    async def _call(self, call: str, message: Message) -> Message:
        return await self._world.call(call, message, self._faults.pop(0) if self._faults else Fault.NONE)
