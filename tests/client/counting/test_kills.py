"""A phone that is killed between any two writes neither overspends, nor forgets, nor says anything twice otherwise."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from reticent.privacy import Cost, Norms, Query
from reticent.protocol import Refusal, Refused, Unreachable
from reticent.randomness import secure
from reticent.storage.database import Database
from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined, PhoneStore
from reticent_client.counting import contribution
from reticent_client.counting.budget import Budget
from reticent_client.counting.participant import Participant
from reticent_client.counting.records import LIVE, ContributionState, Records
from reticent_client.errors import ClientError, Reason
from tests.client.counting.world import MEMBERSHIP, START, Device, Killed, Servers, query

Kill = tuple[int, Literal["before", "after"]]
"""At which write since the phone was last begun, and whether that write is still done."""

ONE = query().cost
OUTCOMES = (wire.RELEASED, wire.BURNT, wire.VOID)
SERVERS = Servers()


class Fragile(Device):
    """A phone that is killed at a write, and then does nothing until it is begun again."""

    kill: Kill | None = None
    writes = 0

    def open(self) -> None:
        self.dead = False
        self.writes = 0
        self.limit = Cost(ONE.epsilon, ONE.delta)
        self.store = PhoneStore(self.folder / "phone.db")
        self._rig(self.store.database)
        self.begin()

    def _rig(self, database: Database) -> None:
        original = database.transaction

        @contextlib.contextmanager
        def transaction() -> Iterator[Callable[..., Any]]:
            if database._is_inside:  # a part of a change
                with original() as run:
                    yield run
                return
            with original() as run:
                yield run
                self._reach("before")
            self._reach("after")

        database.transaction = transaction  # type: ignore[method-assign]

    def _reach(self, when: Literal["before", "after"]) -> None:
        self.writes += when == "before"
        if self.dead or self.kill == (self.writes, when):
            self.dead = True
            raise Killed


class Life:
    """What a phone and its servers go through, from the beginning after each kill: all of it may be repeated."""

    def __init__(self, folder: Path, outcome: wire.Outcome.ValueType, kills: Sequence[Kill]) -> None:
        self.outcome = outcome
        self.kills = list(kills)
        self.messages: dict[bytes, set[bytes]] = defaultdict(set)
        self.reasons: set[tuple[str, Reason]] = set()
        self.decided: dict[bytes, wire.Decision] = {}
        self.phone = Fragile.__new__(Fragile)
        self.folder = folder

    def run(self) -> Fragile:
        while True:
            kill = self.kills.pop(0) if self.kills else None
            try:
                self._begin(kill)
                self._live()
            except Killed:
                self.phone.close()
                self._check_files()
                continue
            return self.phone

    def _begin(self, kill: Kill | None) -> None:
        Fragile.kill = kill
        try:
            Fragile.__init__(self.phone, self.folder, servers=SERVERS, rng=secure(), joined=False)
        finally:
            if hasattr(self.phone, "participant"):
                self._check()

    def _live(self) -> None:
        self._join()
        first, second = query(id="first"), query(id="second")
        self._contribute(first)
        self._contribute(second)
        self._deliver(first)
        if first.digest not in self.decided:
            self.decided[first.digest] = SERVERS.decide(first, self.outcome)
        self.phone.participant.decided(self.decided[first.digest])
        self._check()
        self._contribute(second)
        self._check()

    def _join(self) -> None:
        enrolment = self.phone.participant.enrolment
        request = enrolment.join(SERVERS.invitation())
        enrolment.joined(SERVERS.enrol(request, START + MEMBERSHIP))

    def _contribute(self, example: Query) -> None:
        try:
            message = self.phone.ask(example).SerializeToString()
        except Declined as declined:
            self.reasons.add((example.id, declined.reason))
        else:
            self.messages[example.digest].add(message)

    def _deliver(self, example: Query) -> None:
        """Nobody answers, then the server is busy, then it takes what is said."""
        for error in (Unreachable("nobody listens"), Refused(Refusal.BUSY), None):
            for each in self.phone.participant.due():
                self.messages[each.query].add(each.SerializeToString())
                if each.query != example.digest:
                    continue
                if error is not None:
                    self.phone.participant.not_delivered(each.query, error)
                else:
                    self.phone.participant.acknowledged(SERVERS.acknowledge(example, each))
            self.phone.pass_time(hours=1)

    def _check_files(self) -> None:
        """On disk, between two lives: the ledger has what may have been sent."""
        with contextlib.closing(PhoneStore(self.folder / "phone.db")) as store:
            live = {record.account for record in Records(store).within(LIVE)}
            assert live == {entry.query for entry in store.ledger(ONE).entries()}

    def _check(self) -> None:
        """What holds at every moment, whatever was killed."""
        accounts = self.phone.accounts()
        assert len(accounts) <= 1  # the budget is that of one query
        for digest, versions in self.messages.items():
            assert len(versions) == 1
            if digest not in self.decided or self.outcome != wire.BURNT:
                assert ("first" if digest == query(id="first").digest else "second") in accounts
        assert self.reasons <= {("first", Reason.CONTRIBUTED), ("second", Reason.BUDGET)}


def _writes(folder: Path, outcome: wire.Outcome.ValueType) -> int:
    """In a life without a kill."""
    phone = Life(folder, outcome, []).run()
    phone.close()
    return phone.writes


def _check_end(phone: Fragile, outcome: wire.Outcome.ValueType) -> None:
    """However often it was killed, it has come to the same."""
    state = {wire.RELEASED: "spent", wire.VOID: "spent", wire.BURNT: "reserved"}[outcome]
    assert phone.accounts() == {"second" if outcome == wire.BURNT else "first": state}
    states = {record.id: record.state for record in phone.participant.records.all()}
    assert states["first"].name == wire.Outcome.Name(outcome)
    assert states.get("second") is (ContributionState.STORED if outcome == wire.BURNT else None)
    assert {record.id for record in phone.participant.records.within(LIVE)} == phone.accounts().keys()


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_every_write(
    tmp_path: Path, outcome: wire.Outcome.ValueType, when: Literal["before", "after"]
) -> None:
    (tmp_path / "whole").mkdir()
    writes = _writes(tmp_path / "whole", outcome)
    assert writes > 7
    for number in range(1, writes + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        phone = Life(folder, outcome, [(number, when)]).run()
        _check_end(phone, outcome)
        phone.close()


@given(
    st.sampled_from(OUTCOMES),
    st.lists(st.tuples(st.integers(1, 14), st.sampled_from(["before", "after"])), min_size=2, max_size=6),
)
def test_kills_after_kills(outcome: wire.Outcome.ValueType, kills: list[Kill]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        phone = Life(Path(folder), outcome, kills).run()
        _check_end(phone, outcome)
        phone.close()


def _sent_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contributions are made anew for each attempt."""
    original = Participant._contribution

    def made(phone: Participant, announcement: wire.Announcement, content: bytes, *rest: Any) -> wire.Contribution:
        original(phone, announcement, content, *rest)
        example, member = Query.from_bytes(content), phone.enrolment.current
        assert member is not None
        key, query_key = SERVERS.public, announcement.agreement_key
        return contribution.prepare(
            example, 0, [0, 0], Norms(0, 0), key=key, query_key=query_key, member=member, rng=secure()
        ).message

    monkeypatch.setattr(Participant, "_contribution", made)


def _given_back_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """All reservations are taken for left over."""

    def given_back(budget: Budget) -> None:
        for entry in budget._ledger.entries():
            if entry.state == "reserved":
                budget._ledger.give_back(entry.query)

    monkeypatch.setattr(Budget, "record_missing", given_back)


def _never_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "settle", lambda *_: None)


def _in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PhoneStore, "transaction", lambda _: contextlib.nullcontext())


@pytest.mark.parametrize(
    "spoil",
    [_sent_before_it_is_stored, _given_back_when_it_begins, _never_settled, _in_several_transactions],
)
def test_a_phone_that_does_it_wrong_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], None]
) -> None:
    spoil(monkeypatch)
    caught = False
    for number in range(1, 14):
        folder = tmp_path / str(number)
        folder.mkdir()
        life = Life(folder, wire.BURNT, [(number, "after")])
        try:
            _check_end(life.run(), wire.BURNT)
        except (AssertionError, ClientError):
            caught = True
        life.phone.close()
        if caught:
            break
    assert caught
