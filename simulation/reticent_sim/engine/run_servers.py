"""The servers of a run, at one simulated time: the key server, the aggregation servers and the ad service."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from reticent.protocol.invitation import Invitation
from reticent.rates import RateTable
from reticent.tls.certificates import Certificate
from reticent_agg.ads.folder import AdFolder, AdSources
from reticent_analyst import Analyst
from reticent_sim.engine.ad_server import AdServerProcess
from reticent_sim.engine.process import ServerProcess
from reticent_sim.engine.scenario import Scenario
from reticent_sim.engine.servers import ANALYST, ServerPair

__all__ = ["RunServers"]

JOIN_RATE = 100_000
INVITATION_DAYS = 30
"""Days after the end of the run at which invitations expire: a phone may join as late as on the last day."""


class RunServers:
    """The servers of a scenario. As a context manager, it kills those that run in the end.

    Args:
        scenario: The scenario.
        folder: The folder for the files of the run.
        clock: Where the simulated clocks start.
        aggregation_program: Runs the aggregation server.
    """

    def __init__(
        self, scenario: Scenario, folder: Path, *, clock: dt.datetime, aggregation_program: Sequence[str | Path]
    ) -> None:
        self._scenario, self._world = scenario, scenario.world
        self._folder = folder
        self._pair = ServerPair(
            folder,
            clock=clock,
            key_bits=scenario.key_bits,
            keys_options=(
                *("--join-rate", str(JOIN_RATE), "--min-honest", str(scenario.min_honest)),
                *("--seed", str(scenario.seed)),
            ),
            aggregation_program=aggregation_program,
            database=scenario.database,
            aggregation_servers=scenario.aggregation_servers,
        )
        self._ad_server = AdServerProcess(folder, self._pair.certs) if scenario.ads else None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._pair)
            stack.callback(self._kill_ad_server)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def processes(self) -> list[ServerProcess]:
        """All servers."""
        return [*self._pair.processes, *([] if self._ad_server is None else [self._ad_server])]

    @property
    def aggregation_names(self) -> list[str]:
        """The names of the aggregation servers."""
        return [each.name for each in self._pair.aggregation_servers]

    @property
    def ad_service(self) -> str | None:
        """The address of the ad service, if there is one."""
        return None if self._ad_server is None else self._ad_server.endpoint.address

    def start(self) -> None:
        """Start the key server, and let the aggregation servers begin to start."""
        self._pair.keys.start()
        for process in self._pair.aggregation_servers:
            process.spawn()

    def wait(self) -> None:
        """Return when all servers serve."""
        for process in self._pair.aggregation_servers:
            process.wait()
        if self._ad_server is not None:
            self._world.write(self._folder)
            self.load_rates(None)
            self._ad_server.start()

    def invitations(self) -> list[Invitation]:
        """The invitations of all phones."""
        return self._pair.invitations(self._scenario.phones, days=self._scenario.days + INVITATION_DAYS)

    def analyst(self) -> Analyst:
        """A connection of the analyst."""
        certificate = Certificate.load(self._pair.certs, ANALYST)
        return Analyst(self._pair.counting.address, certificate, self._pair.identity)

    def load_rates(self, learned: RateTable | None) -> None:
        """Let the ad service use these rates from now on."""
        path = self._folder / "rates.npz"
        self._world.served_rates(learned).save(path)
        sources = AdSources(self._folder / "catalogue.csv", path, self._folder / "hierarchy.json")
        assert self._ad_server is not None  # noqa: S101  # there are ads
        self._ad_server.serve(AdFolder(self._ad_server.files).load(sources, {}))

    def move_clocks(self, instant: dt.datetime) -> None:
        """Move the simulated clocks forward."""
        self._pair.move_clocks(instant)

    def _kill_ad_server(self) -> None:
        if self._ad_server is not None and self._ad_server.is_running:
            self._ad_server.kill()
