"""The processes of this machine."""

from __future__ import annotations

import subprocess


def of_session(leader: int) -> list[int]:
    """The processes of a session that have not ended: of what was started with `start_new_session=True`."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,sess=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines())
    return [int(pid) for pid, session, state in rows if int(session) == leader and not state.startswith("Z")]
