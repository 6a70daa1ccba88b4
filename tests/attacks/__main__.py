"""Attack a pair of servers that runs on this machine: `python -m tests.attacks --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from reticent import options
from reticent.protocol.invitation import Invitation
from tests.attacks import lying_aggregation
from tests.attacks.disk import recovered
from tests.attacks.target import Finding, Target

ByPhones = Callable[[Target, Sequence[Invitation], Path], Finding]

WITH_PHONES: dict[str, ByPhones] = {
    "restored-phone": lying_aggregation.read_a_restored_phone,
    "two-subsets": lying_aggregation.compare_subsets,
    "known-number": lying_aggregation.add_a_number,
}
"""These need the aggregation server's certificate, a key server that has no phones yet, and invitations to it."""


def main() -> int:
    """Run one attack; 1 where it succeeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("attack", choices=[*WITH_PHONES, "log"], help="see docs/attacks.md")
    parser.add_argument("--certs", type=Path, default=options.CERTIFICATES, help="a folder of certificates")
    parser.add_argument("--enrolment", default=options.KEY_SERVER, help="where the key server serves phones")
    parser.add_argument("--deciding", default=options.DECISIONS, help="where it serves the aggregation server")
    parser.add_argument("--collecting", default=options.AGGREGATION_SERVER, help="where that one serves phones")
    parser.add_argument("--counting", default=options.ANALYSTS, help="where it serves analysts")
    parser.add_argument("--invitations", type=Path, help="a folder of invitations that nobody has taken")
    parser.add_argument("--database", type=Path, help="the aggregation server's file, for the attack on its log")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finding = _attacked(given, parser, Path(folder))
    sys.stdout.write(f"{finding}\n")
    return int(finding.succeeded)


def _attacked(given: argparse.Namespace, parser: argparse.ArgumentParser, folder: Path) -> Finding:
    if given.attack == "log":
        if given.database is None:
            parser.error("--database says which file to look at")
        found = recovered(given.database, folder)
        return Finding("log", bool(found), f"{len(found)} single ciphertexts, which match their receipts")
    target = Target(given.certs, given.enrolment, given.deciding, given.collecting, given.counting)
    if given.invitations is None:
        parser.error("--invitations says where there are some")
    invitations = [Invitation.from_text(path.read_text()) for path in sorted(given.invitations.iterdir())]
    return WITH_PHONES[given.attack](target, invitations, folder / "phones")


if __name__ == "__main__":
    sys.exit(main())
