"""The servers of a run: what they are given lasts until the run ends."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from reticent.protocol.channels import channel_credentials
from reticent_sim import Scenario
from reticent_sim.engine.run_servers import RunServers
from reticent_sim.engine.servers import RETICENT
from reticent_sim.engine.times import START, STEPS, instant_of
from tests.parties import phone as phones


@pytest.mark.slow
def test_a_phone_may_join_on_the_last_day_of_a_run(tmp_path: Path) -> None:
    scenario = Scenario(phones=10, days=366, ads=False, key_bits=1024)
    with RunServers(scenario, tmp_path, clock=START, aggregation_program=RETICENT) as servers:
        servers.start()
        invitations = servers.invitations()
        servers.wait()
        servers.move_clocks(instant_of(scenario.days - 1, STEPS - 1))
        credentials = channel_credentials(invitations[-1].authority.encode())
        with grpc.secure_channel(invitations[-1].key_server, credentials) as channel:
            [phone] = phones.joined(channel, invitations[-1:])
    assert phone.membership.expires > instant_of(scenario.days, 0).timestamp()
