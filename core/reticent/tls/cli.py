"""`reticent certs`: who is who on the wire."""

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
"""Hosts of servers that are only called on this machine."""

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
    """Make an authority, and with it a certificate for the key server, the aggregation server and each analyst.

    Nothing that is there is overwritten.

    Args:
        folder: Where they go; for its owner only, where it is new.
        host: A name or an address by which the servers are called; this machine's own unless given. May be repeated.
        analyst: The name of an analyst. May be repeated.
        days: How long the certificates last. The authority lasts ten years.
        as_json: Write JSON for machines.
    """
    _tell(create(folder, hosts=host or HERE, analysts=analyst or (), days=days), as_json)


@app.command
def renew(
    folder: Path, /, *, host: Hosts = None, analyst: Analysts = None, days: int = DAYS, as_json: AsJson = False
) -> None:
    """Make all certificates of a folder anew, for the same private keys, and further ones.

    Needs the authority's private key and the certificates, and no other private keys. Servers read them when they
    begin.

    Args:
        folder: Where they are.
        host: A further name or address by which the servers are called. May be repeated.
        analyst: The name of a further analyst. May be repeated.
        days: How long the certificates last.
        as_json: Write JSON for machines.
    """
    _tell(renew_in(folder, hosts=host or (), analysts=analyst or (), days=days), as_json)


def _tell(issued: Sequence[Issued], as_json: bool) -> None:
    if as_json:
        found = [{"path": str(each.path), "name": each.name, "expires": each.expires} for each in issued]
        sys.stdout.write(in_json(found) + "\n")
        return
    for each in issued:
        sys.stdout.write(f"{each.path}: {each.name}, until {each.expires:%Y-%m-%d %H:%M} UTC\n")
