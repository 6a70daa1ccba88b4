"""What `reticent phone run` and `reticent phone apps` say of themselves."""

import pytest

from reticent.console import program
from tests.client.commands import lines

HELP = {
    ("run",): """\
Usage: reticent phone run [OPTIONS] [ARGS]

Run a phone: mask contexts by a policy, serve apps, and take part in counts once
it has joined.

Contexts are read from standard input, a line for each reading; an empty line
for a reading that failed. The last one before a step begins counts for that
step. Ends with SIGINT or SIGTERM; started again with the same store, it goes on
where it was.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ POLICY  The policy of the mask; for the working days where --weekend is      │
│         given. Without one, no context is released.                          │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --weekend PATH        The policy for Saturdays and Sundays.                  │
│ --store PATH          The file that keeps what must survive a kill: one for  │
│                       each phone. [default: phone.db]                        │
│ --address STR         Where apps reach the phone: unix:/path, or host:port.  │
│                       [default: unix:phone.sock]                             │
│ --zone STR            The time zone of the user's wall clock, such as        │
│                       Europe/Paris; the machine's unless given.              │
│ --hold STR            How long a reading counts, as 30min or 2h; one step    │
│                       unless given.                                          │
│ --app STR...          An app that may connect. Its token is printed when it  │
│                       gets one. May be repeated.                             │
│ --first-day           The store is new, and nothing was released today.      │
│                       Without it an empty store, which may be a lost one,    │
│                       releases nothing until tomorrow. [default: False]      │
│ --participation PATH  What to allow in counts, as TOML. It is kept in the    │
│                       store, and holds until another one is given.           │
│ --counters PATH       A file of counters: CSV with the header name,value, or │
│                       one JSON object. It is read anew for each query.       │
│ --charging            The phone is charging. [default: False]                │
│ --unmetered           Its network is not metered. [default: False]           │
│ --simulation          Accept keys that are only good for simulation.         │
│                       [default: False]                                       │
│ --replay PATH         CSV with the header day,step,context, days named like  │
│                       2027-02-01, in place of standard input. The clock runs │
│                       from the first to the last of them, and nothing is     │
│                       stored; the apps of the store may connect. For trying  │
│                       things out.                                            │
│ --speed FLOAT         How many seconds of a replay pass in one. [default:    │
│                       3600.0]                                                │
│ --certificate PATH    A certificate chain in PEM: apps speak TLS. Needed     │
│                       where other machines can reach the address.            │
│ --key PATH            The certificate's private key in PEM.                  │
│ --quiet               Do not print what is released. [default: False]        │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps",): """\
Usage: reticent phone apps COMMAND

Say which apps may connect to a phone.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ add     Give an app a token, and print it; a former one is void.             │
│ list    List the apps that have a token.                                     │
│ remove  Take an app's token back; its streams end at the next step.          │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps", "add"): """\
Usage: reticent phone apps add [OPTIONS] NAME

Give an app a token, and print it; a former one is void.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  NAME  What the app is called. [required]                                  │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
│ --trusted     Tell it every context, released or not. Nothing is promised    │
│               about what such an app learns. [default: False]                │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps", "remove"): """\
Usage: reticent phone apps remove [OPTIONS] NAME

Take an app's token back; its streams end at the next step.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  NAME  The app. [required]                                                 │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps", "list"): """\
Usage: reticent phone apps list [OPTIONS]

List the apps that have a token.

╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
│ --json        Write JSON for machines. [default: False]                      │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert program.main(["phone", *command, "--help"]) == 0
    assert lines(capsys.readouterr().out) == lines(HELP[command])
