"""What `reticent certs` says of itself."""

import pytest

from reticent.console import program

HELP = {
    (): """\
Usage: reticent certs COMMAND

Make the certificates of servers and analysts.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ init   Create a certificate authority, and certificates for both servers and │
│        each analyst.                                                         │
│ renew  Renew all certificates of a folder for the same private keys, and add │
│        new ones.                                                             │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("init",): """\
Usage: reticent certs init [OPTIONS] FOLDER

Create a certificate authority, and certificates for both servers and each
analyst.

No existing file is overwritten.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  FOLDER  The folder for the files. A new folder is readable by its owner   │
│            only. [required]                                                  │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --host STR...     A host name or address of the servers; this machine unless │
│                   given. May be repeated.                                    │
│ --analyst STR...  The name of an analyst. May be repeated.                   │
│ --days INT        Validity of the certificates. The authority is valid for   │
│                   ten years. [default: 365]                                  │
│ --json            Write JSON. [default: False]                               │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("renew",): """\
Usage: reticent certs renew [OPTIONS] FOLDER

Renew all certificates of a folder for the same private keys, and add new ones.

Needs the certificates and the authority's private key, no other private keys.
Restart the servers afterwards: they read their certificates when they start.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  FOLDER  The folder of the files. [required]                               │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --host STR...     Another host name or address of the servers. May be        │
│                   repeated.                                                  │
│ --analyst STR...  The name of a new analyst. May be repeated.                │
│ --days INT        Validity of the certificates. [default: 365]               │
│ --json            Write JSON. [default: False]                               │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_the_help_of_certs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert program.main(["certs", *command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()] == HELP[command].splitlines()
