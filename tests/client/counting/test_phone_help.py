"""What `reticent phone` says of itself."""

import pytest

from reticent.console import program
from tests.client.commands import lines

HELP = {
    (): """\
Usage: reticent phone COMMAND

Run a phone: mask contexts, serve apps, take part in counts.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ apps        Say which apps may connect to a phone.                           │
│ contribute  Contribute once to all announced queries, send again what was    │
│             not acknowledged, and take decisions.                            │
│ join        Enrol the phone with a key server. If no reply comes, run the    │
│             command again.                                                   │
│ leave       Leave the key server: contribute to nothing new. If no reply     │
│             comes, run the command again.                                    │
│ report      Say what became of a phone's steps, policy by policy, and        │
│             whether habits have changed since they were learned.             │
│ run         Run a phone: mask contexts by a policy, serve apps, and take     │
│             part in counts once it has joined.                               │
│ status      Show the membership, the budget, and the state of each query.    │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("join",): """\
Usage: reticent phone join [OPTIONS] INVITATION

Enrol the phone with a key server. If no reply comes, run the command again.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  INVITATION  The file from the operator of the key server. [required]      │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH            The file that keeps the keys, the contributions and  │
│                         what was spent: one for each phone. [default:        │
│                         phone.db]                                            │
│ --budget-epsilon FLOAT  How much to spend in all; 4 unless given. It is set  │
│                         once and stays.                                      │
│ --budget-delta FLOAT    The delta of the same budget; 1e-05 unless given.    │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("contribute",): """\
Usage: reticent phone contribute [OPTIONS] [ARGS...]

Contribute once to all announced queries, send again what was not acknowledged,
and take decisions.

Exits with 1 if a server was unreachable or refused for now: run the command
again later.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ COUNTER  A counter, as NAME=VALUE; without any, and without a file, what     │
│          apps have reported.                                                 │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --counters PATH         A file of counters: CSV with the header name,value,  │
│                         or one JSON object. It is read anew for each query.  │
│ --store PATH            The phone's store. [default: phone.db]               │
│ --policy PATH           What the user allows, as TOML. The store keeps it    │
│                         until another one is given.                          │
│ --charging              The phone is charging. [default: False]              │
│ --unmetered             Its network is not metered. [default: False]         │
│ --budget-epsilon FLOAT  How much to spend in all: to be set with the first   │
│                         command, if at all.                                  │
│ --budget-delta FLOAT    The delta of the same budget.                        │
│ --simulation            Accept keys that are only good for simulation.       │
│                         [default: False]                                     │
│ --seed INT              Make the noise from this number, for simulation      │
│                         only: whoever knows it can remove the noise. The     │
│                         contributions are marked.                            │
│ --json                  Write JSON for machines. [default: False]            │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("leave",): """\
Usage: reticent phone leave [OPTIONS]

Leave the key server: contribute to nothing new. If no reply comes, run the
command again.

Earlier contributions stay in their sums.

╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("status",): """\
Usage: reticent phone status [OPTIONS]

Show the membership, the budget, and the state of each query.

╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
│ --json        Write JSON for machines. [default: False]                      │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_says_what_there_is(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert program.main(["phone", *command, "--help"]) == 0
    assert lines(capsys.readouterr().out) == lines(HELP[command])
