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
│ contribute  Answer what is asked, send again what did not get through, and   │
│             learn what became of it.                                         │
│ join        Become one of the phones that are counted. Where no answer came, │
│             run it again.                                                    │
│ leave       Take part in nothing new from now on, and tell the key server.   │
│             Where no answer came, run it again.                              │
│ report      Say what became of a phone's steps, policy by policy, and        │
│             whether habits have changed since they were learned.             │
│ run         Run a phone: mask contexts by a policy, serve apps, and take     │
│             part in counts once it has joined.                               │
│ status      Show the membership, the budget, and each query with what became │
│             of it.                                                           │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("join",): """\
Usage: reticent phone join [OPTIONS] INVITATION

Become one of the phones that are counted. Where no answer came, run it again.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  INVITATION  The file that the key server's operator has handed over.      │
│                [required]                                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH            The file that keeps the keys, the contributions and  │
│                         what was spent: one for each phone. [default:        │
│                         phone.db]                                            │
│ --budget-epsilon FLOAT  How much to spend in all, ever; 4 unless given. It   │
│                         is said once.                                        │
│ --budget-delta FLOAT    See there; 1e-05 unless given.                       │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("contribute",): """\
Usage: reticent phone contribute [OPTIONS] [ARGS...]

Answer what is asked, send again what did not get through, and learn what became
of it.

Ends with 1 where a server was not there, or refused for now: run it again
later.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ COUNTER  What was counted, as NAME=VALUE.                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --counters PATH         A file with more of them: CSV with the header        │
│                         name,value, or one JSON object. It is read anew for  │
│                         each query.                                          │
│ --store PATH            The phone's store. [default: phone.db]               │
│ --policy PATH           What to allow, as TOML. It is kept in the store, and │
│                         holds until another one is given.                    │
│ --watch                 Go on until SIGINT or SIGTERM. [default: False]      │
│ --charging              The phone is charging. [default: False]              │
│ --unmetered             Its network is not metered. [default: False]         │
│ --budget-epsilon FLOAT  How much to spend in all, ever: to be said with the  │
│                         first command, if at all.                            │
│ --budget-delta FLOAT    See there.                                           │
│ --simulation            Accept keys that are only good for simulation.       │
│                         [default: False]                                     │
│ --seed INT              Make the noise from this number, which anybody can   │
│                         do who knows it: for simulation only, and what is    │
│                         said is marked.                                      │
│ --json                  Write JSON for machines, a line for each round.      │
│                         [default: False]                                     │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("leave",): """\
Usage: reticent phone leave [OPTIONS]

Take part in nothing new from now on, and tell the key server. Where no answer
came, run it again.

What was contributed before is counted.

╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("status",): """\
Usage: reticent phone status [OPTIONS]

Show the membership, the budget, and each query with what became of it.

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
