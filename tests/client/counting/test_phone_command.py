"""`reticent phone`, as a process."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from reticent.clock import SystemClock
from reticent.console import program
from reticent.protocol import Refusal, Refused
from reticent.v1 import counting_pb2 as wire
from reticent_client import PhoneStore
from tests.client.counting.command import (
    DEADLINE,
    ENVIRONMENT,
    PROGRAM,
    authority,
    invitation,
    joined,
    started,
    told,
    within,
)
from tests.client.counting.network import Network
from tests.client.counting.world import MEMBERSHIP, PHONE, Servers, device, query

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

POLICY = 'max_epsilon = 1.0\nqueries = ["gym*", "steps"]\nonly_charging = true\n'

Ask = Callable[..., subprocess.CompletedProcess[str]]


def membership(folder: Path) -> dict[str, Any]:
    """What a phone keeps of its membership."""
    with closing(PhoneStore(folder / "phone.db")) as store:
        kept: dict[str, Any] = json.loads(store.slot("counting/membership").read() or "")
    return kept


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Run `reticent phone` to its end, in a process of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, "phone", *arguments],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    return run


def test_joining_as_json_shows_the_membership_that_the_status_shows(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        async with network.listening(tmp_path / "certs"):
            invitation(tmp_path, network.invitation)
            joined = json.loads((await told(tmp_path, "join", "invitation.json", "--json"))[0])
            assert (joined["phone"], joined["state"]) == (PHONE.hex(), "member")
            assert joined["key_server"] == network.invitation.key_server
            assert joined == json.loads((await told(tmp_path, "status", "--json"))[0])["member"]

    within(live())


def test_a_phone_from_its_joining_to_its_leaving(tmp_path: Path) -> None:
    async def live() -> None:
        network = Network(Servers())
        async with network.listening(tmp_path / "certs"):
            invitation(tmp_path, network.invitation)
            out, errors = await told(tmp_path, "join", "invitation.json", "--budget-epsilon", "2")
            assert out.startswith(f"phone {PHONE.hex()} is a member, until ")
            assert errors == ""
            out, _ = await told(tmp_path, "contribute", "visits=1")
            assert out == "no query is announced to this phone\n"

            network.queries = [query(), query(id="rich", epsilon=1.5), query(id="other")]
            (tmp_path / "policy.toml").write_text(POLICY.replace("1.0", "5.0"))
            (tmp_path / "counters.csv").write_text("name,value\nvisits,1\nswims,-2\n")
            counted = ("--counters", "counters.csv", "--simulation", "--participation", "policy.toml")
            out, _ = await told(tmp_path, "contribute", *counted)
            assert out.splitlines()[0] == "gym: declined for now; the phone contributes only while it is charging"

            network.queries = [query(), query(id="gym2", epsilon=1.5), query(id="other")]
            out, _ = await told(tmp_path, "contribute", "--charging", *counted)
            over = (
                "'gym2' takes (1.5, 1e-06) of the budget of 'phone', and (1, 9e-06) is left: "
                "(1, 1e-06) was spent by 'gym'"
            )
            assert out.splitlines() == [
                "gym: contributed at (1, 1e-06); acknowledged",
                f"gym2: declined for now; {over}",
                "other: declined for good; the query name 'other' is not allowed: allowed are 'gym*', 'steps'",
            ]
            shown = json.loads((await told(tmp_path, "status", "--json"))[0])
            assert shown["member"]["phone"] == PHONE.hex()
            assert shown["budget"]["reserved"] == {"epsilon": 1.0, "delta": 1e-6}
            assert shown["budget"]["left"] == {"epsilon": 1.0, "delta": 9e-6}
            assert [(each["query"], each["state"]) for each in shown["contributions"]] == [("gym", "acknowledged")]
            assert {each["query"]: each["reason"] for each in shown["declined"]} == {
                "rich": "not_allowed",
                "gym2": "budget",
                "other": "not_allowed",
            }

            network.outcome = wire.RELEASED
            out, _ = await told(tmp_path, "contribute", "visits=1", "--charging", "--json")
            assert [each["state"] for each in json.loads(out)["decided"]] == ["released"]
            out, _ = await told(tmp_path, "status")
            lines = out.splitlines()
            assert lines[1:4] == [
                "budget (2, 1e-05): spent (1, 1e-06), reserved (0, 0), left (1, 9e-06)",
                "  gym: (1, 1e-06) spent",
                "gym: contributed at (1, 1e-06); released: spent (25 contributions)",
            ]
            assert (await told(tmp_path, "leave"))[0] == "left\n"
            assert (await told(tmp_path, "status"))[0].startswith(f"phone {PHONE.hex()} has left")

    within(live())


def test_what_was_said_to_a_busy_server_is_said_again_by_the_next_process(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query()]
            network.refusals = {"Contribute": Refused(Refusal.BUSY)}
            out, _ = await told(tmp_path, "contribute", "visits=3", "--simulation", code=4)
            assert "retry later: contribution to 'gym' failed: BUSY" in out
            network.refusals = {}
            await asyncio.sleep(1.1)
            out, _ = await told(tmp_path, "contribute", "visits=0", "--simulation")
            assert "acknowledged" in out
            assert len(network.taken[query().digest]) == 2
            assert len(set(network.taken[query().digest])) == 1

    within(live())


def test_a_membership_that_has_ended_is_a_failure_each_time(tmp_path: Path) -> None:
    """Whether the key server says so, or the phone's clock."""

    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query()]
            with closing(PhoneStore(tmp_path / "phone.db")) as store:
                slot = store.slot("counting/membership")
                kept = slot.read() or ""
                slot.write(json.dumps(json.loads(kept) | {"expires": 1_700_000_000}))
            for _ in range(2):
                out, complained = await told(tmp_path, "contribute", "visits=3", "--simulation", code=3)
                assert out == "no query is announced to this phone\n"
                assert complained.startswith("reticent: the membership has ended (phone ")
            with closing(PhoneStore(tmp_path / "phone.db")) as store:
                store.slot("counting/membership").write(json.dumps(json.loads(kept) | {"state": "EXPELLED"}))
            _, complained = await told(tmp_path, "contribute", "visits=3", "--simulation", code=3)
            assert complained.startswith("reticent: the key server does not list this phone any more")

    within(live())


def test_a_server_that_replies_again_is_reported(tmp_path: Path) -> None:
    """Once, as is that it failed."""

    async def live() -> None:
        async with joined(tmp_path) as network:
            network.again_in_ms = 1000
            network.refusals = {"Announcements": Refused(Refusal.BUSY)}
            process = await started(tmp_path, "run")
            assert process.stdout is not None
            lines = [(await process.stdout.readline()).decode() for _ in range(2)]
            assert lines[1].startswith("retry later: request for announcements failed: BUSY: ")
            network.refusals = {}
            line = (await process.stdout.readline()).decode()
            assert line == f"request for announcements: the aggregation server at {network.collecting} replies again\n"
            process.send_signal(signal.SIGTERM)
            out, _ = await process.communicate()
            assert b"again" not in out

    within(live())


def test_a_process_that_is_killed_while_it_sends_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query()]
            network.silent = {"Contribute"}
            (tmp_path / "counters.csv").write_text("name,value\nvisits,3\n", encoding="utf-8")
            process = await started(tmp_path, "run", "--counters", "counters.csv", "--simulation")
            await network.reached.wait()
            occupied = await told(tmp_path, "contribute", "visits=3", code=5)
            assert "another process runs the phone" in occupied[1]
            await told(tmp_path, "status")  # which only looks
            process.kill()
            await process.communicate()
            network.silent = set()
            process = await started(tmp_path, "run", "--counters", "counters.csv", "--simulation")
            assert process.stdout is not None
            assert (await process.stdout.readline()).decode() == "serving at unix:phone.sock, without a policy\n"
            assert "acknowledged" in (await process.stdout.readline()).decode()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
            await process.communicate()
            assert len(network.taken[query().digest]) == 2
            assert len(set(network.taken[query().digest])) == 1

    within(live())


def test_a_command_that_loses_its_output_fails_after_its_work(tmp_path: Path) -> None:
    async def live(full: IO[bytes]) -> None:
        network = Network(Servers())
        network.queries = [query()]
        async with network.listening(tmp_path / "certs"):
            invitation(tmp_path, network.invitation)
            for arguments in (["join", "invitation.json"], ["contribute", "visits=3", "--simulation"], ["leave"]):
                process = await started(tmp_path, *arguments, stdout=full)
                _, complained = await process.communicate()
                assert (process.returncode, complained) == (7, b"reticent: [Errno 28] No space left on device\n")
            out, _ = await told(tmp_path, "status")
            assert "left" in out.splitlines()[0]
            assert len(network.taken[query().digest]) == 1

    with Path("/dev/full").open("wb") as full:
        within(live(full))


def test_seeded_noise_is_marked_and_differs_between_queries(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            wide = {"epsilon": 0.05, "counters": [("visits", 0, 3), ("swims", -2, 2)]}
            for name in ("first", "second"):
                network.queries = [query(id=name, **wide)]
                out, _ = await told(tmp_path, "contribute", "visits=0", "--seed", "5")
                assert "with noise that can be replayed" in out
            noise = []
            for content in network.taken.values():
                message = wire.Contribution.FromString(content[0])
                assert message.seeded
                example = next(query(id=name, **wide) for name in ("first", "second")
                             if query(id=name, **wide).digest == message.query)  # fmt: skip
                noise.append(network.servers.open(example, message)[0])
            assert noise[0] != noise[1]

    within(live())


def test_where_nobody_listens_nothing_is_lost(tmp_path: Path, ask: Ask) -> None:
    invitation(tmp_path)
    done = ask("join", "invitation.json")
    assert done.returncode == 4
    assert done.stderr.startswith(
        "reticent: the key server at localhost:1 is unreachable: run the command again (UNAVAILABLE: "
    )
    assert len(done.stderr.splitlines()) == 1
    assert ask("status").stdout.startswith("phone has asked to join, at localhost:1\n")
    key = membership(tmp_path)["signing"]
    done = ask("contribute", "visits=1")
    assert (done.returncode, done.stderr) == (4, "reticent: a call failed: run the command again later\n")
    assert done.stdout.startswith(
        "retry later: membership request failed: the key server at localhost:1 is unreachable (UNAVAILABLE: "
    )
    ask("join", "invitation.json")
    assert membership(tmp_path)["signing"] == key
    done = ask("leave")
    assert (done.returncode, done.stderr) == (3, "reticent: this phone is not enrolled\n")


@pytest.mark.parametrize("days", [0, 5])
def test_a_server_whose_certificate_is_not_accepted_is_not_called_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """By another authority; or, as for a phone whose clock is slow, issued in five days."""

    class Later(SystemClock):
        def now(self) -> dt.datetime:
            return super().now() + dt.timedelta(days=days)

    async def live() -> None:
        network = Network(Servers())
        monkeypatch.setattr("reticent.tls.certificates.SystemClock", Later)
        async with network.listening(tmp_path / "certs"):
            held = network.invitation if days else replace(network.invitation, authority=authority())
            invitation(tmp_path, held)
            _, complained = await told(tmp_path, "join", "invitation.json", code=3)
            fault = "another authority issued it. Is this the right invitation, or the right certificates?"
            if days:
                fault = "it is not valid yet. Is the clock of this machine slow?"
            server = f"the key server at {network.address} replies, but its certificate is not accepted: {fault}\n"
            assert complained == f"reticent: {server}"
            out, complained = await told(tmp_path, "contribute", "visits=1", code=3)
            assert (out, complained) == (f"membership request failed: {server}", "")  # the same will fail again

    within(live())


def test_an_invitation_that_others_can_read_gets_a_warning(tmp_path: Path, ask: Ask) -> None:
    path = invitation(tmp_path)
    path.chmod(0o644)
    done = ask("join", "invitation.json")
    assert done.stderr.startswith(
        "reticent: invitation.json can be read by others, who could join in your place: chmod 600 invitation.json\n"
    )


def test_the_files_are_for_their_owner_only_and_nothing_shown_is_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    invitation(tmp_path)
    assert [
        program.main(["phone", *each]) for each in (["join", "invitation.json"], ["status"], ["status", "--json"])
    ] == [
        4,
        0,
        0,
    ]
    shown = "".join(capsys.readouterr())
    assert (tmp_path / "phone.db").stat().st_mode & 0o777 == 0o600
    content = membership(tmp_path)
    assert content["signing"] not in shown


def test_a_budget_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    invitation(tmp_path)
    assert program.main(["phone", "join", "invitation.json", "--budget-epsilon", "2.5", "--budget-delta", "1e-4"]) == 4
    assert program.main(["phone", "status"]) == 0
    assert "budget (2.5, 0.0001)" in capsys.readouterr().out
    # The same again is fine, and nobody listens.
    assert program.main(["phone", "contribute", "visits=1", "--budget-epsilon", "2.5"]) == 4
    capsys.readouterr()
    assert program.main(["phone", "contribute", "visits=1", "--budget-epsilon", "3"]) == 2
    assert capsys.readouterr().err == (
        "reticent: this phone's budget is epsilon = 2.5 and delta = 0.0001: it is set once and stays\n"
    )


def test_bad_arguments_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("hello")
    (tmp_path / "unknown.toml").write_text("colour = 'red'\n")
    PhoneStore(tmp_path / "empty.db").close()
    for arguments, sentence in {
        ("status",): "there is no phone store at phone.db",
        ("leave",): "there is no phone store at phone.db",
        ("contribute", "a=1"): "there is no phone store at phone.db",
        ("contribute", "a"): "a counter is written as NAME=VALUE: got 'a'",
        ("contribute", "a=b"): "the counter 'a' must be a number: got 'b'",
        ("contribute", "--participation", "text"): "text: this is no policy: ",
        ("contribute", "--participation", "unknown.toml"): "unknown.toml: a policy has the keys ",
        ("contribute", "--counters", "none.csv"): "none.csv: No such file or directory",
        ("join", "text"): "text: this is not an invitation written by Reticent",
        ("join", "none"): "none: No such file or directory",
        ("join",): 'Command "phone join" parameter',
        ("status", "--store", "text"): "text is damaged, or not a phone's store: ",
    }.items():
        assert program.main(["phone", *arguments]) == 2
        out, errors = capsys.readouterr()
        assert out == ""
        assert errors.startswith(f"reticent: {sentence}"), errors
        assert len(errors.splitlines()) == 1
    assert program.main(["phone", "contribute", "a=1", "--store", "empty.db"]) == 3
    assert capsys.readouterr().err == "reticent: this phone is not enrolled: run reticent phone join INVITATION\n"


def test_a_phone_that_is_leaving_is_told_what_to_do_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with device(tmp_path) as phone:
        phone.now = dt.datetime.now(dt.UTC)
        phone.participant.enrolment.joined(phone.servers.membership(PHONE, phone.now + MEMBERSHIP))
        phone.participant.enrolment.leave()
        same = phone.servers.invitation()
    invitation(tmp_path, same)
    assert program.main(["phone", "join", "invitation.json"]) == 3
    assert capsys.readouterr().err == "reticent: this phone is leaving: finish with reticent phone leave\n"
    invitation(tmp_path)
    assert program.main(["phone", "join", "invitation.json"]) == 3
    assert "the key server has not confirmed the departure" in capsys.readouterr().err
