"""`reticent phone`: run a phone, enrol it, contribute once, leave, and show what it contributed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
from cyclopts import App, Parameter

from reticent.clock import SystemClock
from reticent.console.configuration import configured
from reticent.console.options import AsJson, in_json
from reticent.console.text import print_note
from reticent.errors import ExitCode
from reticent.privacy import Cost
from reticent.protocol import BadCertificate, Unreachable
from reticent.randomness import secure, seeded
from reticent.storage.sql import InUse
from reticent_client.ads.contexts import UserContexts
from reticent_client.ads.log import PrivateLog
from reticent_client.ads.rate_counters import RateCounters
from reticent_client.ads.settings import AdSettings, read_settings
from reticent_client.cli.ads import ads as ads_app
from reticent_client.cli.apps import apps
from reticent_client.cli.report import report
from reticent_client.cli.run import run
from reticent_client.cli.stores import STORE, StoreFile, check_exists
from reticent_client.counting import status_view
from reticent_client.counting.consent import Participation, Situation
from reticent_client.counting.enrolment import MEMBERSHIP, Enrolment, MembershipState
from reticent_client.counting.inputs import Counted, read_invitation, read_participation
from reticent_client.counting.participant import Counters, Participant, first_of
from reticent_client.counting.records import Records
from reticent_client.counting.reports import Reports
from reticent_client.counting.runner import COUNTING
from reticent_client.counting.servers import Servers
from reticent_client.counting.session import Round, enrol, take_part
from reticent_client.counting.settings import kept_budget, kept_participation
from reticent_client.errors import NotJoined
from reticent_client.store import PhoneStore

NOTICE_AFTER = 2.0
"""Seconds until a line names the server that does not reply."""
CLAIM_TIMEOUT, CLAIM_INTERVAL = 10.0, 0.05
"""Seconds that a command waits for a round of the running phone, and after which it looks again."""

app = App(
    name="phone",
    default_parameter=Parameter(negative=()),
    config=configured("phone"),
)

app.command(run)
app.command(ads_app)
app.command(apps)
app.command(report)


@app.command
def join(
    invitation: Path,
    /,
    *,
    store: StoreFile = STORE,
    budget_epsilon: float | None = None,
    budget_delta: float | None = None,
    as_json: AsJson = False,
) -> None:
    """Enrol the phone with a key server. If no reply comes, run the command again.

    Args:
        invitation: The file from the operator of the key server.
        store: The phone's store: the file with its keys, contributions and spending. Each phone needs its own.
        budget_epsilon: The total epsilon that the phone may spend. It is set once, by default to 4.
        budget_delta: The total delta that the phone may spend. It is set once, by default to 1e-05.
        as_json: Print JSON.
    """
    found, readable = read_invitation(invitation)
    if readable:
        print_note(f"{invitation} can be read by others, who could join in your place: chmod 600 {invitation}")
    with _phone(store, new=True, budget=(budget_epsilon, budget_delta)) as open_:
        participant = open_()
        participant.enrolment.join(found)
        member = participant.enrolment.member
        if member is not None and member.state is MembershipState.LEAVING:
            raise NotJoined("this phone is leaving: finish with reticent phone leave")
        if member is not None and member.state in {MembershipState.LEFT, MembershipState.EXPELLED}:
            raise NotJoined(f"this phone {member.state.value}: it needs a new invitation")
        asyncio.run(_enrolled(participant))
        member = participant.enrolment.member
        if member is not None:
            shown = in_json(status_view.member_to_json(member)) if as_json else status_view.membership(member)
            sys.stdout.write(f"{shown}\n")


@app.command
def contribute(
    *counter: str,
    counters: Path | None = None,
    ads: Path | None = None,
    store: StoreFile = STORE,
    participation: Path | None = None,
    charging: bool = False,
    unmetered: bool = False,
    budget_epsilon: float | None = None,
    budget_delta: float | None = None,
    simulation: bool = False,
    seed: int | None = None,
    as_json: AsJson = False,
) -> int:
    """Run one round: contribute to the announced queries, resend contributions, and fetch decisions.

    Exits with 4 if a server was unreachable or busy: run the command again later.

    Args:
        counter: A counter, as NAME=VALUE. Without any, and without --counters, the phone contributes what apps have
            reported.
        counters: A file of counters: CSV with the header name,value, or one JSON object. It is read anew for each
            query.
        ads: A TOML file with the user's settings for ads: its log is what the phone contributes to queries of rates.
        store: The phone's store.
        participation: A TOML file with the user's limits for counts. The store keeps it until another one is given.
        charging: The phone is charging.
        unmetered: The phone's network is not metered.
        budget_epsilon: The total epsilon that the phone may spend, if it is not set yet.
        budget_delta: The total delta that the phone may spend, if it is not set yet.
        simulation: Accept keys of 1024 and 2048 bits too, which are for simulation only.
        seed: Draw the noise from this seed, for simulation only: whoever knows the seed can remove the noise. The
            contributions are marked.
        as_json: Print JSON.
    """
    counted = Counted(counters, counter)
    new_policy = None if participation is None else read_participation(participation)
    with _phone(store, budget=(budget_epsilon, budget_delta)) as open_:
        participant = open_(
            policy=new_policy,
            counters=counted.among if counter or counters else None,
            ads=None if ads is None else read_settings(ads),
            simulation=simulation,
            seed=seed,
        )
        printer = status_view.RoundPrinter(as_json=as_json)
        situation = Situation(charging=charging, unmetered=unmetered)
        member = participant.enrolment.member
        if member is None:
            raise NotJoined("this phone is not enrolled: run reticent phone join INVITATION")
        if member.state is MembershipState.REFUSED:
            raise NotJoined(f"this phone {member.state.value}")
        servers = Servers(member.invitation)
        done = asyncio.run(_once(participant, servers, situation))
    printer.round(done)
    member, current = participant.enrolment.member, participant.enrolment.current
    if current is None and member is not None and member.state is MembershipState.EXPELLED:
        raise NotJoined("the key server does not list this phone any more: it needs a new invitation")
    if current is None and member is not None and member.state is MembershipState.MEMBER:
        raise NotJoined(f"the membership has ended ({status_view.membership(member)}): it needs a new invitation")
    for note in counted.notes({each.query for each in done.contributions}, with_unused=not done.failures):
        print_note(note)
    codes = {failed.error.exit_code for failed in done.failures}
    if ExitCode.RETRY_LATER not in codes:
        return max(codes, default=ExitCode.DONE)
    print_note("a call failed: run the command again later")
    return ExitCode.RETRY_LATER


@app.command
def leave(*, store: StoreFile = STORE) -> None:
    """Leave the key server, and contribute to no further query. If no reply comes, run the command again.

    Earlier contributions stay in their sums.

    Args:
        store: The phone's store.
    """
    with _phone(store) as open_:
        participant = open_()
        participant.enrolment.leave()
        asyncio.run(_enrolled(participant))
        sys.stdout.write("left\n")


@app.command
def status(*, store: StoreFile = STORE, as_json: AsJson = False) -> None:
    """Show the membership, the budget, and the state of each query.

    Args:
        store: The phone's store.
        as_json: Print JSON.
    """
    check_exists(store)
    with contextlib.closing(PhoneStore(store)) as kept:
        budget = kept_budget(kept, None, None)
        shown = status_view.Status(
            Enrolment(kept.slot(MEMBERSHIP), SystemClock().now).member,
            budget,
            kept.ledger(budget).entries(subject=kept.phone),
            Records(kept).all(),
            status_view.declined(kept),
        )
    sys.stdout.write(f"{in_json(shown.to_json()) if as_json else shown.to_text()}\n")


class _Opening:
    """Makes the participant of an open store."""

    def __init__(self, store: PhoneStore, budget: Cost) -> None:
        self._store = store
        self._budget = budget

    def __call__(
        self,
        *,
        policy: Participation | None = None,
        counters: Counters | None = None,
        ads: AdSettings | None = None,
        simulation: bool = False,
        seed: int | None = None,
    ) -> Participant:
        now = SystemClock().now
        allowed = kept_participation(self._store, policy)
        reports = Reports(self._store, now)
        source = (lambda query: reports.for_query(query, allowed)) if counters is None else counters
        rates = None if ads is None else RateCounters(UserContexts(ads), PrivateLog(self._store), now, secure())
        return Participant(
            self._store,
            self._budget,
            rng=secure() if seed is None else self._seeded(seed),
            now=now,
            policy=allowed,
            counters=first_of(None if rates is None else rates.for_query, source),
            simulation=simulation or seed is not None,
        )

    def _seeded(self, seed: int) -> np.random.Generator:
        """Each phone has noise of its own, and each query, also where the process was begun anew."""
        member = Enrolment(self._store.slot(MEMBERSHIP), SystemClock().now).member
        phone = "" if member is None else member.phone.hex()
        return seeded(seed, "phone", phone, len(Records(self._store).all()))


@contextlib.contextmanager
def _phone(
    path: Path, *, new: bool = False, budget: tuple[float | None, float | None] = (None, None)
) -> Iterator[_Opening]:
    """The store of a phone, for this process alone."""
    if not new:
        check_exists(path)
    with contextlib.closing(PhoneStore(path)) as store, _claimed(store):
        if store.in_development:
            raise ValueError(f"{path} is the store of a phone in development, which takes part in no counts")
        yield _Opening(store, kept_budget(store, *budget))


@contextlib.contextmanager
def _claimed(store: PhoneStore) -> Iterator[None]:
    """Take part for a phone as the only process, as soon as a running phone has ended its round."""
    with contextlib.ExitStack() as stack:
        end = time.monotonic() + CLAIM_TIMEOUT
        while True:
            try:
                stack.enter_context(store.claim(COUNTING))
                break
            except InUse:
                if time.monotonic() >= end:
                    raise
                time.sleep(CLAIM_INTERVAL)
        yield


async def _enrolled(participant: Participant) -> None:
    async with Servers(participant.enrolment.invitation) as servers, _notice(servers.keys):
        try:
            await enrol(participant, servers)
        except BadCertificate as error:
            raise BadCertificate(f"{servers.keys} replies, but {error}") from error
        except Unreachable as error:
            raise Unreachable(f"{servers.keys} is unreachable: run the command again ({error})") from error


async def _once(participant: Participant, servers: Servers, situation: Situation) -> Round:
    async with servers, _notice(_both(servers)):
        return await take_part(participant, servers, situation)


def _both(servers: Servers) -> str:
    return f"{servers.keys} and {servers.aggregation}"


@contextlib.asynccontextmanager
async def _notice(server: str) -> AsyncIterator[None]:
    """Print after a while which server does not reply."""
    handle = asyncio.get_running_loop().call_later(NOTICE_AFTER, print_note, f"waiting for {server}")
    try:
        yield
    finally:
        handle.cancel()
