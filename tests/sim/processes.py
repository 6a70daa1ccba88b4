"""The processes of this machine."""

from __future__ import annotations

import subprocess


def of_session(leader: int, program: str = "") -> list[int]:
    """The processes of a session that have not ended: of what was started with `start_new_session=True`.

    Args:
        leader: Its first process.
        program: A part of their command lines.
    """
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,sess=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = (line.split(maxsplit=3) for line in listed.stdout.splitlines())
    return [
        int(pid)
        for pid, session, state, *arguments in rows
        if int(session) == leader and not state.startswith("Z") and program in "".join(arguments)
    ]
