"""The two servers as real processes on this machine, over TLS, with certificates and invitations.

    with launched(ServerPair(folder, clock=START)) as servers:  # both serve
        invitations = servers.invitations(100)
        channel = servers.enrolment.channel()  # of a phone to the key server, for asyncio
        servers.keys.kill()
        servers.keys.start()  # at the same addresses, with the same data
        servers.move_clocks(START + timedelta(days=1))

Each function blocks, and has a timeout. No server outlives this process, not even if this process is killed.
"""

from typing import TYPE_CHECKING

from reticent.lazy_imports import lazy_names

if TYPE_CHECKING:
    from reticent_sim.engine.ad_server import AdServerProcess
    from reticent_sim.engine.addresses import free_address
    from reticent_sim.engine.endpoint import Endpoint
    from reticent_sim.engine.errors import CommandFailed, LaunchError, ServerExited, ServerTimeout
    from reticent_sim.engine.process import ServerProcess
    from reticent_sim.engine.servers import ANALYST, RETICENT, ServerPair, launched
else:  # workers of experiments start no servers
    __getattr__ = lazy_names(
        __name__,
        {
            "ANALYST": "reticent_sim.engine.servers",
            "AdServerProcess": "reticent_sim.engine.ad_server",
            "CommandFailed": "reticent_sim.engine.errors",
            "Endpoint": "reticent_sim.engine.endpoint",
            "LaunchError": "reticent_sim.engine.errors",
            "RETICENT": "reticent_sim.engine.servers",
            "ServerExited": "reticent_sim.engine.errors",
            "ServerPair": "reticent_sim.engine.servers",
            "ServerProcess": "reticent_sim.engine.process",
            "ServerTimeout": "reticent_sim.engine.errors",
            "free_address": "reticent_sim.engine.addresses",
            "launched": "reticent_sim.engine.servers",
        },
    )

__all__ = [
    "ANALYST",
    "RETICENT",
    "AdServerProcess",
    "CommandFailed",
    "Endpoint",
    "LaunchError",
    "ServerExited",
    "ServerPair",
    "ServerProcess",
    "ServerTimeout",
    "free_address",
    "launched",
]
