"""The options of commands that connect to the aggregation server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from reticent.console.options import ANALYSTS, CERTIFICATES
from reticent.tls.certificates import Certificate
from reticent_analyst.analyst import Analyst
from reticent_analyst.client import Timeouts
from reticent_analyst.progress_display import ProgressDisplay

__all__ = ["ConnectionOptions"]


@Parameter(name="*")
@dataclass(frozen=True)
class ConnectionOptions:
    """The options of a connection to the aggregation server.

    Args:
        identity: The key server's identity, which signs decisions: 64 hexadecimal digits, or the file with them.
        analyst: The analyst's name, as in the certificate.
        address: The host:port at which the aggregation server listens for analysts.
        certs: The folder of certificates, with the analyst's own.
        max_outage: Seconds that the server may be unavailable; at most ten if it never replied.
    """

    identity: str
    analyst: str
    address: str = ANALYSTS
    certs: Path = CERTIFICATES
    max_outage: float = Timeouts.max_outage

    @contextmanager
    def connected(self) -> Iterator[tuple[Analyst, ProgressDisplay]]:
        """An analyst with this connection, and the display of what it waits for."""
        timeouts = Timeouts(max_outage=self.max_outage, poll=min(Timeouts.poll, self.max_outage))
        certificate = Certificate.load(self.certs, self.analyst)
        with (
            ProgressDisplay() as display,
            Analyst(
                self.address,
                certificate,
                self.identity,
                timeouts=timeouts,
                on_progress=display.on_progress,
                on_outage=display.on_outage,
            ) as analyst,
        ):
            display.show(f"waiting for the aggregation server at {self.address}")
            yield analyst, display
