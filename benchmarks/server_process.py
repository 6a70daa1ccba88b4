"""A server of a benchmark, in a process of its own that answers requests about itself, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.measure import ONE_CORE

__all__ = ["Inspect", "requests", "server"]

DEADLINE = 1200.0  # seconds for a reply

Inspect = Callable[[str], Coroutine[Any, Any, dict[str, Any]]]
"""Sends a request to the server's process, and returns its reply."""


@contextlib.asynccontextmanager
async def server(module: str, folder: Path) -> AsyncIterator[Inspect]:
    """Run the function `serve` of a module of benchmarks in a process, with the folder as its argument."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"from {module} import serve; serve()",
        str(folder),
        env=os.environ | ONE_CORE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    writer, reader = process.stdin, process.stdout

    async def inspect(request: str) -> dict[str, Any]:
        writer.write(f"{request}\n".encode())
        found: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), DEADLINE))
        return found

    try:
        yield inspect
        writer.close()
        await asyncio.wait_for(process.wait(), DEADLINE)
    finally:
        if process.returncode is None:
            process.kill()


async def requests() -> asyncio.StreamReader:
    """Run in the server's process: the requests, a line each."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(sys.stdin.fileno(), "rb")
    )
    return reader
