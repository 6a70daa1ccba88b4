"""`reticent certs`: certificates for servers and analysts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from reticent.console.options import AsJson, in_json
from reticent.tls.certificates import DAYS, Issued, create
from reticent.tls.certificates import renew as renew_in

__all__ = ["app"]

HERE = ("localhost", "127.0.0.1", "::1")
"""Hosts of servers on this machine."""

app = App(
    name="certs",
    default_parameter=Parameter(negative=()),
)

Hosts = Annotated[list[str] | None, Parameter(name="--host")]
Analysts = Annotated[list[str] | None, Parameter(name="--analyst")]


@app.command
def init(
    folder: Path, /, *, host: Hosts = None, analyst: Analysts = None, days: int = DAYS, as_json: AsJson = False
) -> None:
    """Create a certificate authority, and certificates for each server and each analyst.

    No existing file is overwritten.

    Args:
        folder: The folder for the files. A new folder is readable by its owner only.
        host: A host name or address of the servers; this machine unless given. May be repeated.
        analyst: The name of an analyst. May be repeated.
        days: Validity of the certificates. The authority is valid for ten years.
        as_json: Print JSON.
    """
    _print(create(folder, hosts=host or HERE, analysts=analyst or (), days=days), as_json)


@app.command
def renew(
    folder: Path, /, *, host: Hosts = None, analyst: Analysts = None, days: int = DAYS, as_json: AsJson = False
) -> None:
    """Renew all certificates of a folder for the same private keys, and add new ones.

    Needs the certificates and the authority's private key, no other private keys. Restart the servers afterwards:
    they read their certificates when they start.

    Args:
        folder: The folder of the files.
        host: Another host name or address of the servers. May be repeated.
        analyst: The name of a new analyst. May be repeated.
        days: Validity of the certificates.
        as_json: Print JSON.
    """
    _print(renew_in(folder, hosts=host or (), analysts=analyst or (), days=days), as_json)


def _print(issued: Sequence[Issued], as_json: bool) -> None:
    if as_json:
        found = [{"path": str(each.path), "name": each.name, "expires": each.expires} for each in issued]
        sys.stdout.write(in_json(found) + "\n")
        return
    for each in issued:
        sys.stdout.write(f"{each.path}: {each.name}, until {each.expires:%Y-%m-%d %H:%M} UTC\n")
