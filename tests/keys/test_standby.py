"""Two key servers on one folder and one database: one serves, the other takes over; they decide once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.invitation import Invitation
from reticent.times import milliseconds
from reticent.v1 import counting_pb2 as wire
from reticent_keys import KeysError, SqlJournal
from reticent_sim.engine.addresses import free_address
from reticent_sim.engine.endpoint import Endpoint
from reticent_sim.engine.process import ServerProcess
from tests.keys.processes import POPULATION, Site, contributions, countersigned, decided
from tests.keys.test_kills import first_replies
from tests.parties.decision_requests import decide, honest, request, summed
from tests.parties.key_server import LocalKeyServer, dealt, refused
from tests.parties.phone import Phone, joined

pytestmark = pytest.mark.slow  # real processes, connections and databases, some seconds in all

TAKEN_OVER = 10.0
"""Seconds in which a standby serves, which takes a second and the time to start."""


@contextmanager
def pair_of(path: Path, *options: str) -> Iterator[tuple[Site, ServerProcess]]:
    """A key server that serves, and a standby."""
    with Site(path, *options) as place:
        place.keys.start()
        standby = ServerProcess(
            "standby",
            path,
            command=lambda: [*place._keys_command(), "--standby"],
            endpoints=(place.deciding, place.enrolment),
        )
        standby.spawn()
        try:
            _wait(lambda: "standby: another process serves" in standby.log.read_text())
            yield place, standby
        finally:
            if standby.is_running:
                standby.kill()


@contextmanager
def standby_elsewhere(place: Site) -> Iterator[tuple[ServerProcess, Endpoint]]:
    """A standby at addresses of its own, as on another machine, and where it decides."""
    phones, decisions = (Endpoint(free_address(), place.deciding.credentials) for _ in range(2))
    own = [f"--phones={phones.address}", f"--decisions={decisions.address}"]
    standby = ServerProcess(
        "standby",
        place.folder,
        command=lambda: [*_without(place._keys_command(), "--phones", "--decisions"), "--standby", *own],
        endpoints=(decisions, phones),
    )
    standby.spawn()
    try:
        _wait(lambda: "standby: another process serves" in standby.log.read_text())
        yield standby, decisions
    finally:
        if standby.is_running:
            standby.kill()


def _without(command: list[str | Path], *options: str) -> list[str | Path]:
    """A command without some options, which have a value each."""
    pairs = zip([None, *command], command, strict=False)
    return [part for before, part in pairs if before not in options and part not in options]


def _end_connections(url: str) -> None:
    """End all connections to a database, as PostgreSQL does when a machine is gone."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _wait(is_so: Any) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_standby_takes_over_and_repeats_what_was_decided(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    options = () if kind == "sqlite" else ("--database", request.getfixturevalue("postgres"))
    with pair_of(tmp_path, *options) as (place, standby):
        before = asyncio.run(first_replies(place, members_of(place, *options)))
        place.keys.kill()
        begun = time.monotonic()
        standby.wait(TAKEN_OVER)
        assert time.monotonic() - begun < TAKEN_OVER

        async def again() -> None:
            async with place.deciding.channel() as to:
                assert await decided(to, before.head, before.receipts) == before.made
                assert await countersigned(to, before.query.to_bytes()) == before.deals
                with pytest.raises(Refused, match="ALREADY_DECIDED"):
                    await decided(to, wire.DecideHead(query=before.query.digest), [])

        asyncio.run(again())
        assert '"decided": 1' in place.command("status", "--json", *options)


@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_standby_that_changes_the_level_of_its_log_takes_over(tmp_path: Path, how: signal.Signals) -> None:
    with pair_of(tmp_path) as (place, standby):
        os.kill(standby.pid, how)
        _wait(lambda: "the log level is" in standby.log.read_text())
        place.keys.kill()
        standby.wait(TAKEN_OVER)


def test_a_standby_that_is_stopped_exits_in_good_order(tmp_path: Path) -> None:
    with pair_of(tmp_path) as (_, standby):
        standby.stop()
        assert "Traceback" not in standby.log.read_text()


def members_of(place: Site, *options: str) -> dict[bytes, Phone]:
    """New phones, invited through the database of the server."""
    place.command("invite", "-n", str(POPULATION), "-o", "invited", "--certs", str(place.certs), *options)
    invitations = [Invitation.from_text(path.read_text()) for path in (place.folder / "invited").iterdir()]
    with place.enrolment.blocking_channel() as channel:
        return {phone.id: phone for phone in joined(channel, invitations)}


def test_a_server_that_loses_its_claim_ends_by_itself(tmp_path: Path, postgres: str) -> None:
    with pair_of(tmp_path, "--database", postgres) as (place, standby):
        _end_connections(postgres)
        _wait(lambda: place.keys.exit_status is not None)
        assert place.keys.exit_status == 5
        assert "another process may serve from it now" in place.keys.log.read_text()
        standby.wait(TAKEN_OVER)


def test_a_server_that_was_frozen_while_a_standby_took_over_decides_nothing_again(
    tmp_path: Path, postgres: str
) -> None:
    options = ("--database", postgres)
    with Site(tmp_path, *options) as place:
        place.keys.start()
        with standby_elsewhere(place) as (standby, elsewhere):
            asyncio.run(_frozen_and_back(place, standby, elsewhere, members_of(place, *options), postgres))
        assert '"decided": 2' in place.command("status", "--json", *options)


async def _frozen_and_back(
    place: Site, standby: ServerProcess, elsewhere: Endpoint, phones: dict[bytes, Phone], url: str
) -> None:
    async with place.deciding.channel() as to, elsewhere.channel() as there:
        query, key, cohorts = await contributions(to, phones, "frozen")
        asked = [
            request(query, cohort, key, summed(key, each), [every.receipt for every in each])
            for cohort, each in enumerate(cohorts)
        ]
        first = await decided(to, *asked[0])
        os.kill(place.keys.pid, signal.SIGSTOP)
        burns = [wire.DecideHead(query=query.digest, cohort=cohort) for cohort in (0, 1)]
        late = [asyncio.create_task(decided(to, head, [])) for head in burns]
        await asyncio.to_thread(_end_connections, url)
        await asyncio.to_thread(standby.wait, 2 * TAKEN_OVER)
        assert await decided(there, *asked[0]) == first
        second = await decided(there, *asked[1])
        assert second.outcome == wire.RELEASED
        os.kill(place.keys.pid, signal.SIGCONT)
        for error in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(error, Unreachable) or (
                isinstance(error, Refused) and error.refusal in {Refusal.ALREADY_DECIDED, Refusal.UNAVAILABLE}
            )
        await asyncio.to_thread(_wait, lambda: place.keys.exit_status is not None)
        assert place.keys.exit_status == 5
        assert [await decided(there, *each) for each in asked] == [first, second]


def test_two_servers_that_are_alive_at_a_time_decide_once(postgres: str) -> None:
    with LocalKeyServer(postgres) as one:
        one.enrolled(20)
        query = one.query()
        inputs = one.contributions(query, 0)
        with LocalKeyServer(postgres, identity=one.identity, pairs=one.pairs, query_keys=one.query_keys) as two:
            requests = [(each, *honest(query, 0, one.key, inputs[place:])) for place, each in enumerate((one, two))]
            sent = [(each, head, list(receipts)) for each, head, receipts in requests]
            barrier = threading.Barrier(2)
            made: list[tuple[int, wire.Decision]] = []

            def race(number: int) -> None:
                each, head, receipts = sent[number]
                begun = each.server.decider.begin(head)
                each.server.decider.add(begun, receipts)
                barrier.wait(30)
                try:
                    made.append((number, each.server.decider.decide(begun)))
                except Refused as error:
                    assert error.refusal is Refusal.ALREADY_DECIDED  # noqa: PT017  # of another thread

            threads = [threading.Thread(target=race, args=(number,)) for number in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            [(winner, decision)] = made
            for each in (one, two):
                assert decide(each.server, *sent[winner][1:]) == decision
                refused(Refusal.ALREADY_DECIDED, lambda each=each: decide(each.server, *sent[1 - winner][1:]))  # type: ignore[misc]


def test_a_database_from_yesterday_decides_nothing_that_was_asked_before(postgres: str, tmp_path: Path) -> None:
    """After `rotate --retire`, as the refusal of a backup says."""
    with LocalKeyServer(postgres) as local:
        local.enrolled(20)
        query, key = local.query(), local.key
        inputs = local.contributions(query, 0)
        with pytest.raises(KeysError, match="pg_dump; after a restore, run `reticent keys rotate --retire`"):
            local.server.journal.backup(tmp_path / "copy", 0)
        with closing(SqlJournal(postgres)) as restored:  # before the decision that it lacks
            restored.retire_keys()
        local.restart()
        refused(Refusal.KEY_RETIRED, lambda: decide(local.server, *honest(query, 0, key, inputs)))
        refused(Refusal.KEY_RETIRED, lambda: decide(local.server, *request(query, 0, key, [], [])))
        assert len(dealt(local.server, local.query(id="fresh"))) == 20
        states = [each.state for each in local.server.journal.summary(milliseconds(local.clock.now())).keys]
        assert states == ["ACTIVE", "RETIRED"]
