"""A key server as a process of its own, as its operator runs it, and who calls it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.protocol import signed_by, statements
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel, channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from tests.keys.phones import PASSPHRASE, QUERY, Contribution, Phone

PROGRAM = Path(sys.executable).with_name("reticent")
TIMEOUT = 60.0
POPULATION = 12
LIMITS = ("--min-honest", "2", "--min-cohort-share", "0.3", "--min-liars-share", "0")
LISTENING = re.compile(r"listening for (phones|the aggregation server) at (\S+)")


@dataclass
class Site:
    """A folder with certificates, a passphrase, and a key server's own folder.

    Args:
        path: Where all is.
    """

    path: Path
    process: subprocess.Popen[str] | None = None
    addresses: dict[str, str] = field(default_factory=dict)
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        create(self.path / "certs", hosts=["localhost", "127.0.0.1"], analysts=["ann"])
        self.passphrase_file.write_text(f"{PASSPHRASE}\n")
        self.passphrase_file.chmod(0o600)

    @property
    def passphrase_file(self) -> Path:
        return self.path / "passphrase"

    def run(self, *arguments: str, code: int = 0, inherit: bool = False) -> str:
        """Run `reticent keys` with these arguments, with or without the environment. Returns its output."""
        done = subprocess.run(
            [PROGRAM, "keys", *arguments],
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env=dict(os.environ) if inherit else self._environment(),
        )
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def start(self, *arguments: str) -> None:
        """Start the server, and wait until it listens."""
        options = ("--phones", "127.0.0.1:0", "--decisions", "127.0.0.1:0", "--passphrase-file", "passphrase")
        with (self.path / "log").open("a") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "keys", "serve", *options, "--key-bits", "2048", "--simulation", *LIMITS, *arguments],
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment(),
            )
        too_long = threading.Timer(TIMEOUT, self.process.kill)
        too_long.start()
        try:
            self.addresses = dict(self._announced(2))
        finally:
            too_long.cancel()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the server; its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(TIMEOUT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    @property
    def log(self) -> str:
        return (self.path / "log").read_text()

    def _announced(self, count: int) -> Iterator[tuple[str, str]]:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line)
            if found := LISTENING.match(line):
                yield found[1], found[2]
                count -= 1
            if not count:
                return
        raise AssertionError(self.log)

    def _environment(self) -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if not key.startswith("RETICENT_")} | {"COLUMNS": "80"}


@contextmanager
def site(path: Path) -> Iterator[Site]:
    made = Site(path)
    try:
        yield made
    finally:
        if made.process is not None:
            made.process.kill()
            made.stop()


def as_phone(site: Site) -> grpc.aio.Channel:
    authority = Certificate.load(site.path / "certs", "keys").authority
    return channel(site.addresses["phones"], channel_credentials(authority))


def as_party(site: Site, name: str) -> grpc.aio.Channel:
    """To the listener for decisions, with somebody's certificate."""
    certificate = Certificate.load(site.path / "certs", name)
    return channel(site.addresses["the aggregation server"], certificate.channel_credentials())


async def standing(to: grpc.aio.Channel) -> wire.Terms:
    stub: Any = services.DecidingStub(to)
    made: wire.Terms = await reply_of(stub.Standing(wire.StandingRequest(), timeout=TIMEOUT))
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


def invitations(place: Site, count: int, folder: str = "invitations") -> list[Invitation]:
    output = place.run(
        "invite", "-n", str(count), "-o", folder, "--key-server", place.addresses["phones"], "--days", "9999"
    )
    return [Invitation.from_text((place.path / line).read_text()) for line in output.splitlines()]


async def joined(place: Site, count: int) -> dict[bytes, Phone]:
    """Phones that have joined by their invitations, knowing nothing else."""
    inputs = invitations(place, count, f"invitations {count}")
    found = [Phone(each.token) for each in inputs]
    async with channel(inputs[0].key_server, channel_credentials(inputs[0].authority.encode())) as to:
        stub: Any = services.EnrolmentStub(to)
        for phone, invitation in zip(found, inputs, strict=True):
            phone.membership = await reply_of(stub.Join(phone.joining(), timeout=TIMEOUT))
            made = phone.membership
            statement = statements.membership(made.phone, phone.signing.public, made.expires)
            assert signed_by(invitation.identity, statement, made.signature)
    return {phone.id: phone for phone in found}


async def contributions(
    to: grpc.aio.Channel, phones: dict[bytes, Phone], name: str
) -> tuple[Query, PublicKey, list[list[Contribution]]]:
    """A new query, and the contributions of its cohorts."""
    key = PublicKey.from_bytes((await standing(to)).public_key, simulation=True)
    query = replace(QUERY, id=name, population=POPULATION, key_id=key.key_id.hex())
    deals = await countersigned(to, query.to_bytes())
    query_key = deals[0].agreement_key
    cohorts: list[list[Contribution]] = [[] for _ in range(query.cohorts)]
    for dealt in (phone for deal in deals for phone in deal.phones):
        phone = phones[dealt.phone]
        assert dealt.verify_key == phone.signing.public
        cohorts[dealt.cohort].append(phone.contribution(query, key, query_key, dealt.cohort, (2, 300, 1)))
    return query, key, cohorts
