"""What `reticent certs` says of itself."""

import pytest

from reticent.console import program

HELP = {
    (): """\
Usage: reticent certs COMMAND

Make the certificates by which servers and analysts know each other.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ init   Make an authority, and with it a certificate for the key server, the  │
│        aggregation server and each analyst.                                  │
│ renew  Make all certificates of a folder anew, for the same private keys,    │
│        and further ones.                                                     │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("init",): """\
Usage: reticent certs init [OPTIONS] FOLDER

Make an authority, and with it a certificate for the key server, the aggregation
server and each analyst.

Nothing that is there is overwritten.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  FOLDER  Where they go; for its owner only, where it is new. [required]    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --host STR...     A name or an address by which the servers are called; this │
│                   machine's own unless given. May be repeated.               │
│ --analyst STR...  The name of an analyst. May be repeated.                   │
│ --days INT        How long the certificates last. The authority lasts ten    │
│                   years. [default: 365]                                      │
│ --json            Write JSON for machines. [default: False]                  │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("renew",): """\
Usage: reticent certs renew [OPTIONS] FOLDER

Make all certificates of a folder anew, for the same private keys, and further
ones.

Needs the authority's private key and the certificates, and no other private
keys. Servers read them when they begin.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  FOLDER  Where they are. [required]                                        │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --host STR...     A further name or address by which the servers are called. │
│                   May be repeated.                                           │
│ --analyst STR...  The name of a further analyst. May be repeated.            │
│ --days INT        How long the certificates last. [default: 365]             │
│ --json            Write JSON for machines. [default: False]                  │
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
