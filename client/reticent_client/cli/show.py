"""`reticent mask show`: what a file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from reticent.console.options import AsJson
from reticent.storage.documents import parse_json
from reticent_client.cli.mask_files import (
    bad_file,
    busy,
    new_table,
    read_any_days,
    read_chain,
    read_policy,
    terminal,
    write_json,
)
from reticent_client.cli.policy import BOUND_SECONDS, policy_ceiling, reaches_ceiling
from reticent_client.mask.chain import FORMAT as CHAIN
from reticent_client.mask.description import (
    Description,
    describe_chain,
    describe_days,
    describe_policy,
    describe_state,
)
from reticent_client.mask.snapshot import SNAPSHOT

_POLICY, _STORE = b"PK\x03\x04", b"SQLite format 3"
_HEAD = 4096


def show_file(
    file: Path,
    /,
    *,
    with_ceiling: Annotated[bool, Parameter(name="--ceiling")] = False,
    time_limit: float = BOUND_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Show what a file is: a chain, a policy, the stored state of a mask, or days.

    Args:
        file: The file.
        with_ceiling: Of a policy, also compute the most that any private policy can release, unless it reaches it.
        time_limit: With --ceiling, the number of seconds after which its search stops, with a looser bound.
        as_json: Print JSON.
    """
    with busy(f"Reading {file}"):
        found = _description(file, time_limit if with_ceiling else None)
    if as_json:
        write_json(found.to_json())
        return
    screen, facts = terminal(), new_table()
    for row in [("file", found.kind), *found.rows]:
        facts.add_row(*row)
    screen.print(facts)
    if len(found.contexts) > 1:
        contexts = new_table(*found.contexts[0])
        for line in found.contexts[1:]:
            contexts.add_row(*line)
        screen.print("", contexts)


def _description(file: Path, seconds: float | None) -> Description:
    """The description of a file; the search for the ceiling of a policy takes at most so many seconds."""
    with file.open("rb") as opened:
        head = opened.read(_HEAD)
    if head.startswith(_POLICY):
        policy = read_policy(file)
        if seconds is None or reaches_ceiling(policy):
            return describe_policy(policy, policy.ceiling)
        return describe_policy(policy, policy_ceiling(policy, seconds=seconds))
    if head.startswith(_STORE):
        raise ValueError(f"{file} is the store of a phone: reticent phone report shows it")
    if head.lstrip().startswith(b"{"):
        return _document(file)
    try:
        return describe_days(read_any_days(file))
    except ValueError as error:
        raise ValueError(f"{file} is no chain, policy, state or days file: {error}") from error


def _document(file: Path) -> Description:
    """A JSON document: a chain or a state."""
    text = file.read_bytes()
    try:
        document = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{file}: this is no JSON that Reticent wrote: {error}") from error
    if document.get("format") == CHAIN.name:
        return describe_chain(read_chain(file))
    if document.get("format") == SNAPSHOT.name:
        with bad_file():
            return describe_state(text.decode())
    raise ValueError(f"{file} is no chain, policy, state or days file: its format is {document.get('format')!r}")
