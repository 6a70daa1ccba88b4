"""An app's side for prototypes: it waits for a phone that is away, and hears every step once."""

import asyncio
import contextlib
import datetime as dt
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import grpc
import pytest

from reticent_client.apps import broker
from reticent_client.apps.broker import STREAMS_PER_APP, Broker
from reticent_client.apps.connection import Connection, connect
from reticent_client.apps.messages import Step, position
from reticent_client.errors import AppRefused
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore
from reticent_sim.engine import free_address
from tests.client.apps.phones import MONDAY, App, ServedPhone, at, limited, releasing, served_phone
from tests.parties.waiting import until

VECTORS = Path(__file__).parents[2] / "vectors"
# Made once, for these tests, and good for a hundred years:
# openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=phone of a test"
#     -addext "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1"
CERTIFICATE = (VECTORS / "test-only-phone.crt").read_bytes()
KEY = (VECTORS / "test-only-phone.key").read_bytes()


class StreamReader:
    """Iterates over a stream in a thread of its own."""

    def __init__(self, stream: Iterator[Step]) -> None:
        self.steps: list[Step] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self.thread.start()

    def _read(self, stream: Iterator[Step]) -> None:
        try:
            for step in stream:
                self.steps.append(step)
        except Exception as error:  # noqa: BLE001  # whatever it is, the test asks for it
            self.error = error

    async def has(self, count: int) -> list[tuple[int, str | None]]:
        """What was heard, once there is so much of it."""
        await until(lambda: len(self.steps) >= count)
        return [(step.step, step.context) for step in self.steps]

    async def fails(self) -> Exception | None:
        """Why it stopped."""
        await until(lambda: not self.thread.is_alive())
        return self.error


@contextlib.asynccontextmanager
async def connected(home: ServedPhone, seconds: float = 10, name: str = "weather") -> AsyncGenerator[Connection, None]:
    """A connection of an app."""
    with connect(home.broker.address, home.phone.apps.add(name), timeout=seconds) as connection:
        yield connection


@contextlib.asynccontextmanager
async def again(home: ServedPhone, app: App, seconds: float = 10) -> AsyncGenerator[Connection, None]:
    """A second connection of an app."""
    assert app.token is not None
    with connect(home.broker.address, app.token, timeout=seconds) as connection:
        yield connection


@limited
async def test_current_is_the_last_step_or_none() -> None:
    async with served_phone() as home, connected(home) as connection:
        assert await asyncio.to_thread(connection.current) is None
        await home.live("home")
        step = await asyncio.to_thread(connection.current)
        assert step == Step(position(MONDAY, 25), MONDAY, 25, 48, "home")


@limited
async def test_a_stream_begins_now_or_after_a_step() -> None:
    async with served_phone() as home, connected(home) as connection:
        await home.live("home", 2)
        later = StreamReader(connection.stream(position(MONDAY, 25)))
        assert await later.has(1) == [(26, "home")]
        now = StreamReader(connection.stream())
        await until(lambda: home.broker.streams == 2)
        await home.live("work")
        assert await now.has(1) == [(27, "work")]
        assert await later.has(2) == [(26, "home"), (27, "work")]


@limited
async def test_a_stream_goes_on_over_restarts_without_loss_or_repetition(tmp_path: Path) -> None:
    """A step that the phone was killed over comes when it is back; one that it slept through does not."""
    address, reader = free_address(), None
    start = at("12:00")
    for life in range(4):
        store = PhoneStore(tmp_path / "phone.db")
        async with served_phone(address=address, store=store, start=start) as home:
            if reader is None:
                connection = connect(address, home.phone.apps.add("weather"), timeout=30)
                reader = StreamReader(connection.stream())
            await until(lambda home=home: home.broker.streams == 1)  # type: ignore[misc]
            await home.live("home", 2)
            await home.sense_before("work")
            await home.clock.move_to(home.mask.next_step.instant - dt.timedelta(milliseconds=500))
            start = home.clock.now() + dt.timedelta(seconds=1)  # killed over the third
        store.close()
        assert len(await reader.has(3 * life + 2)) == 3 * life + 2
    assert reader is not None
    assert [step.step for step in reader.steps] == list(range(25, 36))
    assert [step.context for step in reader.steps] == ["home", "home", "work"] * 3 + ["home", "home"]


@pytest.mark.slow
@limited
async def test_a_stream_waits_for_a_phone_that_is_not_there_yet() -> None:
    address = free_address()
    with contextlib.closing(PhoneStore()) as store:
        async with served_phone(store=store) as home:
            token = home.phone.apps.add("weather")
        with connect(address, token, timeout=30) as connection:
            reader = StreamReader(connection.stream())
            await asyncio.sleep(0.5)
            async with served_phone(store=store, address=address, start=at("14:00")) as home:
                await until(lambda: home.broker.streams == 1)
                await home.live("work")
                assert await reader.has(1) == [(29, "work")]


@limited
async def test_the_timeout_ends() -> None:
    with connect(free_address(), "token", timeout=0.3) as connection:
        began = time.monotonic()
        reader = StreamReader(connection.stream())
        assert isinstance(await reader.fails(), ConnectionError)
        assert 0.3 <= time.monotonic() - began < 10
        assert str(reader.error).startswith("the phone is unreachable: ")


@pytest.mark.parametrize("seconds", [0, 60, float("inf")])
@limited
async def test_current_does_not_wait(seconds: float) -> None:
    with (
        connect(free_address(), "token", timeout=seconds) as connection,
        pytest.raises(ConnectionError, match=r"^the phone is unreachable: "),
    ):
        await asyncio.to_thread(connection.current)


@limited
async def test_a_refused_app_is_told_why_at_once() -> None:
    async with served_phone() as home:
        with connect(home.broker.address, "wrong") as connection:
            for refused in (connection.current, lambda: next(connection.stream()), lambda: next(connection.stream(5))):
                with pytest.raises(AppRefused, match=r"^the phone refused: no app has this token"):
                    await asyncio.to_thread(refused)


@limited
async def test_a_stream_that_the_phone_refuses_as_one_too_many_waits_until_another_ends() -> None:
    async with served_phone() as home, home.app() as app, again(home, app) as connection:
        calls = [await app.listen() for _ in range(STREAMS_PER_APP)]
        await home.live("home")
        waiting = StreamReader(connection.stream(0))
        await asyncio.sleep(0.5)
        assert not waiting.steps
        calls.pop().cancel()
        assert await waiting.has(1) == [(25, "home")]


@limited
async def test_a_stream_that_the_phone_refuses_as_one_too_many_ends_after_the_timeout() -> None:
    async with served_phone() as home, home.app() as app, again(home, app, seconds=1.5) as connection:
        _ = [await app.listen() for _ in range(STREAMS_PER_APP)]
        began = time.monotonic()
        error = await StreamReader(connection.stream(0)).fails()
        assert str(error) == "the phone refused: 'weather' has 8 streams open already"
        assert isinstance(error, AppRefused)
        assert time.monotonic() - began > 1


@limited
async def test_an_app_whose_token_is_taken_back_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "APPS_READ_EVERY", 0.1)
    async with served_phone() as home, connected(home) as connection:
        reader = StreamReader(connection.stream())
        await until(lambda: home.broker.streams == 1)
        await home.live("home")
        await reader.has(1)
        home.phone.apps.remove("weather")
        await asyncio.sleep(0.15)
        await home.live("home")
        assert str(await reader.fails()) == "the phone refused: the token was revoked"


@limited
async def test_an_app_that_was_away_for_too_long_is_told_so() -> None:
    async with served_phone(releasing(4), held_days=1) as home, connected(home) as connection:
        await home.live("home", 10)
        reader = StreamReader(connection.stream(position(MONDAY, 3)))
        assert str(await reader.fails()) == "the phone refused: steps after this position are no longer held"
        assert isinstance(reader.error, AppRefused)


@limited
async def test_a_stream_that_is_left_is_closed() -> None:
    """`break` is enough, and so is forgetting it."""
    async with served_phone() as home, connected(home) as connection:
        await home.live("home", 3)

        def first() -> Step:
            for step in connection.stream(0):
                return step
            raise AssertionError("unreachable")

        assert (await asyncio.to_thread(first)).step == 25
        await until(lambda: home.broker.streams == 0)


@limited
async def test_hanging_up_ends_a_stream_that_waits() -> None:
    """From another thread, as a window's close button does."""
    async with served_phone() as home, connected(home) as connection:
        reader = StreamReader(connection.stream())
        await until(lambda: home.broker.streams == 1)
        connection.close()
        assert await reader.fails() is None


# TLS


def secured() -> grpc.ServerCredentials:
    """The phone's side of the certificate."""
    return grpc.ssl_server_credentials([(KEY, CERTIFICATE)])


@limited
async def test_apps_speak_tls_where_the_phone_has_a_certificate() -> None:
    """And an app that does not, or trusts another one, hears nothing."""
    async with served_phone() as home, Broker(home.phone, "0.0.0.0:0", credentials=secured()) as broker:
        token = home.phone.apps.add("weather")
        await home.live("home")
        port = broker.address.rpartition(":")[2]
        with connect(f"localhost:{port}", token, root_certificates=CERTIFICATE) as connection:
            step = await asyncio.to_thread(connection.current)
            assert step is not None
            assert step.context == "home"
            reader = StreamReader(connection.stream())
            await until(lambda: broker.streams == 1)
            await home.live("work")
            assert await reader.has(1) == [(26, "work")]
        for stranger in (
            connect(f"localhost:{port}", token),
            connect(f"localhost:{port}", token, root_certificates=b""),
        ):
            with stranger, pytest.raises((ConnectionError, ValueError)):
                await asyncio.to_thread(stranger.current)


def test_a_certificate_is_needed_beyond_this_machine() -> None:
    with (
        contextlib.closing(PhoneStore()) as store,
        pytest.raises(ValueError, match=r"^0\.0\.0\.0:7117 can be reached from other machines"),
    ):
        Broker(Phone(releasing(), store=store), "0.0.0.0:7117")
