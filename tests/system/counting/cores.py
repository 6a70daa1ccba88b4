"""The world of the synchronous cores: both servers in this process, on files, and messages in bytes between them."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import shutil
import tempfile
from asyncio import Runner
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from reticent.privacy import Query, QueryLimits
from reticent.protocol import AgreementKey, Refused, Unreachable
from reticent.protocol.invitation import Invitation
from reticent.randomness import secure
from reticent.storage.database import Database
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_agg import AggregationServer, SqlStore
from reticent_agg.counting.closing import abort
from reticent_agg.store import Lease
from reticent_keys import (
    Identity,
    KeyPair,
    KeyPairStore,
    KeyServer,
    QueryKeyStore,
    SqlJournal,
    administration,
)
from reticent_keys.deciding import Decider
from tests.parties.aggregation import sqlite_of
from tests.parties.decision_requests import decide as decide_request
from tests.parties.key_pairs import pair
from tests.system.counting.phones import Killed, trap
from tests.system.counting.world import AGGREGATION, KEYS, MEMBERSHIP, MIN_HONEST, START, Fault, Kill, World

__all__ = ["Cores"]

BITS = 2048
PAIRS = 4
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of its own is made there
"""What is killed here are parties, not the machine: waiting for a disk would only take time."""
Result = TypeVar("Result")
Sent = TypeVar("Sent", bound=Message)


class WatchedPair(KeyPair):
    """A key pair that says when it decrypts."""

    def __init__(self, of: KeyPair, decrypts: Callable[[], None]) -> None:
        self.public = of.public
        self._private = of._private
        self._decrypts = decrypts

    def decrypt(self, ciphertexts: Sequence[int]) -> list[int]:
        self._decrypts()
        return super().decrypt(ciphertexts)


class Cores(World):
    """Both servers, on files that outlive them."""

    decider: type[Decider] = Decider
    aggregation_store: type[SqlStore] = SqlStore

    def __init__(self) -> None:
        super().__init__(Runner())
        self.folder = Path(tempfile.mkdtemp(prefix="reticent", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self._ahead: dict[str, dt.timedelta] = defaultdict(dt.timedelta)
        self._passed = dt.timedelta(0)
        self._identity = Identity()
        self._pair_store = KeyPairStore(None)  # what is in these two outlives the server, as files do
        self._query_keys = QueryKeyStore(None)
        self._pairs = itertools.count()
        self._dealings = itertools.count()
        self._made: dict[str, KeyPair] = {}
        self._deciding: tuple[bytes, int] | None = None
        self._decrypted: Counter[tuple[bytes, int]] = Counter()
        self._open_keys()
        self._open_aggregation()

    def close(self) -> None:
        for device in self.devices:
            device.close()
        self.keys.journal.close()
        self.aggregation.close()
        self.runner.close()
        shutil.rmtree(self.folder)

    # Time, and dying.

    def now(self, party: str) -> dt.datetime:
        return START + self._passed + self._ahead[party]

    def pass_time(self, seconds: float, *, ahead: str = "", by: float = 0.0) -> None:
        self._passed += dt.timedelta(seconds=seconds)
        if ahead:
            self._ahead[ahead] += dt.timedelta(seconds=by)

    def kill(self, party: str) -> None:
        self.seen[f"{party} died"] += 1
        if party == KEYS:
            self.keys.journal.close()
            self._open_keys()
        else:
            self.aggregation.close()
            self.lost()
            self._open_aggregation()

    def lost(self) -> None:
        """What a crash of the aggregation server takes with it: nothing, of what was written."""

    def _open_keys(self) -> None:
        journal = SqlJournal(self.folder / "journal.db")
        self.keys = KeyServer(
            journal,
            self._identity,
            self._pair_store,
            self._query_keys,
            now=lambda: self.now(KEYS),
            limits=QueryLimits(min_honest=MIN_HONEST, min_cohort_share=0.0, min_liars_share=0.0),
            lifetime=MEMBERSHIP,
            generate=self._generated,
            seed=next(self._dealings),
        )
        self.keys.decider = self.decider(
            journal, self._identity, self.keys.keyring, self._query_keys, lambda: self.now(KEYS)
        )
        assert isinstance(journal.database, Database)
        self._journal = journal.database

    def _open_aggregation(self) -> None:
        self._store = self.aggregation_store(self.folder / "aggregation.db")
        self.aggregation = AggregationServer(
            self._store,
            identity=self._identity.public,
            now=lambda: self.now(AGGREGATION),
            rng=secure(),
            simulation=True,
        )

    def _serve(self, party: str, work: Callable[[], Result], kill: Kill | None) -> Result:
        """Have a server do something; whoever is refused has changed nothing, and whoever asks somebody dead waits."""
        database = self._journal if party == KEYS else sqlite_of(self._store)
        before = dump(database)
        try:
            with trap([database], kill):
                return work()
        except Refused:
            assert dump(database) == before, "what was refused has changed something"
            if kill is None:
                raise
        except Killed:
            pass
        self.kill(party)
        raise Unreachable(f"{party} died")

    # Calls.

    async def deliver(self, call: str, message: Message) -> Message:
        return self._delivered(call, message, None)

    async def deliver_killed(self, call: str, message: Message, kill: Kill) -> Message:
        return self._delivered(call, message, kill)

    def _delivered(self, call: str, message: Message, kill: Kill | None) -> Message:
        if call == "GetTerms":
            terms = self._serve(KEYS, self.keys.terms, None)
            self._serve(AGGREGATION, lambda: self.aggregation.queries.learn(copied(terms)), kill)
            return copied(terms)
        if isinstance(message, wire.AnnounceRequest):
            query = Query.from_bytes(message.query)
            if not self.aggregation.queries.can_judge(query):
                self._delivered("GetTerms", wire.TermsRequest(), None)  # as the service does
        party = KEYS if call in {"Join", "Renew", "Leave"} else AGGREGATION
        return copied(self._serve(party, lambda: self._work(call, copied(message)), kill))

    def _work(self, call: str, message: Any) -> Message:
        """What the servers' services do with a call."""
        keys, aggregation = self.keys, self.aggregation
        if call == "Contribute":
            (outcome,) = aggregation.collection.contribute([message])
            if isinstance(outcome, Refused):
                raise outcome
            return outcome
        methods: dict[str, Callable[[Any], Message]] = {
            "Join": keys.members.join,
            "Renew": keys.members.renew,
            "Leave": keys.members.leave,
            "Announcements": aggregation.replies.announcements,
            "Query": aggregation.replies.query,
            "Key": aggregation.replies.key,
            "Decisions": aggregation.replies.decisions,
            "Announce": self._announce,
            "Status": aggregation.replies.status,
            "Abort": self._abort,
        }
        return methods[call](message)

    def _announce(self, request: wire.AnnounceRequest) -> wire.QueryStatus:
        query = self.aggregation.queries.announce(request.query)
        return self.aggregation.replies.status(wire.StatusRequest(id=query.id))

    def _abort(self, request: wire.AbortRequest) -> wire.QueryStatus:
        self.aggregation.replies.status(request)
        abort(self._store, request.id)
        return self.aggregation.replies.status(request)

    # The link between the servers.

    def countersign(self, fault: Fault) -> None:
        for _, query in self.aggregation.queries.to_countersign():
            content = query.to_bytes()
            try:
                deals = self._across(
                    lambda content=content: list(self.keys.dealer.countersign(content)),  # type: ignore[misc]
                    fault,
                )
                told = [copied(deal) for deal in deals]
                work = functools.partial(self.aggregation.queries.countersign, query, told)
                self._serve(AGGREGATION, work, _after(fault))
            except Unreachable:
                return
            except Refused as refused:
                self.aggregation.store.reject(query.digest, refused)

    def close_due(self, kill: Kill | None) -> None:
        try:
            self._serve(AGGREGATION, self.aggregation.closing.close_due, kill)
        except Unreachable:
            return

    def decide(self, fault: Fault, which: int) -> None:
        items = self._store.to_decide()
        if not items:
            return
        now = milliseconds(self.now(AGGREGATION))
        head = self._store.claim(items[which % len(items)], Lease("the only driver", now, now + 1))
        assert isinstance(head, wire.DecideHead)
        messages = [copied(each) for each in self.aggregation.closing.messages(head)]
        receipts = [receipt for each in messages[1:] for receipt in each.receipts.receipts]
        try:
            decision = self._asked_to_decide(messages[0].head, receipts, fault)
            self._serve(AGGREGATION, lambda: self.aggregation.closing.decide(copied(decision)), _after(fault))
        except Unreachable:
            return
        except Refused as refused:
            self.aggregation.closing.refuse(head, refused)

    async def ask_to_decide(self, head: wire.DecideHead, receipts: Sequence[wire.Receipt]) -> wire.Decision:
        return self._asked_to_decide(copied(head), [copied(each) for each in receipts], Fault.NONE)

    def _asked_to_decide(self, head: wire.DecideHead, receipts: Sequence[wire.Receipt], fault: Fault) -> wire.Decision:
        place = head.query, head.cohort
        before = self._decrypted[place]
        self._deciding = place
        try:
            return self._across(lambda: decide_request(self.keys, head, receipts), fault)
        except Unreachable:
            if not self.journal(DECISION, *place):  # what it found died with it
                self._decrypted[place] = before
            raise

    def _across(self, work: Callable[[], Result], fault: Fault) -> Result:
        """From one server to the other."""
        if fault is Fault.REQUEST_LOST:
            raise Unreachable("the request was lost")
        kill = Kill(1, after=fault is Fault.KILLED_AFTER) if fault.kills else None
        answer = self._serve(KEYS, work, kill)
        if fault is Fault.REPEATED:
            assert self._serve(KEYS, work, None) == answer, "the same question got another answer"
        if fault is Fault.ANSWER_LOST:
            raise Unreachable("the answer was lost")
        return answer

    def settle(self) -> None:
        self.close_due(None)
        self.countersign(Fault.NONE)
        self.close_due(None)
        for _ in range(2 * len(self.aggregation.store.to_decide())):  # one that was aborted may be refused once
            self.decide(Fault.NONE, 0)

    # The key server's operator.

    def invitation(self) -> Invitation:
        expires = self.now(KEYS) + dt.timedelta(days=365)
        [token] = administration.invite(self.keys.journal, 1, expires=expires)
        return Invitation(token, self._identity.public, "no certificate", "localhost:1", "localhost:2")

    def revoke(self, phone: bytes) -> None:
        administration.revoke(self.keys.journal, phone)

    def rotate(self, kill: Kill | None) -> None:
        try:
            self._serve(KEYS, self.keys.keyring.rotate, kill)
        except Unreachable:
            return

    # What can be seen.

    def journal(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._journal.reading() as run:
            return run(sql, values).fetchall()

    def collected(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._store.database.reading() as run:
            return run(sql, values).fetchall()

    def pair(self, key_id: str) -> KeyPair:
        return self._made[key_id]

    def query_key(self, query: bytes) -> AgreementKey:
        return self._query_keys.get(query)

    def query_keys_kept(self) -> set[bytes]:
        return set(self._query_keys._in_memory)

    def pairs_kept(self) -> set[str]:
        known = {key_id for (key_id,) in self.journal("SELECT id FROM keys")}
        return set(self._pair_store._open) & known  # a pair that no journal names came of a crash, and hides nothing

    def decryptions(self, query: bytes, cohort: int) -> int | None:
        return self._decrypted[query, cohort]

    @property
    def identity(self) -> bytes:
        return self._identity.public

    def place_of(self, number: int) -> Path:
        return self.folder / f"phone-{number}"

    def _generated(self) -> KeyPair:
        made = pair(BITS, next(self._pairs) % PAIRS)
        self._made[made.public.key_id.hex()] = made
        return WatchedPair(made, self._decrypts)

    def _decrypts(self) -> None:
        assert self._deciding is not None, "something is decrypted that nobody has to have decided"
        self._decrypted[self._deciding] += 1


DECISION = """
SELECT 1 FROM decisions JOIN queries ON queries.number = decisions.query WHERE digest = ? AND decisions.cohort = ?
"""


def copied(message: Sent) -> Sent:
    """What comes out at the other end."""
    return type(message).FromString(message.SerializeToString())


def dump(database: Database) -> list[list[tuple[Any, ...]]]:
    """All that is in a file."""
    with database.reading() as run:
        tables = run("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return [run(f"SELECT * FROM {name}").fetchall() for (name,) in tables]  # noqa: S608


def _after(fault: Fault) -> Kill | None:
    """Once in a while it is the one who asked that dies, over the answer."""
    return Kill(1, after=False) if fault is Fault.REPEATED else None
