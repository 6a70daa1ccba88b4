"""Each metric of the real servers moves when its event happens; names that files mention are in test_operations."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from reticent.paillier import PublicKey
from reticent.privacy import Query
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub, EnrolmentStub
from reticent_sim.engine import ServerPair, ServerProcess, launched
from tests.parties.phone import Phone
from tests.parties.queries import visits
from tests.parties.waiting import block_until
from tests.system.deployment import START, join
from tests.system.operations import scraped

pytestmark = pytest.mark.slow  # real servers

PHONES = 6
DAY = dt.timedelta(days=1)
OPTIONS = ("--min-honest", "2", "--min-liars-share", "0", "--membership-days", "30")


class Metrics:
    """The metrics of one server."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    @property
    def page(self) -> str:
        *_, address = re.findall(r"^listening for Prometheus at (\S+)$", self._process.log.read_text(), re.MULTILINE)
        return scraped(address)

    def value(self, series: str) -> float | None:
        """The value of a series, such as `a_total` or `a{b="c"}`."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.page, re.MULTILINE)
        return None if found is None else float(found[1])

    def wait_for(self, series: str, wanted: float | None) -> None:
        """Return when a series has a value; those of the store are some seconds old."""
        block_until(lambda: self.value(series) == wanted, f"{series} {wanted}: {self.value(series)}", within=20.0)

    @contextlib.contextmanager
    def grows(self, *names: str, by: float = 1) -> Iterator[None]:
        """Series that grow by so much because of what happens inside the block."""
        before = {name: self.value(name) or 0 for name in names}
        yield
        for name in names:
            self.wait_for(name, before[name] + by)


class Count:
    """A query of phones that contribute one by one."""

    def __init__(self, servers: ServerPair, phones: list[Phone], stack: contextlib.ExitStack) -> None:
        self.phones = phones
        self.way = CollectingStub(stack.enter_context(servers.collecting.blocking_channel()))
        self.analyst = CountingStub(stack.enter_context(servers.counting.blocking_channel()))
        terms = self.analyst.GetTerms(wire.TermsRequest(), timeout=30)
        self.key = PublicKey.from_bytes(terms.public_key, simulation=True)

    def announce(self) -> Query:
        query = visits(self.key, PHONES, id="visits", min_contributions=4, enough=PHONES, closes_after=86400)
        self.analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()), timeout=30)
        return query

    def contribute(self, query: Query, number: int) -> None:
        phone = self.phones[number]
        [found] = self.way.Announcements(wire.AnnouncementsRequest(phone=phone.id), timeout=30).announcements
        message = phone.message(query, self.key, found.agreement_key, found.cohort, (1,))
        self.way.Contribute(message, timeout=30)


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(grpc.RpcError):
        call()


def test_each_metric_moves_when_its_event_happens(tmp_path: Path) -> None:
    with (
        launched(ServerPair(tmp_path, clock=START, keys_options=OPTIONS)) as servers,
        contextlib.ExitStack() as stack,
    ):
        keys, agg = Metrics(servers.keys), Metrics(servers.aggregation)
        first = membership(servers, keys)
        phones = [first, *join(servers, servers.invitations(PHONES - 1))]
        keys.wait_for("reticent_phones_enrolled", PHONES)
        count = Count(servers, phones, stack)
        calls(servers, count, agg)
        query = count.announce()
        agg.wait_for('reticent_open_queries{phase="collecting"}', 1)
        agg.wait_for('reticent_query_receipts_needed{query="visits"}', query.min_contributions)
        keys.wait_for("reticent_queries_undecided", 1)
        contributions(servers, count, query, agg)
        decisions(servers, count, query, keys, agg)
        key_pairs(servers, keys)
        servers.keys.kill()
        refused(
            lambda: count.analyst.GetTerms(wire.TermsRequest(), timeout=30)
        )  # or the next call, half a minute later
        agg.wait_for("reticent_key_server_up", 0)
        servers.keys.start()
        agg.wait_for("reticent_key_server_up", 1)


def membership(servers: ServerPair, keys: Metrics) -> Phone:
    """A phone that renews after 10 of 30 days is 15 days ahead: by its clock, 25 of 45 days had passed."""
    [phone] = join(servers, servers.invitations(1))
    keys.wait_for("reticent_phones_enrolled", 1)
    servers.keys.move_clock(START + 10 * DAY)
    servers.aggregation.move_clock(START + 10 * DAY)
    skew = 'reticent_phone_clock_skew_seconds_bucket{le="%s"}'
    with servers.enrolment.blocking_channel() as channel:
        stub = EnrolmentStub(channel)
        timed = 'reticent_store_seconds_count{method="change_phone"}'
        with keys.grows("reticent_phone_clock_skew_seconds_count", skew % "2.592e+06", timed):
            stub.Renew(phone.renewing(), timeout=30)
        assert keys.value(skew % "604800.0") == 0
        with keys.grows('reticent_refusals_total{code="UNKNOWN_PHONE",listener="phones"}'):
            stranger = Phone(bytes(16), membership=wire.Membership(phone=bytes(16), expires=1))
            refused(lambda: stub.Renew(stranger.renewing(), timeout=30))
    return phone


def calls(servers: ServerPair, count: Count, agg: Metrics) -> None:
    """A call that sends nothing, and one that is refused."""
    with agg.grows('reticent_refusals_total{code="MALFORMED",listener="phones"}'):
        refused(lambda: count.way.Contribute(wire.Contribution(), timeout=30))
    silent = threading.Event()

    def nothing() -> Iterator[bytes]:
        silent.wait(30)
        yield b""

    with servers.collecting.blocking_channel() as channel:
        method: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/reticent.v1.Collecting/Contribute"
        )
        call = method(nothing(), timeout=30)
        agg.wait_for('reticent_calls_waiting{listener="phones"}', 1)
        agg.wait_for('reticent_calls{listener="phones"}', 1)
        silent.set()
        call.cancel()
    agg.wait_for('reticent_calls_waiting{listener="phones"}', 0)


def contributions(servers: ServerPair, count: Count, query: Query, agg: Metrics) -> None:
    stored = 'reticent_store_seconds_count{method="put_contributions"}'
    with agg.grows("reticent_contributions_total", "reticent_batch_size_count", stored):
        count.contribute(query, 0)
    agg.wait_for('reticent_query_receipts{query="visits"}', 1)
    with ThreadPoolExecutor(3) as threads:
        with contextlib.closing(sqlite3.connect(servers.database, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")  # no batch is written meanwhile
            sent = [threads.submit(count.contribute, query, number) for number in (1, 2, 3)]
            block_until(lambda: (agg.value("reticent_contributions_waiting") or 0) >= 1, within=8.0)
            assert (agg.value('reticent_calls{listener="phones"}') or 0) >= 2
            database.execute("ROLLBACK")
        for each in sent:
            each.result()
    agg.wait_for("reticent_contributions_waiting", 0)
    agg.wait_for("reticent_contributions_total", 4)


def decisions(servers: ServerPair, count: Count, query: Query, keys: Metrics, agg: Metrics) -> None:
    """The key server sleeps while the query closes; another process takes the lease of the cohort."""
    now = START + 10 * DAY
    os.kill(servers.keys.pid, signal.SIGSTOP)
    try:
        with agg.grows("reticent_close_seconds_count"):
            for number in (4, 5):
                count.contribute(query, number)
        agg.wait_for('reticent_open_queries{phase="closing"}', 1)
        agg.wait_for('reticent_open_queries{phase="collecting"}', 0)
        agg.wait_for('reticent_query_receipts{query="visits"}', None)
        agg.wait_for("reticent_decisions_undelivered", 1)
        with contextlib.closing(sqlite3.connect(servers.database, isolation_level=None, timeout=10)) as database:
            block_until(lambda: database.execute("UPDATE leases SET owner = 'another'").rowcount == 1)
        with agg.grows("reticent_leases_lost_total"):
            servers.aggregation.move_clock(now + dt.timedelta(seconds=25))
        agg.wait_for("reticent_oldest_undecided_cohort_seconds", 25)
    finally:
        os.kill(servers.keys.pid, signal.SIGCONT)
    agg.wait_for("reticent_decisions_undelivered", 0)
    agg.wait_for("reticent_oldest_undecided_cohort_seconds", 0)
    agg.wait_for('reticent_open_queries{phase="closing"}', 0)
    agg.wait_for("reticent_decide_seconds_count", 1)
    keys.wait_for("reticent_decide_seconds_count", 1)
    keys.wait_for('reticent_decisions_total{outcome="released"}', 1)
    keys.wait_for("reticent_queries_undecided", 0)


def key_pairs(servers: ServerPair, keys: Metrics) -> None:
    options = ("--folder", servers.keys_folder, "--passphrase-file", servers.folder / "passphrase")
    assert keys.value('reticent_keys{state="active"}') == 1
    with keys.grows('reticent_keys{state="destroyed"}'):
        servers.run("keys", "rotate", *options, "--key-bits", "1024", "--simulation")
