"""What `reticent mask serve` and `reticent mask apps` say of themselves."""

import pytest

from reticent.console import program
from tests.client.commands import lines

HELP = {
    ("serve",): """\
Usage: reticent mask serve [OPTIONS] POLICY

Be a phone: decide every step by a policy, and tell the apps what is released.

Contexts are read from standard input, a line whenever one is read; an empty
line says that nothing could be. The last one before a step begins is that
step's. Ends with SIGINT or SIGTERM; begun again with the same store, it goes on
where it was.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  POLICY  The policy; for the working days where --weekend is given.        │
│            [required]                                                        │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --weekend PATH      The policy for Saturdays and Sundays.                    │
│ --store PATH        The file that keeps what must survive a kill: one for    │
│                     each phone. [default: phone.db]                          │
│ --address STR       Where apps reach the phone: unix:/path, or host:port.    │
│                     [default: unix:phone.sock]                               │
│ --zone STR          The time zone of the user's wall clock, such as          │
│                     Europe/Paris; the machine's unless given.                │
│ --hold STR          How long a reading counts, as 30min or 2h; one step      │
│                     unless given.                                            │
│ --app STR...        An app that may listen. Its token is printed when it     │
│                     gets one. May be repeated.                               │
│ --first-day         The store is new, and nothing was released today.        │
│                     Without it an empty store, which may be a lost one,      │
│                     releases nothing until tomorrow. [default: False]        │
│ --replay PATH       CSV with the header day,step,context, days named like    │
│                     2027-02-01, in place of standard input. The clock runs   │
│                     from the first to the last of them, and nothing is       │
│                     stored; the apps of the store may listen. For trying     │
│                     things out.                                              │
│ --speed FLOAT       How many seconds of a replay pass in one. [default:      │
│                     3600.0]                                                  │
│ --certificate PATH  A certificate chain in PEM: apps speak TLS. Needed where │
│                     other machines can reach the address.                    │
│ --key PATH          The certificate's private key in PEM.                    │
│ --quiet             Do not print what is released. [default: False]          │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps",): """\
Usage: reticent mask apps COMMAND

Say which apps may listen to a phone.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ add     Give an app a token, and print it; a former one is void.             │
│ list    List the apps that have a token.                                     │
│ remove  Take an app's token back; its streams end at the next step.          │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps", "add"): """\
Usage: reticent mask apps add [OPTIONS] NAME

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
Usage: reticent mask apps remove [OPTIONS] NAME

Take an app's token back; its streams end at the next step.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  NAME  The app. [required]                                                 │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --store PATH  The phone's store. [default: phone.db]                         │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("apps", "list"): """\
Usage: reticent mask apps list [OPTIONS]

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
    assert program.main(["mask", *command, "--help"]) == 0
    assert lines(capsys.readouterr().out) == lines(HELP[command])
