"""The files of docs/operations, started on this machine: their commands, with other folders and addresses."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import yaml

from reticent.paillier import PublicKey
from reticent.protocol import statements
from reticent.protocol.channels import channel_credentials
from reticent.protocol.invitation import Invitation
from reticent.tls import certificates
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent.v1.counting_pb2_grpc import CollectingStub, CountingStub
from reticent_sim.engine.addresses import free_address
from tests.parties.phone import joined
from tests.parties.queries import visits
from tests.parties.waiting import block_until
from tests.system.documents import ROOT

OPERATIONS = ROOT / "docs" / "operations"
RETICENT = (sys.executable, "-m", "reticent")
TIMEOUT = 60.0
PHONES = 4
SMALL = {
    "RETICENT_KEYS_SERVE_SIMULATION": "true",
    "RETICENT_KEYS_SERVE_KEY_BITS": "1024",
    "RETICENT_KEYS_SERVE_MIN_HONEST": "2",
    "RETICENT_KEYS_SERVE_MIN_LIARS_SHARE": "0",
    "RETICENT_AGG_SERVE_SIMULATION": "true",
}
"""Options beside those of the files: short keys, and queries of few phones."""

_ADDRESS = re.compile(r"(?P<host>[\w.-]+):(?P<port>\d{4})(?!\d)")
_ANY_HOST = {"0.0.0.0", "127.0.0.1"}  # noqa: S104  # in the files


@dataclass
class Unit:
    """A unit of systemd: all values of each setting of its service."""

    settings: dict[str, list[str]]

    @classmethod
    def read(cls, name: str, instance: str = "") -> Unit:
        """A unit of docs/operations/systemd, as this instance of its template."""
        text = (OPERATIONS / "systemd" / name).read_text(encoding="utf-8").replace("\\\n", " ").replace("%i", instance)
        settings: dict[str, list[str]] = {}
        for line in text.partition("[Service]")[2].partition("[Install]")[0].splitlines():
            if line and not line.startswith("#"):
                key, _, value = line.partition("=")
                settings.setdefault(key, []).append(value)
        return cls(settings)

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for value in self.settings.get("Environment", []) for each in shlex.split(value))


def compose_file() -> dict[str, Any]:
    """The services of docs/operations/compose.yaml, and the rest of it."""
    content: dict[str, Any] = yaml.safe_load((OPERATIONS / "compose.yaml").read_text(encoding="utf-8"))
    return content


@dataclass
class Site:
    """A folder in which the commands run, with an address here for each address in the files."""

    folder: Path
    addresses: dict[tuple[str, int], str] = field(default_factory=dict)
    """By host and port; the hosts of a machine with all processes are one."""
    logs: list[Path] = field(default_factory=list)

    @property
    def certs(self) -> Path:
        return self.folder / "certs"

    def prepare(self) -> None:
        """Certificates, and a passphrase."""
        certificates.create(self.certs, hosts=["127.0.0.1"], analysts=["ann"], days=2)
        passphrase = self.folder / "passphrase"
        passphrase.touch(mode=0o600)
        passphrase.write_text("two servers that do not collude\n", encoding="utf-8")

    def placed(self, words: Sequence[str], paths: Mapping[str, object], machine: str | None = None) -> list[str]:
        """A command with paths and addresses of this machine.

        Args:
            words: The command.
            paths: What replaces what.
            machine: The name of the machine it runs on; None if all commands run on one.
        """
        return [self._placed(word, paths, machine) for word in words]

    def _placed(self, word: str, paths: Mapping[str, object], machine: str | None) -> str:
        def address(found: re.Match[str]) -> str:
            host = "" if machine is None else machine if found["host"] in _ANY_HOST else found["host"]
            return self.addresses.setdefault((host, int(found["port"])), free_address())

        for old, new in paths.items():
            word = word.replace(old, str(new))
        return _ADDRESS.sub(address, word)

    @contextlib.contextmanager
    def running(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
        """Run a process, which ends well when it is told to."""
        log = self.folder / f"{name}.log"
        self.logs.append(log)
        everything = {**os.environ, **SMALL, **environment}
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=self.folder, env=everything, stdout=output, stderr=output)
            try:
                yield
                process.terminate()
                assert process.wait(TIMEOUT) == 0, log.read_text()
            finally:
                process.kill()
                process.wait()

    def wait_until_ready(self, address: str) -> None:
        """Return when a process serves."""
        block_until(lambda: status(address, "/-/ready") == 200, f"{address}: {self._ends()}", within=TIMEOUT)

    def _ends(self) -> str:
        return "\n".join(log.read_text()[-2000:] for log in self.logs if log.exists())

    def credentials(self, name: str | None = None) -> grpc.ChannelCredentials:
        """Of a phone, or of the party with this certificate."""
        certificate = Certificate.load(self.certs, name or "keys")
        return channel_credentials(certificate.authority) if name is None else certificate.channel_credentials()

    def count(self, keys_folder: Path, enrolment: str, counting: str, collecting: Sequence[str]) -> None:
        """Phones enrol and contribute to a query, in turn to each process, and its sum is released.

        Another query stays open.
        """
        output = self.folder / "invitations"
        options = ("--folder", keys_folder, "--certs", self.certs, "--output", output, "--count", str(PHONES))
        subprocess.run([*RETICENT, "keys", "invite", *options], check=True, stdout=subprocess.DEVNULL)
        invitations = [Invitation.from_text(path.read_text(encoding="utf-8")) for path in output.iterdir()]
        with grpc.secure_channel(enrolment, self.credentials()) as channel:
            phones = joined(channel, invitations)
        with contextlib.ExitStack() as stack:
            analyst = CountingStub(stack.enter_context(grpc.secure_channel(counting, self.credentials("ann"))))
            ways = [
                CollectingStub(stack.enter_context(grpc.secure_channel(address, self.credentials())))
                for address in collecting
            ]
            terms = analyst.GetTerms(wire.TermsRequest(), timeout=TIMEOUT)
            key = PublicKey.from_bytes(terms.public_key, simulation=True)
            query = visits(key, PHONES, id="visits", cohorts=1, min_contributions=3, enough=PHONES, closes_after=600)
            analyst.Announce(wire.AnnounceRequest(query=query.to_bytes()), timeout=TIMEOUT)
            for number, phone in enumerate(phones):
                way = ways[number % len(ways)]
                [found] = way.Announcements(wire.AnnouncementsRequest(phone=phone.id), timeout=TIMEOUT).announcements
                message = phone.message(query, key, found.agreement_key, found.cohort, (1,))
                way.Contribute(message, timeout=TIMEOUT)
            wanted = wire.StatusRequest(id=query.id)
            block_until(lambda: analyst.Status(wanted, timeout=TIMEOUT).phase == wire.DECIDED, self._ends())
            [cohort] = analyst.Status(wanted, timeout=TIMEOUT).cohorts
            assert cohort.decision.outcome == wire.RELEASED
            assert [statements.integer_from(each) for each in cohort.decision.sums] == [PHONES]
            later = visits(key, PHONES, id="later", cohorts=1, min_contributions=3, closes_after=600)
            analyst.Announce(wire.AnnounceRequest(query=later.to_bytes()), timeout=TIMEOUT)


def status(address: str, path: str) -> int | None:
    """The status of a page of a process; None if nothing listens there."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT) as reply:
            code: int = reply.status
            return code
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def scraped(address: str) -> str:
    """The metrics of a process."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT) as reply:
        content: str = reply.read().decode()
        return content
