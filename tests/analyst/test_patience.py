"""How long an analyst waits, for whom, and what is told meanwhile."""

import threading
from typing import Any

import pytest

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.phases import KEY_SERVER_AWAY
from reticent.v1 import counting_pb2 as wire
from reticent_analyst.analyst import Analyst
from reticent_analyst.client import Patience
from reticent_analyst.errors import NotDecided
from reticent_analyst.handle import Progress
from tests.agg.counting_server import CountingServer
from tests.analyst.clocks import SteppedClock
from tests.analyst.queries import KNOWN, asked

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def stepped(clock: SteppedClock, **seconds: float) -> Patience:
    """Of somebody who waits by this clock."""
    return Patience(**seconds, monotonic=clock.monotonic, sleep=clock.sleep)


def test_progress_is_told_from_the_first_look_to_the_decision(server: CountingServer, analyst: Analyst) -> None:
    seen: list[Progress] = []
    handle = analyst.start(asked())

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            server.collecting(asked(), 9)
        if len(seen) == 2:
            server.standing["gym"].phase = wire.CLOSING
        if len(seen) == 3:
            server.decided(asked(), KNOWN)

    handle.result(watcher=watch)
    assert [each.phase for each in seen] == ["collecting", "collecting", "closing", "decided"]
    assert [each.contributors for each in seen] == [(0,) * 3, (9,) * 3, (9,) * 3, (15, 16, 14)]
    assert [each.decided for each in seen] == [0, 0, 0, 3]
    assert seen[0].closes_in == 5.0


def test_a_restart_of_the_server_is_waited_out(server: CountingServer) -> None:
    gone: list[float] = []
    backs: list[threading.Thread] = []

    def watch(progress: Progress) -> None:
        gone.append(progress.away)
        if len(gone) == 1:
            server.decided(asked(), KNOWN)
            backs.append(server.away_for(1.5))

    with server.analyst(watcher=watch) as analyst:
        assert analyst.count(asked()).contributors == 45
    backs[0].join()
    assert gone[0] == gone[-1] == 0.0
    assert max(gone) > 0.5


def test_a_server_that_never_answers_is_given_up_soon(server: CountingServer) -> None:
    clock = SteppedClock()
    analyst = server.analyst(patience=stepped(clock, call=0.5, away=600.0))
    server.stop()
    with analyst, pytest.raises(Unreachable, match=r"127.0.0.1:\d+ has not answered for \d s: UNAVAILABLE"):
        analyst.terms()
    assert 0 < clock.monotonic() <= 0.5


def test_so_is_one_that_is_away_for_longer_than_the_patience(server: CountingServer) -> None:
    with server.analyst(patience=Patience(call=2.0, away=0.7, poll=0.1)) as analyst:
        handle = analyst.start(asked())
        server.stop()
        with pytest.raises(Unreachable, match="has not answered for"):
            handle.result()


@pytest.mark.parametrize("is_away", [False, True])
def test_a_deadline_passes_and_the_query_goes_on(server: CountingServer, analyst: Analyst, is_away: bool) -> None:
    clock = SteppedClock()
    with server.analyst(patience=stepped(clock, call=2.0, away=20.0, poll=0.05)) as hasty:
        handle = hasty.start(asked())
        if is_away:
            server.stop()
        rest = r"127.0.0.1:\d+ does not answer" if is_away else "collecting ends in 5 s"
        said = rf"'gym' is not decided after 1.5 s: 0 of its 3 cohorts are, and {rest}; the"
        with pytest.raises(NotDecided, match=said):
            handle.result(timeout=1.5)
    assert 1.4 < clock.monotonic() < 1.6
    if is_away:
        server.start()
    server.decided(asked(), KNOWN)
    assert analyst.find("gym").result(timeout=10).contributors == 45


def test_a_busy_server_is_asked_again_when_it_says(server: CountingServer) -> None:
    server.refusals = [Refused(Refusal.BUSY, retry_after=30.0), Refused(Refusal.UNAVAILABLE)]
    clock = SteppedClock()
    with server.analyst(patience=stepped(clock, call=50.0)) as analyst:
        assert analyst.terms().population == 60
    assert clock.slept == [pytest.approx(30.0, abs=0.01), 0.2]  # what one reply asks for lengthens no later delay
    assert server.calls == ["standing"] * 3


@pytest.mark.parametrize("patience", [{"call": 0.0}, {"poll": 0.0}, {"poll": 5.0, "away": 4.0}])
def test_patience_fits_itself(patience: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="waiting takes a time"):
        Patience(**patience)


# Who is waited for.


def test_patience_is_not_exceeded(server: CountingServer) -> None:
    server.stop()
    clock = SteppedClock()
    hindered: list[str] = []
    patience = stepped(clock, away=1.0, poll=1.0)
    with (
        server.analyst(patience=patience, hindered=hindered.append) as analyst,
        pytest.raises(Unreachable, match="has not answered for"),
    ):
        analyst.terms()
    assert clock.slept == [0.1, 0.2, 0.4]  # and 0.8 more would be too long
    assert set(hindered) == {f"the aggregation server at {server.address}"}


def test_a_key_server_that_is_away_is_named(server: CountingServer) -> None:
    server.refusals = [Refused(Refusal.UNAVAILABLE, KEY_SERVER_AWAY)] * 2
    hindered: list[str] = []
    with server.analyst(hindered=hindered.append) as analyst:
        assert analyst.terms().population == 60
    assert hindered == ["the key server"] * 2
    server.refusals = [Refused(Refusal.UNAVAILABLE, KEY_SERVER_AWAY)] * 200
    with (
        server.analyst(patience=Patience(call=1.0, away=0.5, poll=0.1)) as analyst,
        pytest.raises(Unreachable, match="cannot do this, and could not for"),
    ):
        analyst.terms()
