"""An aggregation server that lies: it has queries countersigned and cohorts decided by whatever requests it likes."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gmpy2
import grpc

from reticent.paillier import PublicKey
from reticent.privacy import Counter, Query
from reticent.protocol import Refused, statements
from reticent.protocol.calls import failure_of
from reticent.protocol.channels import KEY_SERVER, role_option
from reticent.protocol.invitation import Invitation
from reticent.protocol.layout import ciphertexts_from, ciphertexts_to
from reticent.randomness import secure
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import DecidingStub
from tests.attacks.phones import joined
from tests.attacks.target import TIMEOUT, Finding, NotReadyError, Target
from tests.parties.queries import visits

__all__ = ["LyingAggregation", "TargetQuery", "add_a_number", "compare_subsets", "read_a_restored_phone"]

SHIFT = 50
"""What a server adds to a sum that it falsifies."""
WEIGHT = 100
"""How many times a server puts the change of a phone into the sum, where it can."""
WIDE = 10_000
"""The largest value of a counter whose slot has room for that change, noise included: over ten standard deviations."""
_numbers = itertools.count()


@dataclass(frozen=True)
class TargetQuery:
    """A query that was countersigned, with one cohort."""

    query: Query
    key: PublicKey
    deal: wire.Deal

    def announcement(self) -> wire.Announcement:
        """What phones are shown."""
        return wire.Announcement(
            query=self.query.digest,
            agreement_key=self.deal.agreement_key,
            countersignature=self.deal.countersignature,
            closes_in_ms=60_000,
        )

    def opened(self, message: wire.Contribution) -> list[int]:
        """The ciphertexts of a contribution."""
        return ciphertexts_from(message.ciphertexts, self.key)

    def product(self, *columns: Sequence[int]) -> list[int]:
        """The ciphertexts of the sum of what these hold."""
        return [self.key.add(column) for column in zip(*columns, strict=True)]

    def times(self, ciphertexts: Sequence[int], factor: int) -> list[int]:
        """The ciphertexts of as many times that."""
        return [int(gmpy2.powmod(each, factor, self.key.n**2)) for each in ciphertexts]


class LyingAggregation:
    """Holds the aggregation server's certificate, and keeps to nothing.

    Args:
        target: Of which the key server is asked.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    @contextlib.contextmanager
    def _key_server(self) -> Iterator[DecidingStub]:
        credentials = self._target.credentials("aggregation")
        with grpc.secure_channel(self._target.deciding, credentials, options=(role_option(KEY_SERVER),)) as channel:
            try:
                yield DecidingStub(channel)
            except grpc.RpcError as error:
                raise failure_of(error) from error

    def ask(self, phones: Sequence[object], **changes: Any) -> TargetQuery:
        """Have a query to these phones countersigned. There must be no others."""
        with self._key_server() as keys:
            terms = keys.GetTerms(wire.TermsRequest(), timeout=TIMEOUT)
            if terms.population != len(phones):
                raise NotReadyError(
                    f"the key server has {terms.population - len(phones)} other phones: this attack needs one without"
                )
            key = PublicKey.from_bytes(terms.public_key, simulation=True)
            fields = {"id": f"attack {secrets.token_hex(4)} {next(_numbers)}", "liars": 1}
            query = visits(key, len(phones), **fields | changes)
            deals = list(keys.Countersign(wire.CountersignRequest(query=query.to_bytes()), timeout=TIMEOUT))
        return TargetQuery(query, key, deals[0])

    def decide(
        self, asked: TargetQuery, ciphertexts: Sequence[int], contributions: Iterable[wire.Contribution]
    ) -> wire.Decision:
        """Have these sums decided, with the receipts of these contributions. Raises Refused."""
        receipts = sorted(map(statements.receipt_of, contributions), key=lambda each: each.phone)
        content = ciphertexts_to(list(ciphertexts), asked.key)
        head = wire.DecideHead(query=asked.query.digest, contributors=len(receipts), ciphertexts=content)
        parts = [
            wire.DecideRequest(head=head),
            wire.DecideRequest(receipts=wire.Receipts(receipts=receipts)),
        ]
        with self._key_server() as keys:
            decision: wire.Decision = keys.Decide(iter(parts), timeout=TIMEOUT)
        return decision


def read_a_restored_phone(target: Target, invitations: Sequence[Invitation], folder: Path) -> Finding:
    """A phone contributes 0, is restored from its backup, and contributes 1: the sum gets the change WEIGHT times.

    This works where both contributions lie under the same pad and carry the same tag.
    """
    server, phones = LyingAggregation(target), joined(invitations, folder)
    asked = server.ask(phones, counters=[Counter("visits", 0, WIDE)])
    key, announcement = asked.key.to_bytes(), asked.announcement()
    victim, *others = phones
    said = [each.contribution(announcement, asked.query, key) for each in others]
    copy = victim.backup()
    first = victim.contribution(announcement, asked.query, key)
    victim.restore(copy)
    victim.value = 1.0
    second = victim.contribution(announcement, asked.query, key)
    assert first.ciphertexts != second.ciphertexts
    weighted = asked.product(
        *map(asked.opened, said),
        asked.times(asked.opened(second), WEIGHT + 1),
        asked.times(asked.opened(first), -WEIGHT),
    )
    decision = server.decide(asked, weighted, [*said, first])
    for each in phones:
        each.close()
    return Finding(
        "restored phone",
        decision.outcome == wire.RELEASED,
        f"two contributions of one phone, weighted by {WEIGHT + 1} and {-WEIGHT}: "
        f"{wire.Outcome.Name(decision.outcome)}{_sums(decision)}",
    )


def compare_subsets(target: Target, invitations: Sequence[Invitation], folder: Path) -> Finding:
    """The sum of all phones and the sum of all but one are decrypted: they differ by that one, noise and all."""
    server, phones = LyingAggregation(target), joined(invitations, folder)
    asked = server.ask(phones)
    key, announcement = asked.key.to_bytes(), asked.announcement()
    said = [each.contribution(announcement, asked.query, key) for each in phones]
    first = server.decide(asked, asked.product(*map(asked.opened, said)), said)
    try:
        second = server.decide(asked, asked.product(*map(asked.opened, said[1:])), said[1:])
    except Refused as refused:
        return Finding("two subsets", False, f"the second one is refused: {refused.refusal.name}")
    finally:
        for each in phones:
            each.close()
    return Finding("two subsets", first.outcome == second.outcome == wire.RELEASED, f"{_sums(first)},{_sums(second)}")


def add_a_number(target: Target, invitations: Sequence[Invitation], folder: Path) -> Finding:
    """A known number is added to the sum. It is released: no tag binds the counters."""
    server, phones = LyingAggregation(target), joined(invitations, folder)
    asked = server.ask(phones)
    key, announcement = asked.key.to_bytes(), asked.announcement()
    said = [each.contribution(announcement, asked.query, key) for each in phones]
    shift = asked.key.encrypt([SHIFT] + [0] * (len(asked.opened(said[0])) - 1), secure())
    decision = server.decide(asked, asked.product(*map(asked.opened, said), shift), said)
    for each in phones:
        each.close()
    return Finding(
        "known number",
        decision.outcome == wire.RELEASED,
        f"{SHIFT} was added to the sum: {wire.Outcome.Name(decision.outcome)}{_sums(decision)}",
    )


def _sums(decision: wire.Decision) -> str:
    found = ", ".join(str(statements.integer_from(each)) for each in decision.sums)
    return f" {found}" if found else ""
