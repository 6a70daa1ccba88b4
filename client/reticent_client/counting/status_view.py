"""The status of a phone's part in counts, as the command line shows it to people and to machines."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.console.text import printable
from reticent.errors import ExitCode
from reticent.privacy import Cost, Entry, sum_of_costs
from reticent_client.counting.budget import unrecorded
from reticent_client.counting.enrolment import Member, MembershipState
from reticent_client.counting.records import DeclinedQueries, Record
from reticent_client.counting.session import Round
from reticent_client.errors import Declined
from reticent_client.store import PhoneStore

__all__ = ["RoundPrinter", "Status", "declined", "member_to_json", "membership"]

MAX_PRINTED = 2000
"""Lines that are printed again only when they have changed; the oldest are forgotten."""

MAX_ID, MAX_LINE = 80, 500
"""Characters that are shown of a query's id, and of a line: others choose how long those are."""


def membership(member: Member | None) -> str:
    """The membership of a phone, in a line."""
    if member is None:
        return "not enrolled"
    if not member.phone:
        return f"phone {member.state.value}, at {member.invitation.key_server}"
    phone = f"phone {member.phone.hex()} {member.state.value}"
    until = dt.datetime.fromtimestamp(member.expires, dt.UTC)
    return f"{phone}, until {until:%Y-%m-%d %H:%M} UTC" if member.state is MembershipState.MEMBER else phone


def member_to_json(member: Member | None) -> dict[str, Any] | None:
    """The membership of a phone, for machines."""
    if member is None:
        return None
    return {
        "phone": member.phone.hex(),
        "state": member.state.name.lower(),
        "expires": dt.datetime.fromtimestamp(member.expires, dt.UTC).isoformat() if member.phone else None,
        "key_server": member.invitation.key_server,
        "aggregation_server": member.invitation.aggregation_server,
    }


def declined(store: PhoneStore) -> list[Declined]:
    """The countersigned queries that a phone has declined, and has not contributed to since."""
    return DeclinedQueries(store).all()


class RoundPrinter:
    """Prints what came of each round; of a query again only what has changed.

    Args:
        output: Prints a line.
        as_json: In JSON, a line for each round.
    """

    def __init__(self, output: Callable[[str], None] = print, *, as_json: bool = False) -> None:
        self._print = output
        self._as_json = as_json
        self._printed: dict[str, str] = {}
        self._failing: dict[str, str] = {}  # the servers of calls that failed in the last round

    def round(self, done: Round) -> None:
        """Print one."""
        if self._as_json:
            self._print(json.dumps(_round_to_json(done)))
            return
        lines = dict(_lines(done))
        if not lines and not self._printed:
            lines = {"": "no query is announced to this phone"}
        failing = {failed.what: failed.server for failed in done.failures}
        for what, server in self._failing.items():
            if what not in failing:
                self._print(_shown(f"{what}: {server} replies again"))
                self._printed.pop(what, None)
        self._failing = failing
        for about, line in lines.items():
            if self._printed.pop(about, None) != line:
                self._print(_shown(line))
            self._printed[about] = line
        for about in list(self._printed)[:-MAX_PRINTED]:
            del self._printed[about]


@dataclass(frozen=True)
class Status:
    """The state of a phone's part in counts.

    Args:
        member: Its membership.
        budget: What it may spend in all.
        entries: What it has spent or reserved.
        records: Its contributions.
        declined: The queries that it has declined.
    """

    member: Member | None
    budget: Cost
    entries: Sequence[Entry]
    records: Sequence[Record]
    declined: Sequence[Declined]

    def to_text(self) -> str:
        """For people."""
        spent, reserved, left = self._sums()
        lines = [
            membership(self.member),
            f"budget {_cost_text(self.budget)}: "
            + ", ".join([f"spent {_cost_text(spent)}", f"reserved {_cost_text(reserved)}", f"left {_cost_text(left)}"]),
        ]
        lines += [f"  {_id(entry.query)}: {_cost_text(entry.cost)} {entry.state}" for entry in self.entries]
        lines += [f"  {_id(each.account)}: {_cost_text(each.cost)} beyond the budget" for each in self._unrecorded()]
        lines += [_record_line(record) for record in self.records]
        lines += [_declined_line(declined) for declined in self.declined]
        return "\n".join(map(_shown, lines))

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        spent, reserved, left = self._sums()
        return {
            "member": member_to_json(self.member),
            "budget": {
                "limit": _cost_to_json(self.budget),
                "spent": _cost_to_json(spent),
                "reserved": _cost_to_json(reserved),
                "left": _cost_to_json(left),
                "entries": [
                    {"account": entry.query, "state": entry.state, **_cost_to_json(entry.cost)}
                    for entry in self.entries
                ],
                "over_budget": [{"account": each.account, **_cost_to_json(each.cost)} for each in self._unrecorded()],
            },
            "contributions": [_record_to_json(record) for record in self.records],
            "declined": [_declined_to_json(declined) for declined in self.declined],
        }

    def _unrecorded(self) -> list[Record]:
        """The contributions that count and whose cost the ledger lacks."""
        return unrecorded(self.records, self.entries)

    def _sums(self) -> tuple[Cost, Cost, Cost]:
        spent, reserved = (
            _sum([entry.cost for entry in self.entries if entry.state == state]) for state in ("spent", "reserved")
        )
        (epsilon, delta), (max_epsilon, max_delta) = sum_of_costs([spent, reserved]), sum_of_costs([self.budget])
        left = Cost(max(0.0, float(max_epsilon - epsilon)), max(0.0, float(max_delta - delta)))
        return spent, reserved, left


def _lines(done: Round) -> Iterator[tuple[str, str]]:
    """The lines of a round, by the query or the server that they are about."""
    for record in (*done.undecided, *done.contributions, *done.decided):
        yield record.id, _record_line(record)
    for declined in done.declined:
        yield declined.query or "an announcement", _declined_line(declined)
    for failed in done.failures:
        is_passing = failed.error.exit_code is ExitCode.RETRY_LATER
        yield failed.what, f"retry later: {failed}" if is_passing else str(failed)


def _record_line(record: Record) -> str:
    marked = ", with noise that can be replayed" if record.seeded else ""
    detail = f" ({record.detail})" if record.detail else ""
    return f"{_id(record.id)}: contributed at {_cost_text(record.cost)}{marked}; {record.state.value}{detail}"


def _declined_line(declined: Declined) -> str:
    again = "for now" if declined.reason.passing else "for good"
    return f"{_id(declined.query or 'an announcement')}: declined {again}; {declined.sentence}"


def _id(query_id: str) -> str:
    return _cut(query_id, MAX_ID)


def _shown(line: str) -> str:
    return printable(_cut(line, MAX_LINE))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."


def _cost_text(cost: Cost) -> str:
    return f"({cost.epsilon:g}, {cost.delta:g})"


def _sum(costs: Sequence[Cost]) -> Cost:
    epsilon, delta = sum_of_costs(costs)
    return Cost(float(epsilon), float(delta))


def _round_to_json(done: Round) -> dict[str, Any]:
    return {
        "contributions": [_record_to_json(each) for each in done.contributions],
        "declined": [_declined_to_json(each) for each in done.declined],
        "decided": [_record_to_json(each) for each in done.decided],
        "undecided": [_record_to_json(each) for each in done.undecided],
        "later": [str(each) for each in done.failures],
        "again_in": done.next_in.total_seconds(),
    }


def _record_to_json(record: Record) -> dict[str, Any]:
    return {
        "query": record.id,
        "digest": record.query.hex(),
        "cohort": record.cohort,
        "state": record.state.name.lower(),
        "detail": record.detail,
        "account": record.account,
        **_cost_to_json(record.cost),
        "seeded": record.seeded,
        "bytes": record.size,
        "made": record.made.isoformat(),
    }


def _declined_to_json(declined: Declined) -> dict[str, Any]:
    return {
        "query": declined.query,
        "reason": declined.reason.name.lower(),
        "sentence": declined.sentence,
        "passing": declined.reason.passing,
    }


def _cost_to_json(cost: Cost) -> dict[str, float]:
    return {"epsilon": cost.epsilon, "delta": cost.delta}
