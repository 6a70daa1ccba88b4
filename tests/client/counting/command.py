"""`reticent phone` as a process, while the servers of a test go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import IO, Any

from reticent.protocol import SigningKey
from reticent.protocol.invitation import Invitation
from tests.client.counting.network import Network
from tests.client.counting.world import Servers

PROGRAM = Path(sys.executable).with_name("reticent")
DEADLINE = 60.0  # seconds for a process, or for a test that runs some
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


async def started(
    folder: Path, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        PROGRAM, "phone", *arguments, cwd=folder, env=ENVIRONMENT, stdout=stdout, stderr=subprocess.PIPE
    )


async def told(folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What a run says on its two outputs, while the servers of the test go on."""
    process = await started(folder, *arguments)
    out, complained = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == code, complained.decode()
    return out.decode(), complained.decode()


def within(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE))


def invitation(folder: Path, invitation: Invitation | None = None) -> Path:
    """A file with an invitation; to servers that are not there unless it is given."""
    path = folder / "invitation.json"
    found = invitation or Invitation(bytes(16), SigningKey().public, authority(), "localhost:1", "localhost:2")
    path.write_text(found.to_text())
    path.chmod(0o600)
    return path


def authority() -> str:
    return (Path(__file__).parents[2] / "vectors" / "test-only-phone.crt").read_text()


@contextlib.asynccontextmanager
async def joined(folder: Path) -> AsyncIterator[Network]:
    """Servers, and a phone in this folder that has joined."""
    network = Network(Servers())
    async with network.listening(folder / "certs"):
        invitation(folder, network.invitation)
        await told(folder, "join", "invitation.json")
        yield network
