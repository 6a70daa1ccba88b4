"""Several processes of `reticent agg serve` over one PostgreSQL database, of which one is killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

from reticent.console.program import main
from reticent.privacy import Query
from reticent.protocol.channels import channel, channel_credentials
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg import SqlStore
from tests.agg.network import Deciding
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone
from tests.parties.waiting import until

pytestmark = pytest.mark.slow

PHONES = 90
PROCESSES = 3
KILLED_AFTER = 10
"""Contributions, of those that the process which is killed is sent."""
ATTEMPTS = 200
DEADLINE = 120.0


class ServerProcess:
    """A process of `reticent agg serve`, in a folder of its own as on a machine of its own."""

    def __init__(self, folder: Path, certs: Path, database: str, key_server: str) -> None:
        command = [sys.executable, "-m", "reticent", "agg", "serve", "--folder", str(folder), "--certs", str(certs)]
        command += ["--database", database, "--key-server", key_server, "--identity", KeyServer.identity.public.hex()]
        command += ["--phones", "127.0.0.1:0", "--analysts", "127.0.0.1:0", "--metrics", "", "--simulation"]
        self._log = (folder.parent / f"{folder.name}.log").open("w")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in range(2)]
        self.phones, self.analysts = (line[-1] for line in lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


@contextlib.asynccontextmanager
async def connected(certs: Path, servers: Sequence[ServerProcess]) -> AsyncIterator[list[grpc.aio.Channel]]:
    credentials = channel_credentials(Certificate.load(certs, "ann").authority)
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(channel(each.phones, credentials)) for each in servers]


async def contribute(channels: Sequence[grpc.aio.Channel], query: Query, number: int) -> None:
    """Send a phone's contribution until a server acknowledges it: first to one of all, then to the others."""
    message = Phone(number).contribution(query)
    for attempt in range(ATTEMPTS):
        stub = counting_pb2_grpc.CollectingStub(channels[(number + attempt) % len(channels)])
        try:
            await stub.Contribute(message, timeout=20)
        except grpc.aio.AioRpcError as error:
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
                raise
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError(f"phone {number} was not acknowledged")


def test_each_contribution_to_three_processes_is_counted_once_though_one_is_killed(
    tmp_path: Path, certs: Path, postgres: str
) -> None:
    async def count() -> None:
        keys = Deciding(certs)
        async with keys.listener() as listener:
            servers = [
                await asyncio.to_thread(ServerProcess, tmp_path / f"{number}", certs, postgres, listener.address)
                for number in range(PROCESSES)
            ]
            try:
                query = aggregation.make_query(population=PHONES, enough=PHONES)
                credentials = Certificate.load(certs, "ann").channel_credentials()
                async with channel(servers[1].analysts, credentials) as way:
                    analyst = counting_pb2_grpc.CountingStub(way)
                    await analyst.GetTerms(wire.TermsRequest())
                    await analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()))
                    async with connected(certs, servers) as channels:
                        phones = [asyncio.create_task(contribute(channels, query, each)) for each in range(PHONES)]
                        await until(lambda: sum(each.done() for each in phones[::PROCESSES]) >= KILLED_AFTER)
                        servers[0].kill()
                        await asyncio.gather(*phones)
                        # The same phones again: none of them is counted twice.
                        await asyncio.gather(*(contribute(channels[1:], query, each) for each in range(PHONES)))
                    await until(lambda: bool(keys.heads), within=60)
                    assert aggregation.phones_in(keys.heads[0]) == set(range(PHONES))

                    async def status() -> wire.QueryStatus:
                        return await analyst.Status(wire.StatusRequest(id=query.id))

                    deciding = [await status()]
                    while deciding[-1].phase != wire.DECIDED and len(deciding) < ATTEMPTS:
                        await asyncio.sleep(0.05)
                        deciding.append(await status())
                    assert deciding[-1].phase == wire.DECIDED
                    assert [each.contributors for each in deciding[-1].cohorts] == [PHONES]
            finally:
                for each in servers:
                    each.kill()

    asyncio.run(asyncio.wait_for(count(), DEADLINE))
    with contextlib.closing(SqlStore(postgres)) as store, store.database.reading() as run:
        shards = run("SELECT shard, contributors FROM sums").fetchall()
    assert len(shards) == PROCESSES
    assert sum(contributors for _, contributors in shards) == PHONES


def test_an_operator_works_on_the_database(
    tmp_path: Path, postgres: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server = aggregation.opened(postgres, aggregation.Time())
    query = aggregation.collecting(server, aggregation.make_query())
    server.collection.contribute([Phone(0).contribution(query)])
    server.close()
    on = ["--database", postgres]
    assert main(["agg", "status", *on]) == 0
    assert "1 of 6 phones" in capsys.readouterr().out
    assert main(["agg", "migrate", *on]) == 0
    assert capsys.readouterr().out == "the database has version 2\n"
    assert main(["agg", "backup", "copy", *on]) == 2
    assert "copy it with pg_dump, and run `reticent agg restored`" in capsys.readouterr().err
    assert main(["agg", "restored", *on]) == 0
    assert capsys.readouterr().out == f"{query.id}  aborted\n"
    assert main(["agg", "abort", "nothing", *on]) == 3
    assert main(["agg", "prune", *on, "--days", "0"]) == 0
    wrong = postgres.replace("correct", "secret")
    assert main(["agg", "status", "--database", wrong]) == 7
    assert main(["agg", "status", "--database", wrong.replace("postgresql", "mysql")]) == 2
    captured = capsys.readouterr()
    assert "password authentication failed" in captured.err
    assert "secret" not in captured.err + captured.out
