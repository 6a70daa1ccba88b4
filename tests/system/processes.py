"""The two servers as real processes, with TLS on loopback: started, killed, started again on what is on their disk.

    with running(folder) as servers:  # certificates, a key server, an aggregation server: both serve when this begins
        invitations = servers.invitations(100)  # by `reticent keys invite`
        servers.keys.kill()  # SIGKILL
        servers.keys.start()  # at the same address, from the same folder; returns when it serves
        channel = servers.channel(servers.keys.phones)  # grpc.aio, as a phone
        channel = servers.channel(servers.keys.others, "aggregation")  # showing this certificate
        channel = servers.channel(servers.aggregation.others, ANALYST)

Addresses stay what they are through all restarts. With `clock=START` both servers have a simulated clock, which only
`servers.move(instant)` moves, and which a server that is started again finds where it was.

Nothing waits for ever: what does not come in time raises `TimeoutError`, and a process that ends when it should serve
`Died`. Whatever goes wrong inside `running`, the ends of both servers' logs are printed, which pytest then shows. All
functions that are not said to be async block; in an event loop call them by `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from reticent.protocol.channels import channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.tls import certificates
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from tests.addresses import free_address

__all__ = ["ANALYST", "RETICENT", "Died", "Process", "Servers", "ending", "reticent", "running"]

RETICENT = (sys.executable, "-m", "reticent")
"""The program, as this Python has it."""

ANALYST = "ann"
TIMEOUT = 60.0
"""Seconds in which a server must begin or end; it takes three on a busy machine."""
A_COMMAND = 120.0
"""Seconds in which a command must be done."""
LOG_SHOWN = 6000
A_MONTH = 30
_PAUSE = 0.02
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Died(AssertionError):
    """A server's process ended when it should have served."""


def reticent(*arguments: str | Path, folder: Path, program: Sequence[str | Path] = RETICENT) -> str:
    """What a command prints, run in this folder; it must succeed."""
    done = subprocess.run(
        [*map(str, (*program, *arguments))],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=A_COMMAND,
        check=False,
    )
    assert done.returncode == 0, f"reticent {' '.join(map(str, arguments))}: {done.stderr}"
    return done.stdout


class Process:
    """A server's process, which may be killed and started again.

    Args:
        name: Names its log, in the folder.
        folder: Where it runs.
        command: Says how it is started at this moment.
        ways: How it is called at both addresses, to see whether it is there.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        command: Callable[[], Sequence[str | Path]],
        ways: Callable[[], Sequence[grpc.ChannelCredentials]],
    ) -> None:
        self.name = name
        self.phones = free_address()
        """Where it serves phones."""
        self.others = free_address()
        """Where it serves the other server, or analysts."""
        self.log = folder / f"{name}.log"
        self.killed: Callable[[], object] = lambda: None
        """What a kill does besides; tests may have the machine lose power, too."""
        self._folder = folder
        self._command = command
        self._ways = ways
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether there is a process, which serves or begins to."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """With what it ended: less than 0 by a signal."""
        return None if self._process is None else self._process.poll()

    def start(self, timeout: float = TIMEOUT) -> None:
        """Start it, and return when it serves."""
        self.spawn()
        self.wait(timeout)

    def spawn(self) -> None:
        """Start it, and do not wait."""
        assert not self.runs, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(part) for part in self._command()],
                cwd=self._folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Return when it serves at both addresses, as its health service says."""
        until = time.monotonic() + timeout
        for address, way in zip((self.phones, self.others), self._ways(), strict=True):
            while not self._is_well(address, way, until):
                if not self.runs:
                    raise Died(f"{self.name} ended:\n{self.end_of_log()}")
                if time.monotonic() > until:
                    raise TimeoutError(f"{self.name} does not serve after {timeout} s:\n{self.end_of_log()}")
                time.sleep(_PAUSE)

    def kill(self) -> None:
        """Kill it: nothing that it meant to do is done any more."""
        self._signalled(signal.SIGKILL)
        self.killed()

    def stop(self) -> None:
        """Have it end of its own accord, which it must do well."""
        code = self._signalled(signal.SIGTERM)
        assert code == 0, f"{self.name} ended with {code}:\n{self.end_of_log()}"

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def memory(self) -> int:
        """How many bytes of it are in memory now."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """How many were at most, since it began or `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Begin to look for the peak anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="utf-8")

    def end_of_log(self) -> str:
        """The last that it has printed."""
        return self.log.read_text(errors="replace")[-LOG_SHOWN:] if self.log.exists() else "(it has said nothing)"

    def _status(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def _signalled(self, number: signal.Signals) -> int:
        assert self._process is not None
        assert self.runs, f"{self.name} is gone already:\n{self.end_of_log()}"
        self._process.send_signal(number)
        return self._process.wait(TIMEOUT)

    @staticmethod
    def _is_well(address: str, way: grpc.ChannelCredentials, until: float) -> bool:
        if not _listens(address):
            return False  # a channel that found nobody would wait before it looks again
        with grpc.secure_channel(address, way) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            left = min(5.0, max(0.1, until - time.monotonic()))
            try:
                answer = check(health_pb2.HealthCheckRequest(), timeout=left)
            except grpc.RpcError:
                return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING


class Servers:
    """Both servers of a folder, with their certificates.

    Args:
        folder: An empty folder.
        clock: Where simulated clocks begin; None for the machine's own.
        key_bits: How long the Paillier keys are; they are good for simulation only.
        keys_options: Further options of `reticent keys serve`.
        aggregation_options: Further options of `reticent agg serve`.
        keys_program: What is run instead of `reticent`, for the key server and its invitations.
        aggregation_program: The same for the aggregation server.
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
        self.passphrase = folder / "passphrase"
        self.now = clock
        self.journal = folder / "keys" / "journal.db"
        """What the key server keeps."""
        self.database = folder / "aggregation" / "aggregation.db"
        """What the aggregation server keeps."""
        self._key_bits = key_bits
        self._keys_options = keys_options
        self._aggregation_options = aggregation_options
        self.keys_program = keys_program
        """By what commands are run on the key server's machine."""
        self._aggregation_program = aggregation_program
        self._invited = 0
        certificates.create(self.certs, hosts=["127.0.0.1", "localhost"], analysts=[ANALYST], days=2)
        self.passphrase.touch(mode=0o600)
        self.passphrase.write_text("two servers that do not collude\n", encoding="utf-8")
        self.authority = Certificate.load(self.certs, "keys").authority
        self.keys = Process("keys", folder, command=self._keys_command, ways=lambda: self._ways("aggregation"))
        self.aggregation = Process(
            "aggregation", folder, command=self._aggregation_command, ways=lambda: self._ways(ANALYST)
        )

    @property
    def both(self) -> tuple[Process, Process]:
        return self.keys, self.aggregation

    @property
    def identity(self) -> bytes:
        """The key server's, as it says when it begins."""
        found = re.search(r"^identity ([0-9a-f]{64})$", self.keys.log.read_text(), re.MULTILINE)
        assert found is not None, self.keys.end_of_log()
        return bytes.fromhex(found[1])

    def invitations(self, count: int, days: int = A_MONTH) -> list[Invitation]:
        """New invitations, from `reticent keys invite`, good for so many days of the servers' clock."""
        self._invited += 1
        where = self.folder / f"invitations-{self._invited}"
        present = dt.datetime.now(dt.UTC)  # by which the command goes
        ahead = max(0, ((self.now or present) - present).days)
        reticent(
            *("keys", "invite", "--count", str(count), "--output", where, "--folder", self.journal.parent),
            *("--certs", self.certs, "--key-server", self.keys.phones),
            *("--aggregation-server", self.aggregation.phones, "--days", str(ahead + days)),
            folder=self.folder,
            program=self.keys_program,
        )
        return [Invitation.from_text(path.read_text()) for path in sorted(where.iterdir())]

    def credentials(self, name: str | None = None) -> grpc.ChannelCredentials:
        """Those of a phone, or of the party whose certificate has this name: "aggregation", "keys" or an analyst."""
        if name is None:
            return channel_credentials(self.authority)
        return Certificate.load(self.certs, name).channel_credentials()

    def channel(self, address: str, name: str | None = None) -> grpc.aio.Channel:
        """A way to an address, as `credentials` says, that looks again at once when the server was away."""
        options = (
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
        )
        return grpc.aio.secure_channel(address, self.credentials(name), options=options)

    def move(self, instant: dt.datetime) -> None:
        """Set the simulated clocks of those servers that run forward to an instant; the others begin there."""
        assert self.now is not None, "these servers go by the machine's clock"
        assert self.now <= instant, f"it is {self.now} already"
        self.now = instant
        milliseconds = (instant - _EPOCH) // dt.timedelta(milliseconds=1)
        # The key server's clock is moved by phones, as nobody else may; the other one's by analysts.
        for process, address, name in (
            (self.keys, self.keys.phones, None),
            (self.aggregation, self.aggregation.others, ANALYST),
        ):
            if process.runs:
                with grpc.secure_channel(address, self.credentials(name)) as channel:
                    stub = counting_pb2_grpc.SimulatedClockStub(channel)
                    stub.Move(wire.Instant(milliseconds=milliseconds), timeout=TIMEOUT, wait_for_ready=True)

    def end(self) -> None:
        """Kill whatever runs."""
        for process in self.both:
            if process.runs:
                process.kill()

    def _ways(self, other: str) -> list[grpc.ChannelCredentials]:
        return [self.credentials(), self.credentials(other)]

    def _keys_command(self) -> list[str | Path]:
        return [
            *(*self.keys_program, "keys", "serve", "--folder", self.journal.parent, "--certs", self.certs),
            *("--phones", self.keys.phones, "--decisions", self.keys.others),
            *("--passphrase-file", self.passphrase, "--key-bits", str(self._key_bits), "--simulation"),
            *(*self._clock(), *self._keys_options),
        ]

    def _aggregation_command(self) -> list[str | Path]:
        return [
            *(*self._aggregation_program, "agg", "serve", "--folder", self.database.parent, "--certs", self.certs),
            *("--phones", self.aggregation.phones, "--analysts", self.aggregation.others),
            *("--key-server", self.keys.others, "--identity", self.identity.hex(), "--simulation"),
            *(*self._clock(), *self._aggregation_options),
        ]

    def _clock(self) -> list[str]:
        return [] if self.now is None else ["--simulated-clock", self.now.isoformat()]


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    clock: dt.datetime | None = None,
    key_bits: int = 1024,
    keys_options: Sequence[str | Path] = (),
    aggregation_options: Sequence[str | Path] = (),
    keys_program: Sequence[str | Path] = RETICENT,
    aggregation_program: Sequence[str | Path] = RETICENT,
) -> Iterator[Servers]:
    """Both servers, which serve when this begins and are killed in the end. Arguments as for `Servers`."""
    servers = Servers(
        folder,
        clock=clock,
        key_bits=key_bits,
        keys_options=keys_options,
        aggregation_options=aggregation_options,
        keys_program=keys_program,
        aggregation_program=aggregation_program,
    )
    with ending(servers):
        servers.keys.start()
        servers.aggregation.start()
        yield servers


@contextlib.contextmanager
def ending(servers: Servers) -> Iterator[None]:
    """Show the ends of both logs if something goes wrong, and have no server run when this ends."""
    try:
        yield
    except BaseException:
        for process in servers.both:
            sys.stdout.write(f"── the end of {process.log} ──\n{process.end_of_log()}\n")
        raise
    finally:
        servers.end()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """This process's, without what would configure a server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RETICENT_")}
