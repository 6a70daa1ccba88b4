"""The key server and the aggregation server of one folder, as processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from reticent.protocol.channels import channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.tls import certificates
from reticent.tls.certificates import Certificate
from reticent_sim.engine.addresses import free_address
from reticent_sim.engine.endpoint import Endpoint
from reticent_sim.engine.errors import CommandFailed, LaunchError
from reticent_sim.engine.process import ServerProcess, environment

__all__ = ["ANALYST", "RETICENT", "ServerPair", "launched"]

RETICENT = (sys.executable, "-m", "reticent")
"""The program of this Python."""
ANALYST = "ann"
"""The analyst who has a certificate."""
_COMMAND_TIMEOUT, _INVITATION_TIMEOUT = 120.0, 0.01  # seconds; the latter for each invitation
_CERTIFICATE_DAYS = 2
_INVITATION_DAYS = 30
_IDENTITY = re.compile(r"^identity ([0-9a-f]{64})$", re.MULTILINE)


class ServerPair:
    """The two servers, with their certificates. As a context manager, it kills those that run in the end.

    An error inside the context gets the ends of both logs as notes.

    Args:
        folder: An empty folder.
        clock: Where the simulated clocks start; None for the machine's clock.
        key_bits: Length of the Paillier keys, which are good for simulation only.
        keys_options: Further options of `reticent keys serve`.
        aggregation_options: Further options of `reticent agg serve`.
        keys_program: Run instead of `reticent` on the key server's machine.
        aggregation_program: Run instead of `reticent` on the aggregation server's machine.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: dt.datetime | None = None,
        key_bits: int = 1024,
        keys_options: Sequence[str | Path] = (),
        aggregation_options: Sequence[str | Path] = (),
        keys_program: Sequence[str | Path] = RETICENT,
        aggregation_program: Sequence[str | Path] = RETICENT,
    ) -> None:
        self.folder = folder
        self.certs = folder / "certs"
        """The folder of all certificates."""
        self.keys_folder = folder / "keys"
        """All files of the key server."""
        self.database = folder / "aggregation" / "aggregation.db"
        """All data of the aggregation server."""
        self.passphrase = "two servers that do not collude"  # noqa: S105  # of a simulation
        """Seals the key server's secrets."""
        self._passphrase_file = folder / "passphrase"
        self._key_bits = key_bits
        self._keys_options = keys_options
        self._aggregation_options = aggregation_options
        self._keys_program = keys_program
        self._aggregation_program = aggregation_program
        self._batches = 0  # of invitations
        certificates.create(self.certs, hosts=["127.0.0.1", "localhost"], analysts=[ANALYST], days=_CERTIFICATE_DAYS)
        self._passphrase_file.touch(mode=0o600)
        self._passphrase_file.write_text(f"{self.passphrase}\n", encoding="utf-8")
        self.enrolment = Endpoint(free_address(), self.credentials)
        """Of the key server, for phones."""
        self.deciding = Endpoint(free_address(), lambda: self.credentials("aggregation"))
        """Of the key server, for the aggregation server."""
        self.collecting = Endpoint(free_address(), self.credentials)
        """Of the aggregation server, for phones."""
        self.counting = Endpoint(free_address(), lambda: self.credentials(ANALYST))
        """Of the aggregation server, for analysts."""
        self.keys = ServerProcess(
            "keys",
            folder,
            command=self._keys_command,
            endpoints=(self.deciding, self.enrolment),  # phones move its clock
            clock=clock,
        )
        self.aggregation = ServerProcess(
            "aggregation",
            folder,
            command=self._aggregation_command,
            endpoints=(self.collecting, self.counting),  # analysts move its clock
            clock=clock,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for process in self.both:
                error.add_note(f"End of {process.log}:\n{process.end_of_log()}")
        self.kill()

    @property
    def both(self) -> tuple[ServerProcess, ServerProcess]:
        """The key server and the aggregation server."""
        return self.keys, self.aggregation

    @property
    def journal(self) -> Path:
        """The key server's database."""
        return self.keys_folder / "journal.db"

    @property
    def identity(self) -> bytes:
        """The key server's public signing key, from its log."""
        found = _IDENTITY.search(self.keys.log.read_text(encoding="utf-8"))
        if found is None:
            raise LaunchError(f"the key server has not printed its identity:\n{self.keys.end_of_log()}")
        return bytes.fromhex(found[1])

    def credentials(self, name: str | None = None) -> grpc.ChannelCredentials:
        """Of a phone; or with the certificate of this name: "aggregation", "keys" or an analyst."""
        certificate = Certificate.load(self.certs, name or "keys")
        return channel_credentials(certificate.authority) if name is None else certificate.channel_credentials()

    def invitations(self, count: int, days: int = _INVITATION_DAYS) -> list[Invitation]:
        """New invitations, valid for so many days of the key server's clock."""
        self._batches += 1
        output = self.folder / f"invitations-{self._batches}"
        present = dt.datetime.now(dt.UTC)  # the command uses the machine's clock
        ahead = max(0, ((self.keys.clock or present) - present).days)
        written = self.run(
            *("keys", "invite", "--count", str(count), "--output", output, "--folder", self.keys_folder),
            *("--certs", self.certs, "--key-server", self.enrolment.address),
            *("--aggregation-server", self.collecting.address, "--days", str(ahead + days)),
            timeout=_COMMAND_TIMEOUT + count * _INVITATION_TIMEOUT,
        )
        files = [self.folder / line for line in written.splitlines()]  # in the order of the key server's journal
        return [Invitation.from_text(path.read_text(encoding="utf-8")) for path in files]

    def run(self, *arguments: str | Path, timeout: float = _COMMAND_TIMEOUT) -> str:
        """Run a command of `reticent` on the key server's machine; returns its output.

        Raises:
            CommandFailed: It exited with an error, or not in time.
        """
        command = f"reticent {' '.join(map(str, arguments))}"
        try:
            run = subprocess.run(  # noqa: S603  # our own program
                [str(part) for part in (*self._keys_program, *arguments)],
                cwd=self.folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"{command}: no exit within {timeout:g} s") from error
        if run.returncode != 0:
            raise CommandFailed(f"{command}: {run.stderr}")
        return run.stdout

    def move_clocks(self, instant: dt.datetime) -> None:
        """Move both simulated clocks forward. A server that is not running starts at this instant."""
        for process in self.both:
            process.move_clock(instant)

    def kill(self) -> None:
        """Kill the servers that run."""
        with contextlib.ExitStack() as stack:  # both, whatever happens
            for process in self.both:
                if process.is_running:
                    stack.callback(process.kill)

    def _keys_command(self) -> list[str | Path]:
        return [
            *(*self._keys_program, "keys", "serve", "--folder", self.keys_folder, "--certs", self.certs),
            *("--phones", self.enrolment.address, "--decisions", self.deciding.address),
            *("--passphrase-file", self._passphrase_file, "--key-bits", str(self._key_bits), "--simulation"),
            *(*_clock_options(self.keys), *self._keys_options),
        ]

    def _aggregation_command(self) -> list[str | Path]:
        return [
            *(*self._aggregation_program, "agg", "serve", "--folder", self.database.parent, "--certs", self.certs),
            *("--phones", self.collecting.address, "--analysts", self.counting.address),
            *("--key-server", self.deciding.address, "--identity", self.identity.hex(), "--simulation"),
            *(*_clock_options(self.aggregation), *self._aggregation_options),
        ]


@contextlib.contextmanager
def launched(servers: ServerPair) -> Iterator[ServerPair]:
    """Start both servers, and kill them in the end. Both serve when the context begins."""
    with servers:
        for process in servers.both:
            process.start()
        yield servers


def _clock_options(process: ServerProcess) -> tuple[str, ...]:
    return () if process.clock is None else ("--simulated-clock", process.clock.isoformat())
