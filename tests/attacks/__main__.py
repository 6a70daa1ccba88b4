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
from reticent.protocol.invitation import Invitation
from tests.attacks import lying_aggregation, strangers
from tests.attacks.disk import recovered
from tests.attacks.target import Finding, Target

ByPhones = Callable[[Target, Sequence[Invitation], Path], Finding]

WITH_PHONES: dict[str, ByPhones] = {
    "restored-phone": lying_aggregation.read_a_restored_phone,
    "two-subsets": lying_aggregation.compare_subsets,
    "known-number": lying_aggregation.add_a_number,
}
"""These need the aggregation server's certificate, a key server that has no phones yet, and invitations to it."""

BY_STRANGERS: dict[str, Callable[[str, grpc.ChannelCredentials], Coroutine[Any, Any, Finding]]] = {
    "answers": strangers.take_no_answers,
    "connections": strangers.hold_connections,
}
"""At the listeners for phones of both servers."""


def main() -> int:
    """Run one attack; 1 where it succeeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("attack", choices=[*WITH_PHONES, *BY_STRANGERS, "log"], help="see docs/attacks.md")
    parser.add_argument("--certs", type=Path, default=options.CERTIFICATES, help="a folder of certificates")
    parser.add_argument("--enrolment", default=options.KEY_SERVER, help="where the key server serves phones")
    parser.add_argument("--deciding", default=options.DECISIONS, help="where it serves the aggregation server")
    parser.add_argument("--collecting", default=options.AGGREGATION_SERVER, help="where that one serves phones")
    parser.add_argument("--counting", default=options.ANALYSTS, help="where it serves analysts")
    parser.add_argument("--invitations", type=Path, help="a folder of invitations that nobody has taken")
    parser.add_argument("--database", type=Path, help="the aggregation server's file, for the attack on its log")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        findings = _attacked(given, parser, Path(folder))
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
        way, attack = target.credentials(), BY_STRANGERS[given.attack]
        return [asyncio.run(attack(address, way)) for address in (target.enrolment, target.collecting)]
    if given.invitations is None:
        parser.error("--invitations says where there are some")
    invitations = [Invitation.from_text(path.read_text()) for path in sorted(given.invitations.iterdir())]
    return [WITH_PHONES[given.attack](target, invitations, folder / "phones")]


if __name__ == "__main__":
    sys.exit(main())
