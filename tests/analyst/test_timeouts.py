"""How long an analyst waits, for which server, and the progress meanwhile."""

import threading
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.phases import KEY_SERVER_UNAVAILABLE
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.client import Timeouts
from reticent_analyst.errors import NotDecided
from reticent_analyst.handle import Progress
from tests.analyst.clocks import SteppedClock
from tests.analyst.queries import KNOWN, gym_query
from tests.parties.counting_server import CountingServer

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def stepped(clock: SteppedClock, **seconds: float) -> Timeouts:
    """Timeouts by this clock, without jitter."""
    return Timeouts(**seconds, monotonic=clock.monotonic, sleep=clock.sleep, random=lambda: 1.0)


def test_progress_is_reported_from_the_first_status_to_the_decision(server: CountingServer, analyst: Analyst) -> None:
    seen: list[Progress] = []
    handle = analyst.start(gym_query())

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            server.collecting(gym_query(), 9)
        if len(seen) == 2:
            server.statuses["gym"].phase = wire.CLOSING
        if len(seen) == 3:
            server.decided(gym_query(), KNOWN)

    handle.result(on_progress=watch)
    assert [each.phase for each in seen] == ["collecting", "collecting", "closing", "decided"]
    assert [each.contributors for each in seen] == [(0,) * 3, (9,) * 3, (9,) * 3, (15, 16, 14)]
    assert [each.decided for each in seen] == [0, 0, 0, 3]
    assert seen[0].closes_in == 5.0


def test_a_restart_of_the_server_is_waited_out(server: CountingServer) -> None:
    phases: list[str] = []
    outages: list[tuple[str, float]] = []
    restarts: list[threading.Thread] = []

    def watch(progress: Progress) -> None:
        phases.append(progress.phase)
        if len(phases) == 1:
            server.decided(gym_query(), KNOWN)
            restarts.append(server.away_for(1.5))

    with server.analyst(on_progress=watch, on_outage=lambda *outage: outages.append(outage)) as analyst:
        assert analyst.count(gym_query()).contributors == 45
    restarts[0].join()
    assert phases == ["collecting", "decided"]
    assert {name for name, _ in outages} == {f"the aggregation server at {server.address}"}
    assert max(seconds for _, seconds in outages) > 0.5


def test_a_server_that_never_replied_is_given_up_soon(server: CountingServer) -> None:
    clock = SteppedClock()
    analyst = server.analyst(timeouts=stepped(clock, call=0.5, max_outage=600.0))
    server.stop()
    with analyst, pytest.raises(Unreachable, match=r"127.0.0.1:\d+ did not reply for \d s: UNAVAILABLE"):
        analyst.terms()
    assert 0 < clock.monotonic() <= 0.5


def test_a_server_whose_outage_is_too_long_is_given_up(server: CountingServer) -> None:
    with server.analyst(timeouts=Timeouts(call=2.0, max_outage=0.7, poll=0.1)) as analyst:
        handle = analyst.start(gym_query())
        server.stop()
        with pytest.raises(Unreachable, match="did not reply for"):
            handle.result()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_deadline_passes_and_the_query_continues(server: CountingServer, analyst: Analyst, is_away: bool) -> None:
    clock = SteppedClock()
    with server.analyst(timeouts=stepped(clock, call=2.0, max_outage=20.0, poll=0.05)) as hasty:
        handle = hasty.start(gym_query())
        if is_away:
            server.stop()
        rest = r"127.0.0.1:\d+ does not reply" if is_away else "collecting ends in 5 s"
        message = rf"'gym' is not decided after 1.5 s: 0 of 3 cohorts are decided, {rest}; the"
        with pytest.raises(NotDecided, match=message):
            handle.result(timeout=1.5)
    assert 1.4 < clock.monotonic() < 1.6
    if is_away:
        server.start()
    server.decided(gym_query(), KNOWN)
    assert analyst.find("gym").result(timeout=10).contributors == 45


def test_a_busy_server_is_called_again_after_the_stated_delay(server: CountingServer) -> None:
    server.refusals = [Refused(Refusal.BUSY, retry_after=30.0), Refused(Refusal.UNAVAILABLE)]
    clock = SteppedClock()
    with server.analyst(timeouts=stepped(clock, call=50.0)) as analyst:
        assert analyst.terms().population == 60
    assert clock.slept == [pytest.approx(30.0, abs=0.01), 0.2]  # what one reply asks for lengthens no later delay
    assert server.calls == ["terms"] * 3


@pytest.mark.parametrize("timeouts", [{"call": 0.0}, {"poll": 0.0}, {"poll": 5.0, "max_outage": 4.0}])
def test_timeouts_fit_each_other(timeouts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="timeouts must be positive"):
        Timeouts(**timeouts)


# Which server is unavailable.


def test_the_timeout_is_not_exceeded(server: CountingServer) -> None:
    server.stop()
    clock = SteppedClock()
    servers: list[str] = []
    timeouts = stepped(clock, max_outage=1.0, poll=1.0)
    with (
        server.analyst(timeouts=timeouts, on_outage=lambda name, _: servers.append(name)) as analyst,
        pytest.raises(Unreachable, match="did not reply for"),
    ):
        analyst.terms()
    assert clock.slept == pytest.approx([0.1, 0.2, 0.4, 0.3])
    assert set(servers) == {f"the aggregation server at {server.address}"}


def test_an_unavailable_key_server_is_named(server: CountingServer) -> None:
    server.refusals = [Refused(Refusal.UNAVAILABLE, KEY_SERVER_UNAVAILABLE)] * 2
    servers: list[str] = []
    with server.analyst(on_outage=lambda name, _: servers.append(name)) as analyst:
        assert analyst.terms().population == 60
    assert servers == ["the key server"] * 2
    server.refusals = [Refused(Refusal.UNAVAILABLE, KEY_SERVER_UNAVAILABLE)] * 200
    with (
        server.analyst(timeouts=Timeouts(call=1.0, max_outage=0.5, poll=0.1)) as analyst,
        pytest.raises(Unreachable, match="was unavailable for"),
    ):
        analyst.terms()
