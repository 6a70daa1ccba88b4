"""A key server as a process of its own, as its operator runs it, and who calls it."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol.calls import reply_of
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from reticent_sim.engine import ServerPair
from reticent_sim.engine.process import environment
from tests.parties.key_server import QUERY
from tests.parties.phone import Contribution, Phone, joined

PROGRAM = Path(sys.executable).with_name("reticent")
TIMEOUT = 60.0
POPULATION = 12
OPTIONS = ("--min-honest", "2", "--min-cohort-share", "0.3", "--min-liars-share", "0")


class Site(ServerPair):
    """A folder with certificates, a passphrase, and the folder of a key server, which is the only one that runs."""

    def __init__(self, path: Path, *options: str, clock: dt.datetime | None = None) -> None:
        super().__init__(path, clock=clock, key_bits=2048, keys_options=(*OPTIONS, *options))

    def command(self, *arguments: str, code: int = 0, inherit: bool = False) -> str:
        """Run `reticent keys` with these arguments, with or without the environment. Returns its output."""
        done = subprocess.run(
            [PROGRAM, "keys", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env=dict(os.environ) if inherit else environment() | {"COLUMNS": "80"},
        )
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    @property
    def log(self) -> str:
        """The key server's, without what it prints at its start."""
        lines = self.keys.log.read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith(("identity ", "listening for ")))


@contextmanager
def site(path: Path, *options: str, clock: dt.datetime | None = None) -> Iterator[Site]:
    """A key server that serves."""
    with Site(path, *options, clock=clock) as made:
        made.keys.start()
        yield made


async def terms_of(to: grpc.aio.Channel) -> wire.Terms:
    stub: Any = services.DecidingStub(to)
    made: wire.Terms = await reply_of(stub.GetTerms(wire.TermsRequest(), timeout=TIMEOUT))
    return made


async def countersigned(to: grpc.aio.Channel, query: bytes) -> list[wire.Deal]:
    stub: Any = services.DecidingStub(to)
    call = stub.Countersign(wire.CountersignRequest(query=query), timeout=TIMEOUT)

    async def all_of_it() -> list[wire.Deal]:
        return [deal async for deal in call]

    return await reply_of(all_of_it())


async def decided(
    to: grpc.aio.Channel, head: wire.DecideHead, receipts: list[wire.Receipt], at_a_time: int = 3
) -> wire.Decision:
    async def parts() -> Any:
        yield wire.DecideRequest(head=head)
        for start in range(0, len(receipts), at_a_time):
            yield wire.DecideRequest(receipts=wire.Receipts(receipts=receipts[start : start + at_a_time]))

    stub: Any = services.DecidingStub(to)
    made: wire.Decision = await reply_of(stub.Decide(parts(), timeout=TIMEOUT))
    return made


def members(place: Site, count: int) -> dict[bytes, Phone]:
    """New phones that have joined, by their ids."""
    with place.enrolment.blocking_channel() as channel:
        return {phone.id: phone for phone in joined(channel, place.invitations(count, days=9999))}


async def contributions(
    to: grpc.aio.Channel, phones: dict[bytes, Phone], name: str
) -> tuple[Query, PublicKey, list[list[Contribution]]]:
    """A new query, and the contributions of its cohorts."""
    key = PublicKey.from_bytes((await terms_of(to)).public_key, simulation=True)
    query = replace(QUERY, id=name, population=POPULATION, key_id=key.key_id.hex())
    deals = await countersigned(to, query.to_bytes())
    query_key = deals[0].agreement_key
    cohorts: list[list[Contribution]] = [[] for _ in range(query.cohorts)]
    for dealt in (phone for deal in deals for phone in deal.phones):
        phone = phones[dealt.phone]
        assert dealt.verify_key == phone.signing.public
        cohorts[dealt.cohort].append(phone.contribution(query, key, query_key, dealt.cohort, (2, 300, 1)))
    return query, key, cohorts
