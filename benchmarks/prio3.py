"""CPU time and bytes of a count against Prio3, by libprio-rs in Rust and by @divviup/prio3 in TypeScript.

Both implementations come from their registries into `build/prio3`. The times are the shortest of many contributions,
on one core, without a network. Those of Reticent include its database.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.crates import CRATES, debian_crates
from benchmarks.local_servers import LocalServers
from benchmarks.measure import Row, seconds, table
from benchmarks.phones import CheapContributions, exact_query, prepared_contribution
from reticent.paillier import PublicKey
from reticent.v1 import counting_pb2 as wire

SIZES = (1, 64, 1000)
PHONES, ROUNDS, PREPARED = 1000, 3, 100
SECONDS = 5  # of each implementation and number of counters
SERVER_TARGET, BYTES_TARGET = 100, 0.7
PROGRAMS = Path(__file__).with_name("prio3_programs")
FOLDER = Path("build/prio3")
INSTALL_TIMEOUT = 900.0
RUN_TIMEOUT = 120.0


@dataclass(frozen=True)
class Cost:
    """What one contribution costs.

    Args:
        counters: In it.
        phone: CPU seconds of the phone.
        servers: CPU seconds of both servers.
        upload: Bytes that the phone sends.
        between: Bytes between the servers.
    """

    counters: int
    phone: float
    servers: float
    upload: int
    between: float


def run() -> Iterator[str]:
    """The costs beside those of each implementation that can be installed."""
    ours = _ours()
    for name, install in (("libprio-rs", _rust), ("@divviup/prio3, TypeScript", _typescript)):
        try:
            command = install()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            yield f"{name} cannot be installed here: {error}\n"
            continue
        run = subprocess.run(  # noqa: S603  # what was installed above
            [*command, str(SECONDS), *map(str, SIZES)],
            capture_output=True,
            check=True,
            text=True,
            timeout=len(SIZES) * SECONDS + RUN_TIMEOUT,
        )
        rivals = [Cost(**json.loads(line)) for line in run.stdout.splitlines()]
        for mine, rival in zip(ours, rivals, strict=True):
            title = f"{mine.counters:,} counters of 0 or 1" if mine.counters > 1 else "1 counter of 0 or 1"
            yield table(f"{title} (the rival is Prio3 by {name})", _rows(mine, rival))


def _rows(ours: Cost, rival: Cost) -> list[Row]:
    count = ours.counters
    is_last = count == SIZES[-1]
    return [
        Row("CPU time of the phone", seconds(ours.phone), seconds(rival.phone), rival.phone / ours.phone),
        Row("CPU time of both servers", seconds(ours.servers), seconds(rival.servers)),
        Row(
            "the same, for each counter",
            seconds(ours.servers / count),
            seconds(rival.servers / count),
            rival.servers / ours.servers,
            f"at least {SERVER_TARGET} x" if is_last else "",
        ),
        Row("bytes that the phone sends", f"{ours.upload:,}", f"{rival.upload:,}"),
        Row(
            "the same, for each counter",
            f"{ours.upload / count:,.1f}",
            f"{rival.upload / count:,.1f}",
            None,
            f"{ours.upload / rival.upload:.2f}" + (f"; at most {BYTES_TARGET}" if is_last else ""),
        ),
        Row("bytes between the servers", f"{ours.between:,.0f}", f"{rival.between:,.0f}"),
    ]


def _ours() -> list[Cost]:
    with TemporaryDirectory() as folder:
        servers = LocalServers(Path(folder), PHONES)
        try:
            return [_cost(servers, counters) for counters in SIZES]
        finally:
            servers.close()


def _cost(servers: LocalServers, counters: int) -> Cost:
    """The shortest times of several counts."""
    key = PublicKey.from_bytes(servers.terms.public_key)
    key.prepare()
    costs = [_count(servers, key, counters, number) for number in range(ROUNDS)]
    phone, both = min(cost.phone for cost in costs), min(cost.servers for cost in costs)
    return Cost(counters, phone, both, costs[0].upload, costs[0].between)


def _count(servers: LocalServers, key: PublicKey, counters: int, number: int) -> Cost:
    """Count all phones once: some of their contributions are prepared as a real phone prepares them."""
    query = exact_query(f"{counters}, round {number}", key.key_id.hex(), PHONES, counters, closes_after=3600)
    query_key = servers.countersign(query)
    prepared = [prepared_contribution(query, key, query_key, each) for each in servers.phones[:PREPARED]]
    cheap = CheapContributions(query, key, query_key)
    others = [cheap.contribution(each, 0, [1] * counters) for each in servers.phones[PREPARED:]]
    messages = [message for message, _ in prepared] + [each.SerializeToString() for each in others]
    decision, times = servers.count(messages)
    if decision.outcome != wire.RELEASED or decision.contributors != PHONES:
        raise ValueError(f"the count failed: {decision.reason}")
    phone = min(took for _, took in prepared)
    return Cost(counters, phone, times.both / PHONES, max(map(len, messages)), times.between / PHONES)


def _rust() -> list[str]:
    """Build the program against libprio-rs from crates.io; without it, from Debian's packages of crates."""
    folder = (FOLDER / "rust").absolute()
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    command = ["cargo", "build", "--release", "--quiet"]
    environment = os.environ | {"CARGO_NET_RETRY": "0"}
    crates = folder / "debian"
    if not crates.exists():
        try:
            _run(command, folder, environment)
        except subprocess.CalledProcessError:
            debian_crates("prio", crates)
    if crates.exists():
        replaced = 'source.crates-io.replace-with="debian"', f'source.debian.directory="{crates / CRATES}"'
        _run([*command, "--offline", "--config", replaced[0], "--config", replaced[1]], folder, environment)
    return [str(folder / "target/release/prio3_times")]


def _typescript() -> list[str]:
    folder = FOLDER / "typescript"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROGRAMS / "times.mjs", folder)
    _run(["npm", "install", "--ignore-scripts", "--prefix", ".", "@divviup/prio3@0.8.0"], folder, dict(os.environ))
    return ["node", str(folder / "times.mjs")]


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    subprocess.run(  # noqa: S603  # constants
        command, cwd=folder, env=environment, check=True, capture_output=True, timeout=INSTALL_TIMEOUT
    )
