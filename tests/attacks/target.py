"""What is attacked: a pair of servers that runs on this machine, and the certificates that the attacker holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from reticent.address import is_local
from reticent.errors import ReticentError
from reticent.protocol.channels import channel_credentials
from reticent.tls.certificates import Certificate
from reticent_sim.engine import ServerPair

__all__ = ["Finding", "NotReadyError", "Target"]

TIMEOUT = 30.0
"""Seconds that a call of an attacker may take."""


class NotReadyError(ReticentError):
    """The pair of servers lacks what an attack needs: nothing was found out."""


@dataclass(frozen=True)
class Finding:
    """What an attack has gained.

    Args:
        attack: Its name, as in docs/attacks.md.
        succeeded: Whether the attacker got what they wanted.
        sentence: What happened, with the numbers.
    """

    attack: str
    succeeded: bool
    sentence: str

    def __str__(self) -> str:
        return f"{self.attack}: {'SUCCEEDED' if self.succeeded else 'stopped'}: {self.sentence}"


@dataclass(frozen=True)
class Target:
    """Where both servers listen, on this machine only.

    Args:
        certs: A folder of certificates, as `reticent certs init` makes it.
        enrolment: Where the key server serves phones.
        deciding: Where it serves the aggregation server.
        collecting: Where the aggregation server serves phones.
        counting: Where it serves analysts.
    """

    certs: Path
    enrolment: str
    deciding: str
    collecting: str
    counting: str

    def __post_init__(self) -> None:
        for address in (self.enrolment, self.deciding, self.collecting, self.counting):
            if not is_local(address):
                raise ValueError(f"attacks are for servers on this machine only: got {address}")

    @classmethod
    def of(cls, servers: ServerPair) -> Target:
        """The servers that a test has started."""
        endpoints = (servers.enrolment, servers.deciding, servers.collecting, servers.counting)
        return cls(servers.certs, *(endpoint.address for endpoint in endpoints))

    def credentials(self, name: str | None = None) -> grpc.ChannelCredentials:
        """Those of a phone, or of the party whose certificate has this name."""
        if name is None:
            return channel_credentials((self.certs / "ca.crt").read_bytes())
        return Certificate.load(self.certs, name).channel_credentials()
