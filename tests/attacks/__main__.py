"""Attack a pair of servers that runs on this machine: `python -m tests.attacks --help`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import grpc

from reticent.console import options
from reticent.errors import ReticentError
from reticent.protocol.calls import failure_of
from reticent.protocol.invitation import Invitation
from tests.attacks import large_query, lying_aggregation, strangers
from tests.attacks.disk import recovered
from tests.attacks.honest import Service
from tests.attacks.target import Finding, Target

ByPhones = Callable[[Target, Sequence[Invitation], Path], Finding]

WITH_PHONES: dict[str, ByPhones] = {
    "restored-phone": lying_aggregation.read_a_restored_phone,
    "two-subsets": lying_aggregation.compare_subsets,
    "known-number": lying_aggregation.add_a_number,
}
"""These need the aggregation server's certificate, a key server that has no phones yet, and invitations to it."""

BY_STRANGERS: dict[str, Callable[[Service], Coroutine[Any, Any, Finding]]] = {
    "answers": strangers.take_no_answers,
    "connections": strangers.hold_connections,
}
"""At one listener or another."""
LISTENERS = {"answers": ("enrolment", "collecting"), "connections": ("enrolment", "deciding", "collecting", "counting")}
"""Where these attack. At the others nobody can call without a certificate."""
LARGE_QUERY = "large-query"


def main() -> int:
    """Run one attack. Returns 1 if it succeeds, and 2 if it could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    attacks = [*WITH_PHONES, *BY_STRANGERS, LARGE_QUERY, "log"]
    parser.add_argument("attack", choices=attacks, help="see docs/attacks.md")
    parser.add_argument("--certs", type=Path, default=options.CERTIFICATES, help="a folder of certificates")
    parser.add_argument("--analyst", help="the name of an analyst with a certificate there")
    parser.add_argument("--enrolment", default=options.KEY_SERVER, help="where the key server serves phones")
    parser.add_argument("--deciding", default=options.DECISIONS, help="where it serves the aggregation server")
    parser.add_argument("--collecting", default=options.AGGREGATION_SERVER, help="where that one serves phones")
    parser.add_argument("--counting", default=options.ANALYSTS, help="where it serves analysts")
    parser.add_argument("--listener", choices=LISTENERS["connections"], help="attack this one, not all")
    parser.add_argument("--invitations", type=Path, help="a folder of invitations that nobody has taken")
    parser.add_argument("--database", type=Path, help="the aggregation server's file, for the attack on its log")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            findings = _attacked(given, parser, Path(folder))
    except grpc.RpcError as error:
        parser.error(f"the attack could not be tried: {failure_of(error)}")
    except (ReticentError, OSError, ValueError) as error:
        parser.error(f"the attack could not be tried: {error}")
    sys.stdout.writelines(f"{finding}\n" for finding in findings)
    return int(any(finding.succeeded for finding in findings))


def _attacked(given: argparse.Namespace, parser: argparse.ArgumentParser, folder: Path) -> list[Finding]:
    if given.attack == "log":
        if given.database is None:
            parser.error("--database says which file to look at")
        found = recovered(given.database, folder)
        return [Finding("log", bool(found), f"{len(found)} single ciphertexts, which match their receipts")]
    target = Target(given.certs, given.enrolment, given.deciding, given.collecting, given.counting)
    if given.attack in BY_STRANGERS:
        return _by_strangers(given, parser, target)
    if given.invitations is None:
        parser.error("--invitations names a folder of new invitations")
    invitations = [Invitation.from_text(path.read_text()) for path in sorted(given.invitations.iterdir())]
    if given.attack == LARGE_QUERY:
        if given.analyst is None:
            parser.error("--analyst names the analyst who announces the query")
        phones, query = large_query.announced(target, invitations, given.analyst)
        return [asyncio.run(large_query.fetch(target, phones, query))]
    return [WITH_PHONES[given.attack](target, invitations, folder / "phones")]


def _by_strangers(given: argparse.Namespace, parser: argparse.ArgumentParser, target: Target) -> list[Finding]:
    listeners = LISTENERS[given.attack] if given.listener is None else (given.listener,)
    if not set(listeners) <= set(LISTENERS[given.attack]):
        parser.error(f"nobody can call {given.listener} without a certificate")
    if "counting" in listeners and given.analyst is None:
        parser.error("--analyst names the honest caller of the listener for analysts")
    services = strangers.services(target, given.analyst)
    return [asyncio.run(BY_STRANGERS[given.attack](services[each])) for each in listeners]


if __name__ == "__main__":
    sys.exit(main())
