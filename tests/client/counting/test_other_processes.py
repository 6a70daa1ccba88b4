"""A phone that runs while other processes write to its store: it follows them without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from reticent.privacy import Cost
from reticent.storage.sql import InUse
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participation, Phone, PhoneStore
from reticent_client.counting import runner, session
from reticent_client.counting.consent import AppReports
from reticent_client.counting.runner import COUNTING
from reticent_client.counting.session import Round
from reticent_client.counting.settings import kept_budget, kept_participation
from reticent_client.errors import CounterNotAllowed, Reason
from tests.client.counting.command import invitation, started, told, within
from tests.client.counting.network import Network
from tests.client.counting.world import Servers, query

LIMIT = 30.0  # seconds
ROUND = dt.timedelta(milliseconds=200)
ROUNDS = 3 * ROUND.total_seconds()
"""Seconds in which a phone makes some rounds."""
REPORTS = AppReports(counters={"visits": (0, 3)})


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LOOK_INTERVAL", 0.05)
    monkeypatch.setattr(runner, "CLAIM_INTERVAL", 0.05)
    monkeypatch.setattr(session, "MIN_INTERVAL", ROUND)
    monkeypatch.setattr(session, "DEFAULT_INTERVAL", ROUND)


@contextlib.asynccontextmanager
async def running(
    network: Network, folder: Path, rounds: list[Round], participation: Participation | None = None
) -> AsyncIterator[Phone]:
    """A phone that is not enrolled, among servers that let it make five rounds a second."""
    network.again_in_ms = ROUND // dt.timedelta(milliseconds=1)
    with contextlib.closing(PhoneStore(folder / "phone.db")) as store:
        phone = Phone(
            store=store,
            participation=participation,
            counters=lambda _: {"visits": 1.0},
            simulation=True,
            on_round=rounds.append,
        )
        async with network.listening(folder / "certs"), phone:
            yield phone


@contextlib.asynccontextmanager
async def another(folder: Path) -> AsyncIterator[Phone]:
    """The same phone in a second opening of its file, as another process has it; it does not run."""
    with contextlib.closing(PhoneStore(folder / "phone.db")) as store:
        yield Phone(store=store)


async def _between_rounds(action: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(LIMIT):
        while True:
            with contextlib.suppress(InUse):
                return await action()
            await asyncio.sleep(0.01)


def test_a_running_phone_follows_joining_leaving_and_joining_elsewhere(tmp_path: Path) -> None:
    async def live() -> None:
        network, other, rounds = Network(Servers()), Network(Servers()), list[Round]()
        network.queries, other.queries = [query()], [query(id="elsewhere")]
        async with running(network, tmp_path, rounds), other.listening(tmp_path / "other"), another(tmp_path) as phone:
            await phone.counting.join(network.invitation)
            await _until(lambda: network.calls["Contribute"] == 1 and bool(rounds))
            await _between_rounds(phone.counting.leave)
            announced = network.calls["Announcements"]
            network.outcome = wire.RELEASED
            await _until(lambda: any(done.decided for done in rounds))  # which it still waits for
            seen = len(rounds)
            await asyncio.sleep(ROUNDS)
            assert len(rounds) == seen
            assert network.calls["Announcements"] == announced
            await phone.counting.join(other.invitation)
            await _until(lambda: other.calls["Contribute"] == 1)
        assert network.calls["Contribute"] == 1

    within(live())


def test_a_running_phone_follows_the_policy_that_another_process_keeps(tmp_path: Path) -> None:
    async def live() -> None:
        network, rounds = Network(Servers()), list[Round]()
        async with running(network, tmp_path, rounds, participation=Participation()) as phone, another(tmp_path) as it:
            await phone.counting.join(network.invitation)
            await _until(lambda: bool(rounds))
            kept_participation(it.store, Participation(queries=(), apps={"fitness": REPORTS}))
            network.queries = [query()]
            await _until(lambda: bool(rounds[-1].declined))
            assert [each.reason for each in rounds[-1].declined] == [Reason.NOT_ALLOWED]
            phone.report("fitness", {"visits": 2})
            kept_participation(it.store, Participation())
            await _until(lambda: network.calls["Contribute"] == 1)
            with pytest.raises(CounterNotAllowed):
                phone.report("fitness", {"visits": 2})

    within(live())


def test_a_round_waits_for_another_process_that_takes_part(tmp_path: Path) -> None:
    async def live() -> None:
        network, rounds = Network(Servers()), list[Round]()
        async with running(network, tmp_path, rounds) as phone, another(tmp_path) as it:
            await phone.counting.join(network.invitation)
            await _until(lambda: bool(rounds))
            async with _claimed(it.store):
                seen = len(rounds)
                await asyncio.sleep(ROUNDS)
                assert len(rounds) == seen
                with pytest.raises(InUse):
                    await phone.counting.leave()
            await _until(lambda: len(rounds) > seen)

    within(live())


@contextlib.asynccontextmanager
async def _claimed(store: PhoneStore) -> AsyncIterator[None]:
    with contextlib.ExitStack() as stack:

        async def claim() -> None:
            stack.enter_context(store.claim(COUNTING))

        await _between_rounds(claim)
        yield


@pytest.mark.slow
def test_the_command_that_runs_a_phone_follows_the_other_commands(tmp_path: Path) -> None:
    """`join`, `contribute` and `leave`, each a process of its own beside the one that runs."""

    async def live() -> None:
        network = Network(Servers())
        network.again_in_ms = 1000
        network.queries = [query()]
        async with network.listening(tmp_path / "certs"):
            (tmp_path / "counters.csv").write_text("name,value\nvisits,1\nswims,1\n")
            (tmp_path / "policy.toml").write_text('queries = ["gym*"]\n')
            running = await started(tmp_path, "run", "--counters", "counters.csv", "--simulation")
            assert running.stdout is not None
            assert await running.stdout.readline() == b"serving at unix:phone.sock, without a policy\n"
            invitation(tmp_path, network.invitation)
            await told(tmp_path, "join", "invitation.json", "--budget-epsilon", "2")
            assert await running.stdout.readline() == b"gym: contributed at (1, 1e-06); acknowledged\n"
            out, _ = await told(tmp_path, "contribute", "--participation", "policy.toml", "--simulation", "visits=1")
            assert out == "gym: contributed at (1, 1e-06); acknowledged\n"
            network.queries = [query(), query(id="gym2"), query(id="pool")]
            lines = {await running.stdout.readline() for _ in range(2)}
            assert lines == {
                b"gym2: contributed at (1, 1e-06); acknowledged\n",
                b"pool: declined for good; the query name 'pool' is not allowed: allowed are 'gym*'\n",
            }
            network.outcome = wire.RELEASED
            assert (await told(tmp_path, "leave"))[0] == "left\n"
            announced = network.calls["Announcements"]
            for name in (b"gym", b"gym2"):
                assert await running.stdout.readline() == (
                    name + b": contributed at (1, 1e-06); released: spent (25 contributions)\n"
                )
            await asyncio.sleep(2)
            assert network.calls["Announcements"] == announced
            running.send_signal(signal.SIGTERM)
            assert await running.wait() == 0
            await running.communicate()
        assert network.calls["Contribute"] == 2

    within(live())


def test_another_budget_than_the_stored_one_is_refused_as_the_phone_begins(tmp_path: Path) -> None:
    async def begin(budget: Cost) -> None:
        with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
            async with Phone(store=store, budget=budget):
                pass

    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        kept_budget(store, 4.0, 1e-5)
    asyncio.run(begin(Cost(4.0, 1e-5)))
    with pytest.raises(ValueError, match="this phone's budget is epsilon = 4"):
        asyncio.run(begin(Cost(1.0, 1e-6)))


def test_what_ends_the_counting_of_a_phone_is_raised_when_the_phone_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk fails")

    async def live() -> None:
        network, rounds = Network(Servers()), list[Round]()
        async with running(network, tmp_path, rounds) as phone:
            await phone.counting.join(network.invitation)
            await _until(lambda: bool(rounds))
            monkeypatch.setattr(runner, "take_part", fail)
            await asyncio.sleep(ROUNDS)

    with pytest.raises(OSError, match="the disk fails"):
        within(live())
