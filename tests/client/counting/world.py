"""What the tests of a participant share: a signer in the place of the two servers, and a phone that can be killed."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reticent.paillier import PublicKey, centred, pad, tag
from reticent.privacy import Cost, Counter, Query
from reticent.protocol import AgreementKey, SigningKey, packing_of, shared_secret, signed_by, statements
from reticent.protocol.invitation import Invitation
from reticent.protocol.layout import ciphertexts_from
from reticent.randomness import seeded
from reticent.retry import Backoff
from reticent.v1 import counting_pb2 as wire
from reticent_client import Participant, Participation, PhoneStore, Situation
from tests.parties.key_pairs import pair
from tests.parties.queries import visits

BITS = 2048
START = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)
PHONE = bytes(range(16))
MEMBERSHIP = dt.timedelta(days=90)


@dataclass
class Servers:
    """The words of both servers, signed as they sign them."""

    identity: SigningKey = field(default_factory=SigningKey)
    agreement: AgreementKey = field(default_factory=AgreementKey)
    """Of all queries."""
    phones: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def public(self) -> PublicKey:
        return pair(BITS).public

    def invitation(self, token: bytes = bytes(16)) -> Invitation:
        return Invitation(token, self.identity.public, "no certificate", "localhost:1", "localhost:2")

    def enrol(self, asked: wire.JoinRequest, expires: dt.datetime, phone: bytes = PHONE) -> wire.Membership:
        statement = statements.joining(asked.invitation, asked.verify_key)
        assert signed_by(asked.verify_key, statement, asked.signature)
        self.phones[phone] = asked.verify_key
        return self.membership(phone, expires)

    def membership(self, phone: bytes, expires: dt.datetime) -> wire.Membership:
        until = int(expires.timestamp())
        statement = statements.membership(phone, self.phones[phone], until)
        return wire.Membership(phone=phone, expires=until, signature=self.identity.sign(statement))

    def announce(self, query: Query, cohort: int = 0, closes_in_ms: int = 3_600_000) -> wire.Announcement:
        statement = statements.countersigned(query.digest, self.agreement.public)
        return wire.Announcement(
            query=query.digest,
            agreement_key=self.agreement.public,
            countersignature=self.identity.sign(statement),
            cohort=cohort,
            closes_in_ms=closes_in_ms,
        )

    def acknowledge(self, query: Query, said: wire.Contribution) -> wire.Acknowledgement:
        """What a server answers that has checked the signature."""
        statement = statements.contribution(said, query.key_id)
        assert said.query == query.digest
        assert signed_by(self.phones[said.phone], statement, said.signature)
        return wire.Acknowledgement(contribution=statements.digest(statement))

    def decide(self, query: Query, outcome: wire.Outcome.ValueType, cohort: int = 0) -> wire.Decision:
        made = wire.Decision(query=query.digest, cohort=cohort, outcome=outcome, contributors=25, request=bytes(32))
        made.signature = self.identity.sign(statements.decision(made))
        return made

    def open(self, query: Query, said: wire.Contribution) -> tuple[list[int], list[int]]:
        """What a contribution holds: the counters with their noise, and the tags, when its pads are off."""
        secret = self.secret(said)
        plaintexts = pair(BITS).decrypt(ciphertexts_from(said.ciphertexts, self.public))
        n = self.public.n
        bare = [
            centred(plaintext - pad(secret, query.digest, said.cohort, place, n), n)
            for place, plaintext in enumerate(plaintexts)
        ]
        sums = packing_of(query, self.public.bits).unpack(bare)
        return sums.counters, sums.tags

    def tags(self, query: Query, said: wire.Contribution) -> list[int]:
        """Those that a contribution must have."""
        places = range(packing_of(query, self.public.bits).plaintexts)
        return [tag(self.secret(said), query.digest, said.cohort, place) for place in places]

    def secret(self, said: wire.Contribution) -> bytes:
        return shared_secret(
            self.agreement, phone=said.phone, phone_key=said.agreement_key, query_key=self.agreement.public
        )


def query(**changes: Any) -> Query:
    """A small query, with changes."""
    fields: dict[str, Any] = {
        "id": "gym",
        "counters": [Counter("visits", 0, 3), Counter("swims", -2, 2)],
        "delta": 1e-6,
        "l2_squared": 13,
        "l1": 5,
        "min_contributions": 22,
        "liars": 2,
    }
    return visits(pair(BITS).public, 30, **fields | changes)


class Killed(BaseException):
    """The phone was killed here."""


class Device:
    """A phone with its store, a clock that is moved, and a power switch."""

    def __init__(
        self,
        folder: Path,
        *,
        servers: Servers | None = None,
        limit: Cost | None = None,
        policy: Participation | None = None,
        counted: Mapping[str, float] | None = None,
        rng: np.random.Generator | None = None,
        joined: bool = True,
    ) -> None:
        self.folder = folder
        self.servers = servers or Servers()
        self.limit = limit or Cost(3.0, 1e-5)
        self.policy = policy or Participation()
        self.counted: Mapping[str, float] | None = {"visits": 2, "swims": -1} if counted is None else counted
        self.rng = rng or seeded(7, "phone")
        self.now = START
        self.backoff = Backoff(random=seeded(7, "waits").random)
        self.simulation = True
        self.open()
        if joined:
            self.join()

    def open(self) -> None:
        """Begin, or go on after a kill."""
        self.store = PhoneStore(self.folder / "phone.db")
        self.begin()

    def begin(self) -> None:
        self.participant = Participant(
            self.store,
            self.limit,
            rng=self.rng,
            now=lambda: self.now,
            policy=self.policy,
            counters=lambda _query: self.counted,
            backoff=self.backoff,
            simulation=self.simulation,
        )

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        """What is not on disk is gone."""
        self.close()
        self.open()

    def join(self) -> None:
        asked = self.participant.enrolment.join(self.servers.invitation())
        self.participant.enrolment.joined(self.servers.enrol(asked, self.now + MEMBERSHIP))

    def ask(self, asked: Query, situation: Situation | None = None, cohort: int = 0) -> wire.Contribution:
        key = self.servers.public.to_bytes()
        return self.participant.contribute(self.servers.announce(asked, cohort), asked.to_bytes(), key, situation)

    def pass_time(self, **parts: float) -> None:
        self.now += dt.timedelta(**parts)

    def accounts(self) -> dict[str, str]:
        """What the ledger holds: the state of each account."""
        return {entry.query: entry.state for entry in self.participant.ledger.entries()}


@contextlib.contextmanager
def device(folder: Path, **arguments: Any) -> Iterator[Device]:
    """A phone, closed in the end."""
    made = Device(folder, **arguments)
    try:
        yield made
    finally:
        made.close()
