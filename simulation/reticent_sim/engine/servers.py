"""The key server and the aggregation servers of one folder, as processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
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
from reticent_sim.engine.faults.fault import aggregation_name
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
    """The servers, with their certificates. As a context manager, it kills those that run in the end.

    An error inside the context gets the ends of all logs as notes. Several aggregation servers share one PostgreSQL
    database, and the phones are spread over them: a phone calls the one of its number, modulo their number.

    Args:
        folder: An empty folder.
        clock: Where the simulated clocks start; None for the machine's clock.
        key_bits: Length of the Paillier keys, which are good for simulation only.
        keys_options: Further options of `reticent keys serve`.
        aggregation_options: Further options of `reticent agg serve`.
        keys_program: Run instead of `reticent` on the key server's machine.
        aggregation_program: Run instead of `reticent` on the aggregation server's machine.
        database: The address of a PostgreSQL database for the data of all servers; files of the folder unless given.
        aggregation_servers: The number of aggregation servers; more than one need a database.

    Raises:
        ValueError: There are several aggregation servers, but no database.
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
        database: str | None = None,
        aggregation_servers: int = 1,
    ) -> None:
        if aggregation_servers > 1 and database is None:
            raise ValueError(f"{aggregation_servers} aggregation servers need a PostgreSQL database")
        self.folder = folder
        self.certs = folder / "certs"
        """The folder of all certificates."""
        self.keys_folder = folder / "keys"
        """All files of the key server."""
        self.database = folder / "aggregation" / "aggregation.db"
        """All data of the aggregation server, without a PostgreSQL database."""
        self.passphrase = "two servers that do not collude"  # noqa: S105  # of a simulation
        """Seals the key server's secrets."""
        self._passphrase_file = folder / "passphrase"
        self._key_bits = key_bits
        self._keys_options = keys_options
        self._aggregation_options = aggregation_options
        self._keys_program = keys_program
        self._aggregation_program = aggregation_program
        self._database_options = () if database is None else ("--database", database)
        self._batches = 0  # of invitations
        certificates.create(self.certs, hosts=["127.0.0.1", "localhost"], analysts=[ANALYST], days=_CERTIFICATE_DAYS)
        self._passphrase_file.touch(mode=0o600)
        self._passphrase_file.write_text(f"{self.passphrase}\n", encoding="utf-8")
        self.enrolment = Endpoint(free_address(), self.credentials)
        """Of the key server, for phones."""
        self.deciding = Endpoint(free_address(), lambda: self.credentials("aggregation"))
        """Of the key server, for the aggregation server."""
        self._collecting = [Endpoint(free_address(), self.credentials) for _ in range(aggregation_servers)]
        self._counting = [
            Endpoint(free_address(), lambda: self.credentials(ANALYST)) for _ in range(aggregation_servers)
        ]
        self.keys = ServerProcess(
            "keys",
            folder,
            command=self._keys_command,
            endpoints=(self.deciding, self.enrolment),  # phones move its clock
            clock=clock,
        )
        self.aggregation_servers = [
            ServerProcess(
                aggregation_name(number),
                folder,
                command=partial(self._aggregation_command, number),
                endpoints=(self._collecting[number], self._counting[number]),  # analysts move its clock
                clock=clock,
            )
            for number in range(aggregation_servers)
        ]
        """All aggregation servers, which share their data."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for process in self.processes:
                error.add_note(f"End of {process.log}:\n{process.end_of_log()}")
        self.kill()

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The key server, and then the aggregation servers."""
        return self.keys, *self.aggregation_servers

    @property
    def aggregation(self) -> ServerProcess:
        """The first aggregation server, which analysts call."""
        return self.aggregation_servers[0]

    @property
    def collecting(self) -> Endpoint:
        """Of the first aggregation server, for phones."""
        return self._collecting[0]

    @property
    def counting(self) -> Endpoint:
        """Of the first aggregation server, for analysts."""
        return self._counting[0]

    @property
    def journal(self) -> Path:
        """The key server's database, without a PostgreSQL database."""
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
            *self._database_options,
            timeout=_COMMAND_TIMEOUT + count * _INVITATION_TIMEOUT,
        )
        files = [self.folder / line for line in written.splitlines()]  # in the order of the key server's journal
        found = [Invitation.from_text(path.read_text(encoding="utf-8")) for path in files]
        addresses = [each.address for each in self._collecting]
        return [
            replace(each, aggregation_server=addresses[number % len(addresses)]) for number, each in enumerate(found)
        ]

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
        """Move all simulated clocks forward. A server that is not running starts at this instant."""
        for process in self.processes:
            process.move_clock(instant)

    def kill(self) -> None:
        """Kill the servers that run."""
        with contextlib.ExitStack() as stack:  # all, whatever happens
            for process in self.processes:
                if process.is_running:
                    stack.callback(process.kill)

    def _keys_command(self) -> list[str | Path]:
        return [
            *(*self._keys_program, "keys", "serve", "--folder", self.keys_folder, "--certs", self.certs),
            *("--phones", self.enrolment.address, "--decisions", self.deciding.address),
            *("--passphrase-file", self._passphrase_file, "--key-bits", str(self._key_bits), "--simulation"),
            *("--metrics", "127.0.0.1:0"),
            *(*_clock_options(self.keys), *self._keys_options, *self._database_options),
            *(("--standby",) if self._database_options else ()),  # PostgreSQL may notice a kill after the next start
        ]

    def _aggregation_command(self, number: int) -> list[str | Path]:
        process = self.aggregation_servers[number]
        return [
            *(
                *self._aggregation_program,
                "agg",
                "serve",
                "--folder",
                self.folder / process.name,
                "--certs",
                self.certs,
            ),
            *("--phones", self._collecting[number].address),
            *("--analysts", self._counting[number].address),
            *("--key-server", self.deciding.address, "--identity", self.identity.hex(), "--simulation"),
            *("--metrics", "127.0.0.1:0"),
            *(*_clock_options(process), *self._aggregation_options, *self._database_options),
        ]


@contextlib.contextmanager
def launched(servers: ServerPair) -> Iterator[ServerPair]:
    """Start all servers, and kill them in the end. All serve when the context begins."""
    with servers:
        for process in servers.processes:
            process.start()
        yield servers


def _clock_options(process: ServerProcess) -> tuple[str, ...]:
    return () if process.clock is None else ("--simulated-clock", process.clock.isoformat())
