"""An ad service as a process, beside the two servers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reticent.protocol.channels import channel_credentials
from reticent.tls.certificates import Certificate
from reticent_agg.ads.folder import AdFolder, AdVersion
from reticent_sim.engine.addresses import free_address
from reticent_sim.engine.endpoint import Endpoint
from reticent_sim.engine.process import TIMEOUT, ServerProcess
from reticent_sim.engine.servers import RETICENT

__all__ = ["AdServerProcess"]


class AdServerProcess(ServerProcess):
    """An ad service, which serves what `reticent ads load` puts into its folder.

    Args:
        folder: The working directory; its folder `ads` holds the files of the service.
        certs: The folder of certificates.
        options: Further options of `reticent ads serve`.
    """

    def __init__(self, folder: Path, certs: Path, options: tuple[str | Path, ...] = ()) -> None:
        authority = Certificate.load(certs, "ads").authority
        self.endpoint = Endpoint(free_address(), lambda: channel_credentials(authority))
        """For phones."""
        self.files = folder / "ads"
        """The folder with all files of the service."""
        super().__init__(
            "ads",
            folder,
            command=lambda: [
                *(*RETICENT, "ads", "serve", "--folder", self.files, "--certs", certs),
                *("--phones", self.endpoint.address, *options),
            ],
            endpoints=(self.endpoint,),
        )

    def serve(self, version: AdVersion) -> None:
        """Return when the service serves a version of its folder. One that does not run serves it when it starts.

        Raises:
            NotServed: It cannot serve the version, or does not in time.
        """
        if self.is_running:
            os.kill(self.pid, signal.SIGHUP)
            AdFolder(self.files).wait_until_served(version, TIMEOUT)
