"""Load for real servers: phones that join over TLS, queries to all of them, and processes that send contributions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.phones import CheapContributions, LoadPhone
from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import Refused, SigningKey, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel_credentials
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub, EnrolmentStub
from reticent_analyst import Analyst
from reticent_sim.engine import ANALYST, ServerPair
from reticent_sim.engine.endpoint import Endpoint

__all__ = [
    "Calls",
    "Load",
    "LoadResult",
    "OpenQuery",
    "Work",
    "announced",
    "calls_to",
    "enrolled",
    "in_groups",
    "terms",
    "value_of",
]

CHANNELS, CALLS = 16, 12
"""Connections of a process to each server, and concurrent calls of a connection."""
GROUP = 1000  # phones that act at a time
PAUSE = 0.05  # seconds before the next attempt, when no server is there
CALL_TIMEOUT = 20.0
EXIT_TIMEOUT = 600.0


@dataclass(frozen=True)
class OpenQuery:
    """A query that was announced, with the key server's key for it."""

    query: Query
    query_key: bytes


@dataclass(frozen=True)
class LoadResult:
    """What a process has sent.

    Args:
        acknowledged: For each query, how many contributions.
        sums: For each query, the sum of their values.
        latencies: Seconds from the scheduled time of each contribution to its acknowledgement.
        retries: Attempts that were repeated.
    """

    acknowledged: list[int]
    sums: list[int]
    latencies: Any  # an array of floats
    retries: int


def value_of(phone: int, query: int) -> int:
    """The counter of a phone in a query, by their numbers: about a third of the phones have 1."""
    return int((phone + query) % 3 == 0)


async def enrolled(servers: ServerPair, phones: int) -> list[LoadPhone]:
    """New phones, which join by the real key server."""
    invitations = await asyncio.to_thread(servers.invitations, phones)
    found = [LoadPhone(each.token, SigningKey()) for each in invitations]
    async with calls_to([servers.enrolment], EnrolmentStub) as calls:

        async def join(phone: LoadPhone) -> None:
            phone.id = (await calls.call("Join", phone.joining())).phone

        await in_groups(join, found)
    return found


async def in_groups(act: Callable[[LoadPhone], Awaitable[object]], phones: Sequence[LoadPhone]) -> None:
    """Let all phones act, some at a time."""
    for first in range(0, len(phones), GROUP):
        await asyncio.gather(*map(act, phones[first : first + GROUP]))


async def terms(servers: ServerPair) -> tuple[int, PublicKey]:
    """How many phones are enrolled, and the active key."""
    async with servers.counting.channel() as channel:
        found = await reply_of(CountingStub(channel).GetTerms(wire.TermsRequest(), timeout=CALL_TIMEOUT))
    return found.population, PublicKey.from_bytes(found.public_key, simulation=True)


async def announced(servers: ServerPair, queries: Sequence[Query], phone: LoadPhone) -> list[OpenQuery]:
    """Announce queries, to which all phones are dealt in one cohort; returns when the last is open."""

    def announce() -> None:
        certificate = Certificate.load(servers.certs, ANALYST)
        with Analyst(servers.counting.address, certificate, servers.identity) as analyst:
            for query in queries:
                analyst.start(query)

    await asyncio.to_thread(announce)
    async with calls_to([servers.collecting], CollectingStub) as calls:
        while True:
            keys = await _keys(calls, phone)
            if all(query.digest in keys for query in queries):
                return [OpenQuery(query, keys[query.digest]) for query in queries]
            await asyncio.sleep(PAUSE)


async def _keys(calls: Calls, phone: LoadPhone) -> dict[bytes, bytes]:
    """The key server's keys for the open queries of a phone."""
    keys: dict[bytes, bytes] = {}
    after = 0
    while True:
        reply = await calls.call("Announcements", wire.AnnouncementsRequest(phone=phone.id, after=after))
        keys |= {each.query: each.agreement_key for each in reply.announcements}
        after = reply.next
        if not after:
            return keys


@dataclass(frozen=True)
class Work:
    """Contributions to send: of each phone to each query, in the order of the queries.

    Args:
        addresses: Of the aggregation servers, for phones.
        authority: The certificate of the servers' authority.
        key: The Paillier key.
        phones: Who contributes.
        queries: To what.
        rate: Contributions a second.
    """

    addresses: Sequence[str]
    authority: bytes
    key: PublicKey
    phones: Sequence[LoadPhone]
    queries: Sequence[OpenQuery]
    rate: float

    def part(self, number: int, parts: int) -> str:
        """The part of one of several processes, as JSON: each acts for other phones."""
        own = [each for each in range(len(self.phones)) if each % parts == number]
        content = {
            "addresses": list(self.addresses),
            "authority": self.authority.hex(),
            "key": self.key.to_bytes().hex(),
            "phones": [(each, self.phones[each].id.hex(), self.phones[each].signing.to_bytes().hex()) for each in own],
            "queries": [(each.query.to_bytes().hex(), each.query_key.hex()) for each in self.queries],
            "rate": self.rate / parts,
        }
        return json.dumps(content)


class Load:
    """A process that sends contributions.

    Args:
        file: For its part of the work; its results are written beside it.
        part: Of `Work.part`.
    """

    def __init__(self, file: Path, part: str) -> None:
        self._file = file
        self._file.write_text(part, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start to send."""
        code = "from benchmarks.load import send; send()"
        self._process = subprocess.Popen([sys.executable, "-c", code, str(self._file)])  # noqa: S603  # our own

    @property
    def is_running(self) -> bool:
        """Whether it still sends."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def result(self) -> LoadResult:
        """Wait for the end, and return what was sent.

        Raises:
            subprocess.SubprocessError: It failed, or did not end in time.
        """
        if self._process is None or self._process.wait(EXIT_TIMEOUT):
            raise subprocess.SubprocessError("a process that sends contributions has failed")
        found = json.loads(self._file.with_suffix(".result").read_text(encoding="utf-8"))
        return LoadResult(latencies=np.load(self._file.with_suffix(".npy")), **found)


class Calls:
    """Calls to servers, of which any may be down: the next attempt goes to another one.

    Args:
        stubs: Of the connections, each with the calls that it may have in flight.
    """

    def __init__(self, stubs: Sequence[Any]) -> None:
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        for _ in range(CALLS):
            for stub in stubs:
                self._free.put_nowait(stub)
        self.retries = 0

    async def call(self, method: str, message: Any) -> Any:
        """Call until there is a reply; raises what is final."""
        while True:
            stub = await self._free.get()
            pause = PAUSE
            try:
                return await reply_of(getattr(stub, method)(message, timeout=CALL_TIMEOUT))
            except Unreachable:
                pass
            except Refused as refused:
                if not refused.refusal.retry:
                    raise
                pause = refused.retry_after or PAUSE
            finally:
                self._free.put_nowait(stub)
            self.retries += 1
            await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def calls_to(endpoints: Sequence[Endpoint], stub: Any, connections: int = CHANNELS) -> AsyncIterator[Calls]:
    """Connections to servers, so many to each, which take turns."""
    async with contextlib.AsyncExitStack() as stack:
        channels: list[grpc.aio.Channel] = [
            await stack.enter_async_context(endpoint.channel()) for _ in range(connections) for endpoint in endpoints
        ]
        yield Calls([stub(each) for each in channels])


def send() -> None:
    """Run in a process of its own: send what the file says, and write the results beside it."""
    file = Path(sys.argv[1])
    result = asyncio.run(_send(json.loads(file.read_text(encoding="utf-8"))))
    np.save(file.with_suffix(".npy"), result.pop("latencies"))
    file.with_suffix(".result").write_text(json.dumps(result), encoding="utf-8")


async def _send(content: dict[str, Any]) -> dict[str, Any]:
    credentials = channel_credentials(bytes.fromhex(content["authority"]))
    key = PublicKey.from_bytes(bytes.fromhex(content["key"]), simulation=True)
    phones = [
        (number, LoadPhone(b"", SigningKey(bytes.fromhex(signing)), bytes.fromhex(phone)))
        for number, phone, signing in content["phones"]
    ]
    queries = [(Query.from_bytes(bytes.fromhex(query)), bytes.fromhex(own)) for query, own in content["queries"]]
    makers = [CheapContributions(query, key, own) for query, own in queries]
    latencies = np.empty(len(phones) * len(queries), dtype=np.float32)
    acknowledged, sums, done = [0] * len(queries), [0] * len(queries), count()
    endpoints = [Endpoint(address, lambda: credentials) for address in content["addresses"]]
    async with calls_to(endpoints, CollectingStub) as calls, asyncio.TaskGroup() as group:

        async def contribute(query: int, number: int, phone: LoadPhone, due: float) -> None:
            value = value_of(number, query)
            await calls.call("Contribute", makers[query].contribution(phone, 0, [value]))
            latencies[next(done)] = time.monotonic() - due
            acknowledged[query] += 1
            sums[query] += value

        begun = time.monotonic()
        due = begun
        for query in range(len(queries)):
            for number, phone in phones:
                due += 1 / content["rate"]
                await asyncio.sleep(due - time.monotonic())
                group.create_task(contribute(query, number, phone, due))
    return {"acknowledged": acknowledged, "sums": sums, "retries": calls.retries, "latencies": latencies}
