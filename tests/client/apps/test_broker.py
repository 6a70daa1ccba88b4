"""What an app hears, from when on, and with which token; where a broker listens, and how it ends."""

import asyncio
import contextlib
import datetime as dt
import socket
from pathlib import Path

import grpc
import pytest

from reticent.address import AddressError, is_local
from reticent_client.apps import broker
from reticent_client.apps.broker import ANONYMOUS_CALL, UNKNOWN_CALLER, Broker
from reticent_client.apps.messages import SIZE, position
from reticent_client.phone import Phone
from reticent_client.store import PhoneStore
from tests.client.apps.phones import (
    MONDAY,
    App,
    ServedPhone,
    calling,
    limited,
    quiet,
    read,
    releasing,
    served_phone,
    status,
    told,
    tossing,
)
from tests.client.apps.test_bad_apps import Staller
from tests.parties.waiting import until

CODE = grpc.StatusCode


# What all apps hear


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "unix"])
@limited
async def test_an_app_hears_each_step_and_can_ask_for_the_last_one(address: str, tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/phone.sock" if address == "unix" else address
    async with served_phone(address=where) as home, home.app() as app:
        assert (await status(app.current())).code() is CODE.NOT_FOUND
        call = await app.listen()
        await home.live("home")
        await home.live("hospital")
        assert told(await read(call, 2)) == [(25, "home"), (26, None)]
        assert told([await app.current()]) == [(26, None)]
        assert not home.broker.address.endswith(":0")


@limited
async def test_all_apps_hear_the_same_stream() -> None:
    """Policies with coins toss them once, for everybody."""
    async with served_phone(tossing()) as home:
        apps = [await home.enter(f"app {n}") for n in range(4)]
        calls = [await app.listen() for app in apps]
        await home.live("home", 12)
        steps = [await read(call, 12) for call in calls]
        assert steps[0] == steps[1] == steps[2] == steps[3]
        assert {step.context for step in steps[0]} == {"home", None}


@limited
async def test_only_a_trusted_app_hears_everything(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'phone.sock'}"
    async with served_phone(address=address) as home, home.app() as app, home.app("diary", trusted=True) as diary:
        calls = [await app.listen(), await diary.listen()]
        for context in ("home", "hospital", None):
            await home.live(context)
        masked, raw = [await read(call, 3) for call in calls]
        assert told(masked) == [(25, "home"), (26, None), (27, None)]
        assert told(raw) == [(25, "home"), (26, "hospital"), (27, None)]
        assert [{step.raw for step in steps} for steps in (masked, raw)] == [{False}, {True}]
        assert not (await app.current()).raw


@limited
async def test_a_trusted_app_is_told_nothing_over_a_port() -> None:
    """Whoever takes the port while the phone is away is sent its token."""
    async with served_phone() as home, home.app("diary", trusted=True) as diary:
        await home.live("hospital")
        assert (await status(diary.current())).code() is CODE.FAILED_PRECONDITION
        assert (await status(diary.subscribe(0).read())).code() is CODE.FAILED_PRECONDITION


@limited
async def test_what_was_before_an_app_was_trusted_is_not_its_to_know(tmp_path: Path) -> None:
    """Nor is it on the disk while nobody is trusted."""
    store = PhoneStore(tmp_path / "phone.db")
    async with served_phone(address=f"unix:{tmp_path / 'phone.sock'}", store=store) as home:
        async with home.app("first", trusted=True):
            await home.live("hospital")
            assert [set(messages) for _, messages in store.messages()] == [{"masked", "raw"}]
        home.phone.apps.remove("first")
        await home.live("work")
        assert [set(messages) for _, messages in store.messages()] == [{"masked"}, {"masked"}]
        async with home.app("diary", trusted=True) as diary:
            assert (await status(diary.current())).code() is CODE.NOT_FOUND
            await home.live("gym")
            assert told(await read(await diary.listen(0), 1)) == [(27, "gym")]
    store.close()


@limited
async def test_nothing_can_be_heard_before_its_step_begins() -> None:
    """Neither by asking nor by listening, from the beginning or from now on."""
    async with served_phone() as home, home.app() as app:
        await home.live("home")
        calls = [await app.listen(), await app.listen(position(MONDAY, 25))]
        await home.sense_before("work")
        begins = home.mask.next_step.instant
        await home.clock.move_to(begins - dt.timedelta(microseconds=1))
        assert len(home.phone.store.messages()) == 2  # it is decided
        reading = [asyncio.ensure_future(call.read()) for call in calls]
        await asyncio.sleep(0.2)
        assert told([await app.current()]) == [(25, "home")]
        assert not any(each.done() for each in reading)
        await home.clock.move_to(begins)
        assert told([await each for each in reading]) == [(26, "work")] * 2


@limited
async def test_whoever_listens_misses_nothing_from_then_on() -> None:
    """Also a step that begins between the phone's yes and the first message."""
    async with served_phone() as home, home.app() as app:
        for _ in range(20):
            call = app.subscribe()
            opening = asyncio.ensure_future(call.initial_metadata())
            before = home.broker.streams
            await until(lambda before=before: home.broker.streams > before)  # type: ignore[misc]
            upcoming = home.mask.next_step.step
            await home.live("home")
            await opening
            assert (await read(call, 1))[0].step == upcoming
            call.cancel()
            await quiet(home)


# `after`


@limited
async def test_an_app_that_comes_back_hears_what_came_since() -> None:
    async with served_phone(releasing(4), held_days=2) as home, home.app() as app:
        await home.live("home", 3)
        seen = position(MONDAY, 3)
        assert told(await read(await app.listen(seen), 2)) == [(0, "home"), (1, "home")]
        assert told(await read(await app.listen(0), 3)) == [(3, "home"), (0, "home"), (1, "home")]


@pytest.mark.parametrize("after", [2**63, 2**64 - 1, position(dt.date.max, 3)])
@limited
async def test_an_app_from_the_future_hears_what_comes_next(after: int) -> None:
    """A phone whose clock was wrong for a day must not be silent for its apps until that day."""
    async with served_phone() as home, home.app() as app:
        await home.live("home")
        call = await app.listen(after)
        await home.live("work")
        assert told(await read(call, 1)) == [(26, "work")]


@limited
async def test_what_is_no_longer_held_is_out_of_range() -> None:
    """The step before the first that is held may be named: nothing after it is missing."""
    async with served_phone(releasing(4), held_days=1) as home, home.app() as app:
        first = position(MONDAY, 3)
        await home.live("home", 6)
        dropped = [step.position for step in await read(await app.listen(first + 2**20 - 3), 0)]
        assert dropped == []
        assert (await status(app.subscribe(first).read())).code() is CODE.OUT_OF_RANGE
        assert told(await read(await app.listen(0), 4))[-1] == (0, "home")  # all that is held
        assert told(await read(await app.listen(position(MONDAY + dt.timedelta(1), 0)), 4)) == [
            (1, "home"),
            (2, "home"),
            (3, "home"),
            (0, "home"),
        ]
        await quiet_after(app, home)


async def quiet_after(app: App, home: ServedPhone) -> None:
    """The app hangs up."""
    await app.channel.close()
    await quiet(home)


# Tokens


@pytest.mark.parametrize("token", [None, "", "wrong", "x" * 4000, " ", "Bearer"])
@limited
async def test_without_a_token_nothing_is_told(token: str | None) -> None:
    async with served_phone() as home:
        home.phone.apps.add("weather")
        await home.live("home")
        async with calling(home.broker.address, token) as stranger:
            for refusal in (await status(stranger.current()), await status(stranger.subscribe().read())):
                assert refusal.code() is CODE.UNAUTHENTICATED
                assert refusal.details() == (UNKNOWN_CALLER if (token or "").strip() else ANONYMOUS_CALL)
        await quiet(home)


@pytest.mark.parametrize("scheme", ["Basic", "bearer-", ""])
@limited
async def test_a_token_counts_only_as_a_bearer(scheme: str) -> None:
    async with served_phone() as home:
        token = home.phone.apps.add("weather")
        await home.live("home")
        async with calling(home.broker.address, None) as stranger:
            for value, expected in [(f"{scheme} {token}", CODE.UNAUTHENTICATED), (f"bEARER  {token} ", None)]:
                call = stranger.raw("Current", b"", (("authorization", value),))
                code = None if expected is None else (await status(call)).code()
                assert code is expected
                assert expected is not None or len(await call) == SIZE


@limited
async def test_the_digest_of_a_token_is_no_token() -> None:
    """Nobody who reads the store can listen."""
    async with served_phone() as home:
        home.phone.apps.add("weather")
        (app,) = home.phone.apps.all()
        async with calling(home.broker.address, app.digest) as thief:
            assert (await status(thief.current())).code() is CODE.UNAUTHENTICATED


@pytest.mark.parametrize("how", ["removed", "renewed"])
@limited
async def test_a_token_that_is_taken_back_ends_its_streams_at_the_next_step(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "APPS_READ_EVERY", 0.1)
    async with served_phone() as home, home.app() as app, home.app("other") as other:
        call, unaffected = await app.listen(), await other.listen()
        await home.live("home")
        assert told(await read(call, 1)) == [(25, "home")]
        if how == "removed":
            home.phone.apps.remove("weather")
        else:
            home.phone.apps.add("weather", trusted=True)
        await asyncio.sleep(0.15)
        await home.live("work")
        refusal = await status(call.read())
        assert (refusal.code(), refusal.details()) == (CODE.UNAUTHENTICATED, "the token was revoked")
        assert (await status(app.current())).code() is CODE.UNAUTHENTICATED
        assert told(await read(unaffected, 2)) == [(25, "home"), (26, "work")]
        assert home.broker.streams == 1


@limited
async def test_an_inside_error_is_not_told_to_apps(caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong with the phone's files is the user's to know."""
    async with served_phone() as home, home.app() as app:
        home.phone.store.slot("apps").write("{damaged")
        for refusal in (await status(app.current()), await status(app.subscribe().read())):
            assert refusal.code() is CODE.INTERNAL
            assert refusal.details() == "the phone has a fault of its own"
        assert "the list of apps is damaged" in caplog.text
        await quiet(home)


# Where it listens, and how it ends


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:0",
        "[::]:0",
        "192.168.1.2:7117",
        "phone.local:1",
        ":7117",
        "7117",
        "",
        "127.0.0.1",
        "0:1",
        "dns:///localhost:1",
        "127.0.0.1:1,0.0.0.0:2",
    ],
)
def test_the_clear_is_for_this_machine_only(address: str) -> None:
    assert not is_local(address)
    with (
        contextlib.closing(PhoneStore()) as store,
        pytest.raises(ValueError, match=r"can be reached from other machines: give it a certificate"),
    ):
        Broker(Phone(releasing(), store=store), address)


@limited
async def test_a_port_that_is_taken_is_one_sentence() -> None:
    async with served_phone() as home:
        with pytest.raises(AddressError, match=rf"^cannot listen at {home.broker.address}: is it taken"):
            async with served_phone(address=home.broker.address):
                raise AssertionError("unreachable")
        with pytest.raises(AddressError, match=r"^cannot listen at unix:/nowhere/phone\.sock"):
            async with served_phone(address="unix:/nowhere/phone.sock"):
                raise AssertionError("unreachable")


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
@limited
async def test_a_path_that_is_taken_is_one_sentence(tmp_path: Path, form: str) -> None:
    """One that was left behind by a broker that was killed is not."""
    path = tmp_path / "phone.sock"
    address = form.format(path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with served_phone(address=address) as home:
        with pytest.raises(AddressError, match=r"it is taken$"):
            async with served_phone(address=f"unix:{path}"):
                raise AssertionError("unreachable")
        async with home.app() as app:
            await home.live("home")
            assert (await app.current()).context == "home"


@limited
async def test_a_broker_that_stops_says_so() -> None:
    """Streams end with UNAVAILABLE, after what was told before."""
    async with calling("127.0.0.1:1", None) as stranger:
        assert (await status(stranger.current())).code() is CODE.UNAVAILABLE
    async with served_phone() as home:
        app = await home.enter("weather")
        calls = [await app.listen() for _ in range(5)]
        await home.live("home")
        stopping = asyncio.ensure_future(home.broker.__aexit__(None, None, None))
        for call in calls:
            assert told(await read(call, 1)) == [(25, "home")]
            refusal = await status(call.read())
            assert (refusal.code(), refusal.details()) == (CODE.UNAVAILABLE, "the phone shuts down: retry later")
        await asyncio.wait_for(stopping, 5)
        await quiet(home)


@limited
async def test_a_broker_stops_within_seconds_whatever_its_apps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker.GRACE <= 2
    monkeypatch.setattr(broker, "GRACE", 0.2)
    async with served_phone() as home:
        staller = Staller(home.broker.address, home.phone.apps.add("staller"))
        await until(lambda: home.broker.streams == 1)
        await home.live("home", 60)
        await asyncio.wait_for(home.broker.__aexit__(None, None, None), 3)
        await quiet(home)
        staller.socket.close()
