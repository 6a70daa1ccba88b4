"""What `reticent phone` shows, of what others say too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client.counting.command import invitation, joined, started, told, within
from tests.client.counting.network import Network
from tests.client.counting.world import Servers, query


@pytest.mark.slow
def test_an_answer_that_waits_for_its_decision_is_shown(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query()]
            line = "gym: contributed at (1, 1e-06); acknowledged\n"
            assert (await told(tmp_path, "contribute", "visits=3", "--simulation"))[0] == line
            network.queries = []  # it is closed, and not decided
            assert (await told(tmp_path, "contribute", "visits=3", "--simulation"))[0] == line
            out, _ = await told(tmp_path, "contribute", "visits=3", "--simulation", "--json")
            assert [each["query"] for each in json.loads(out)["undecided"]] == ["gym"]

    within(live())


@pytest.mark.slow
def test_what_servers_say_moves_no_cursor(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query(id="x\x1b[2K\rgym: contributed at (0, 0); released\u202e")]
            for command in (("contribute", "a=1", "--participation", "policy.toml"), ("status",)):
                (tmp_path / "policy.toml").write_text("queries = []\n")
                out, _ = await told(tmp_path, *command)
                assert "x\\x1b[2K\\rgym: contributed at (0, 0); released\\u202e: declined" in out
                assert all(line.isprintable() for line in out.splitlines())

    within(live())


@pytest.mark.slow
def test_a_phone_that_contributes_says_what_it_waits_for(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.silent = {"Announcements"}
            process = await started(tmp_path, "contribute", "visits=1")
            assert process.stderr is not None
            both = f"the key server at {network.address} and the aggregation server at {network.collecting}"
            assert (await process.stderr.readline()).decode() == f"reticent: waiting for {both}\n"
            process.kill()
            await process.communicate()

    within(live())


@pytest.mark.slow
def test_it_says_what_it_waits_for(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        async with network.listening(tmp_path / "certs"):
            invitation(tmp_path, network.invitation)
            network.silent = {"Join"}
            process = await started(tmp_path, "join", "invitation.json")
            assert process.stderr is not None
            line = (await process.stderr.readline()).decode()
            assert line == f"reticent: waiting for the key server at {network.address}\n"
            process.kill()
            await process.communicate()

    within(live())
