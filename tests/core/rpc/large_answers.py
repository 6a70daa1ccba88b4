"""A server with replies of the requested size, in its own process: a test measures its memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from reticent.rpc import Admission, Caller, unary
from reticent.rpc.listener import Listener
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from tests.core.rpc.services import SERVICE


async def main(folder: Path) -> None:
    async def once(request: wire.KeyRequest, _: Caller) -> wire.KeyReply:
        return wire.KeyReply(public_key=bytes(int(request.key_id)))

    methods = {"Once": unary(Admission(), wire.KeyRequest, once)}
    credentials = Certificate.load(folder, "keys").server_credentials(mutual=False)
    async with Listener("127.0.0.1:0", {SERVICE: methods}, credentials=credentials) as listener:
        sys.stdout.write(f"{listener.address}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)  # until whoever began it closes it


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
