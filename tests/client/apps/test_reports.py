"""Apps report what they count, within what the user allows, and learn nothing of queries."""

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.clock import ManualClock
from reticent.console.program import main
from reticent.v1 import phone_pb2
from reticent_client import Broker, Connection, Participation, Phone, PhoneStore, connect
from reticent_client.counting.reports import Reports
from reticent_client.counting.settings import PARTICIPATION
from reticent_client.errors import AppRefused
from tests.client.apps.phones import at, calling, limited, status
from tests.client.counting.world import query

CODE = grpc.StatusCode
POLICY = Participation.from_toml("""
[apps.fitness]
counters = { visits = [0, 3], swims = [-2, 2] }
max_reports_per_hour = 5

[apps.clock]
counters = { sleep = [0, 24] }
""")


class Home:
    """A phone without a policy for contexts, and its broker."""

    def __init__(self, phone: Phone, broker: Broker, clock: ManualClock) -> None:
        self.phone = phone
        self.broker = broker
        self.clock = clock

    @property
    def counters(self) -> dict[str, float]:
        return Reports(self.phone.store, self.clock.now).counters(POLICY)

    @contextlib.contextmanager
    def app(self, name: str = "fitness") -> Any:
        with connect(self.broker.address, self.phone.apps.add(name)) as connection:
            yield connection


@contextlib.asynccontextmanager
async def living(
    store: PhoneStore | None = None, participation: Participation | None = POLICY
) -> AsyncGenerator[Home, None]:
    clock = ManualClock(at("12:00"))
    async with Phone(store=store, clock=clock, participation=participation) as phone, Broker(phone) as broker:
        yield Home(phone, broker, clock)


async def reported(app: Connection, **counters: float) -> None:
    await asyncio.to_thread(app.report, counters)


@limited
async def test_the_last_number_of_each_counter_is_kept(tmp_path: Path) -> None:
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        async with living(store) as home:
            with home.app() as fitness, home.app("clock") as clock:
                await reported(fitness, visits=1, swims=-2)
                await reported(fitness, visits=2)
                await reported(clock, sleep=7.5)
        async with living(store) as home:  # also when it was run again
            assert home.counters == {"visits": 2.0, "swims": -2.0, "sleep": 7.5}


@pytest.mark.parametrize(
    ("app", "counters", "code"),
    [
        ("fitness", {"visits": 3.1}, CODE.INVALID_ARGUMENT),
        ("fitness", {"swims": -2.5}, CODE.INVALID_ARGUMENT),
        ("fitness", {"visits": float("nan")}, CODE.INVALID_ARGUMENT),
        ("fitness", {"visits": float("inf")}, CODE.INVALID_ARGUMENT),
        ("fitness", {"visits": 1, "sleep": 8}, CODE.PERMISSION_DENIED),
        ("fitness", {"unheard": 1}, CODE.PERMISSION_DENIED),
        ("weather", {"visits": 1}, CODE.PERMISSION_DENIED),
        ("weather", {}, CODE.PERMISSION_DENIED),
    ],
)
def test_what_the_user_does_not_allow_is_refused_as_a_whole(app: str, counters: dict[str, float], code: Any) -> None:
    @limited
    async def run() -> None:
        async with living() as home, calling(home.broker.address, home.phone.apps.add(app)) as caller:
            message = phone_pb2.ReportRequest(counters={"visits": 1} | counters).SerializeToString()
            assert (await status(caller.raw("Report", message))).code() is code
            assert home.counters == {}

    run()


@limited
async def test_a_user_who_allows_nothing_is_not_asked() -> None:
    async with living(participation=None) as home:
        with home.app() as fitness, pytest.raises(AppRefused, match="'fitness' may not report the counter 'visits'"):
            await reported(fitness, visits=1)


@limited
async def test_reports_have_a_rate(tmp_path: Path) -> None:
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        async with living(store) as home:
            with home.app() as fitness:
                for number in range(5):
                    await reported(fitness, visits=number % 4)
                    await home.clock.move_to(home.clock.now() + dt.timedelta(minutes=1))
        async with living(store) as home, calling(home.broker.address, home.phone.apps.add("fitness")) as caller:
            message = phone_pb2.ReportRequest(counters={"visits": 3}).SerializeToString()
            await home.clock.move_to(at("12:10"))
            refused = await status(caller.raw("Report", message))
            assert refused.code() is CODE.RESOURCE_EXHAUSTED
            assert dict(refused.trailing_metadata() or ())["retry-after-ms"] == str(50 * 60_000 + 1)
            with home.app("clock") as clock:  # another app has a rate of its own
                await reported(clock, sleep=8)
            await home.clock.move_to(at("13:00"))
            await caller.raw("Report", message)
            assert home.counters["visits"] == 3.0


@limited
async def test_without_a_policy_there_is_no_stream_and_reports_work_all_the_same() -> None:
    async with living() as home, calling(home.broker.address, home.phone.apps.add("fitness")) as caller:
        assert (await status(caller.current())).code() is CODE.FAILED_PRECONDITION
        assert (await status(caller.subscribe().read())).code() is CODE.FAILED_PRECONDITION
        await caller.raw("Report", phone_pb2.ReportRequest(counters={"visits": 1}).SerializeToString())
        assert home.counters == {"visits": 1.0}


def test_contributions_take_what_the_user_still_allows() -> None:
    with contextlib.closing(PhoneStore()) as store:
        reports = Reports(store, lambda: at("12:00"))
        reports.add("fitness", {"visits": 2, "swims": 1}, POLICY)
        assert reports.for_query(query(), POLICY) == {"visits": 2.0, "swims": 1.0}
        less = Participation.from_toml("[apps.fitness]\ncounters = { swims = [-2, 2] }")
        assert reports.for_query(query(), less) == {"swims": 1.0}
        assert reports.for_query(query(), Participation()) is None
        assert Reports(store.of("another"), lambda: at("12:00")).for_query(query(), POLICY) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("apps = 3", "apps are a table of names"),
        ("[apps.fitness]\nlimit = 3", "has counters and max_reports_per_hour"),
        ("[apps.fitness]\ncounters = { visits = [3, 0] }", "the smaller one first"),
        ("[apps.fitness]\ncounters = { visits = [0, inf] }", "two numbers"),
        ("[apps.fitness]\ncounters = { visits = 3 }", "two numbers"),
        ("[apps.fitness]\ncounters = []", "a table of names with their bounds"),
        ("[apps.fitness]\ncounters = {}\nmax_reports_per_hour = 0", "at least 1"),
        ("[apps.a]\ncounters = { x = [0, 1] }\n[apps.b]\ncounters = { x = [0, 1] }", "'x' is reported by one app"),
    ],
)
def test_bad_policies_are_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Participation.from_toml(text)


def test_a_policy_with_apps_is_kept_as_it_is() -> None:
    assert Participation.from_text(POLICY.to_text()) == POLICY


@limited
async def test_a_damaged_policy_is_no_business_of_apps() -> None:
    """The phone's log has the cause."""
    async with living() as home:
        home.phone.store.slot(PARTICIPATION).write('{"max_epsilon": "secret"}')
        with home.app() as app, pytest.raises(AppRefused) as refused:
            await reported(app, visits=1)
    assert str(refused.value) == "the phone refused: the phone has a fault of its own"


def test_a_removed_app_leaves_no_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "phone.db"

    async def report() -> None:
        with contextlib.closing(PhoneStore(path)) as store:
            async with living(store) as home:
                with home.app() as fitness, home.app("clock") as clock:
                    await reported(fitness, visits=2)
                    await reported(clock, sleep=7)
                assert home.counters == {"visits": 2.0, "sleep": 7.0}

    asyncio.run(report())
    assert main(["phone", "apps", "remove", "fitness"]) == 0
    with contextlib.closing(PhoneStore(path)) as store:
        assert Reports(store, lambda: at("12:00")).counters(POLICY) == {"sleep": 7.0}
