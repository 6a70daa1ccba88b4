"""The key server as a process: over TLS, through kills, with its operator's commands beside it."""

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reticent.protocol import Refusal, Refused, Unreachable
from reticent.protocol.calls import reply_of
from reticent.protocol.invitation import Invitation
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc as services
from tests.keys.processes import (
    POPULATION,
    TIMEOUT,
    Site,
    contributions,
    decided,
    members,
    site,
    terms_of,
)
from tests.parties.calls import all_replies
from tests.parties.decision_requests import expected, request, summed, sums
from tests.parties.phone import Phone

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with twelve phones, which several tests share."""
    with site(tmp_path_factory.mktemp("site")) as place:
        yield place


@pytest.fixture(scope="module")
def phones(served: Site) -> dict[bytes, Phone]:
    return members(served, POPULATION)


def refusal(call: Any) -> Refusal:
    """What a call is refused with."""
    with pytest.raises(Refused) as caught:
        asyncio.run(call)
    return caught.value.refusal


def test_a_query_goes_from_the_countersignature_to_the_decision(served: Site, phones: dict[bytes, Phone]) -> None:
    async def run() -> None:
        async with served.deciding.channel() as to:
            assert (await terms_of(to)).population == POPULATION
            query, key, cohorts = await contributions(to, phones, "whole")
            head, receipts = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
            made = await decided(to, head, receipts)
            assert made.outcome == wire.RELEASED
            assert sums(made) == expected(cohorts[0])
            assert await decided(to, head, receipts, at_a_time=100) == made
            burn = await decided(to, wire.DecideHead(query=query.digest, cohort=1), [])
            assert burn.outcome == wire.BURNT
            with pytest.raises(Refused, match="ALREADY_DECIDED"):
                await decided(to, wire.DecideHead(query=query.digest), [])

    asyncio.run(run())


def test_phones_renew_and_leave(served: Site) -> None:
    (phone,) = members(served, 1).values()

    async def run() -> None:
        async with served.enrolment.channel() as to:
            stub: Any = services.EnrolmentStub(to)
            phone.membership = await reply_of(stub.Renew(phone.renewing(), timeout=TIMEOUT))
            await reply_of(stub.Leave(phone.leaving(), timeout=TIMEOUT))
            with pytest.raises(Refused, match="REVOKED: the phone has left"):
                await reply_of(stub.Renew(phone.renewing(), timeout=TIMEOUT))
        assert f"{phone.id.hex()}  left" in served.command("phones")

    asyncio.run(run())


def test_only_the_aggregation_server_has_anything_decided(served: Site) -> None:
    async def call(name: str) -> None:
        async with served.deciding.channel(served.credentials(name)) as to:
            await terms_of(to)

    for name in ("ann", "keys"):
        assert refusal(call(name)) is Refusal.NOT_PERMITTED

    async def nobody() -> None:
        async with served.deciding.channel(served.credentials()) as to:
            await terms_of(to)

    with pytest.raises(Unreachable):
        asyncio.run(nobody())

    async def at_the_phones_door() -> None:
        async with served.enrolment.channel() as to:
            await terms_of(to)

    with pytest.raises(Unreachable, match="UNIMPLEMENTED"):
        asyncio.run(at_the_phones_door())


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [wire.DecideRequest()],
        [wire.DecideRequest(receipts=wire.Receipts())],
        [wire.DecideRequest(head=wire.DecideHead()), wire.DecideRequest()],
    ],
    ids=["nothing", "an empty one", "no head", "an empty one after it"],
)
def test_a_stream_that_is_no_request_is_refused(served: Site, parts: list[wire.DecideRequest]) -> None:
    async def call() -> None:
        async with served.deciding.channel() as to:
            stub: Any = services.DecidingStub(to)
            await reply_of(stub.Decide(iter(parts), timeout=TIMEOUT))

    assert refusal(call()) in {Refusal.MALFORMED, Refusal.UNKNOWN_QUERY}


def test_two_heads_are_refused(served: Site, phones: dict[bytes, Phone]) -> None:
    async def call() -> None:
        async with served.deciding.channel() as to:
            query, _, _ = await contributions(to, phones, "two heads")
            head = wire.DecideRequest(head=wire.DecideHead(query=query.digest, contributors=1))
            stub: Any = services.DecidingStub(to)
            await reply_of(stub.Decide(iter([head, head]), timeout=TIMEOUT))

    assert refusal(call()) is Refusal.MALFORMED


def test_all_are_served_while_requests_to_decide_hang(served: Site, phones: dict[bytes, Phone]) -> None:
    """More of them than there are threads to decide in; they have changed nothing."""

    async def run() -> None:
        async with served.deciding.channel() as to:
            query, key, cohorts = await contributions(to, phones, "hanging")
            head, receipts = request(query, 0, key, summed(key, cohorts[0]), [each.receipt for each in cohorts[0]])
            stub: Any = services.DecidingStub(to)
            calls = [stub.Decide() for _ in range(10)]
            for call in calls:
                await call.write(wire.DecideRequest(head=head))
                await call.write(wire.DecideRequest(receipts=wire.Receipts(receipts=receipts[:3])))
            async with served.enrolment.channel() as door:
                phone = next(iter(phones.values()))
                enrolment: Any = services.EnrolmentStub(door)
                for _ in range(5):
                    phone.membership = await reply_of(enrolment.Renew(phone.renewing(), timeout=5))
            assert (await terms_of(to)).population >= POPULATION
            made = await decided(to, head, receipts)
            assert made.outcome == wire.RELEASED
            assert not any(call.done() for call in calls)
            for call in calls:
                call.cancel()

    asyncio.run(run())


def test_random_bytes_get_a_refusal(served: Site) -> None:
    async def run() -> None:
        async with served.enrolment.channel() as to:
            for method in ("Join", "Renew", "Leave"):
                call: Any = to.unary_unary(f"/reticent.v1.Enrolment/{method}")
                with pytest.raises(Refused, match="MALFORMED"):
                    await reply_of(call(b"\xff\x00random", timeout=TIMEOUT))
            large: Any = to.unary_unary("/reticent.v1.Enrolment/Join")
            with pytest.raises(Refused, match="OVERSIZED"):
                await reply_of(large(bytes(2 << 20), timeout=TIMEOUT))

    asyncio.run(run())


def test_both_listeners_tell_their_health(served: Site) -> None:
    async def run() -> None:
        for to, service in ((served.enrolment.channel(), "Enrolment"), (served.deciding.channel(), "Deciding")):
            async with to:
                stub: Any = health_pb2_grpc.HealthStub(to)
                made = await stub.Check(
                    health_pb2.HealthCheckRequest(service=f"reticent.v1.{service}"), timeout=TIMEOUT
                )
                assert made.status == health_pb2.HealthCheckResponse.SERVING

    asyncio.run(run())


def test_a_second_server_is_told_that_there_is_one(served: Site) -> None:
    listening = ("--phones", "127.0.0.1:0", "--decisions", "127.0.0.1:0", "--metrics", "")
    output = served.command("serve", "--passphrase-file", "passphrase", *listening, code=5)
    assert "another process serves from" in output


def test_a_wrong_passphrase_and_a_taken_port_have_codes_of_their_own(served: Site) -> None:
    wrong = served.folder / "wrong"
    wrong.write_text("not the passphrase\n")
    wrong.chmod(0o600)
    (served.folder / "other").mkdir()
    assert "the passphrase is not the one" in served.command("rotate", "--passphrase-file", "wrong", code=6)
    taken = served.enrolment.address
    new = ("--folder", "other", "--key-bits", "1024", "--simulation", "--passphrase-file", "passphrase")
    listening = ("--phones", taken, "--decisions", "127.0.0.1:0", "--metrics", "")
    assert f"cannot listen at {taken}" in served.command("serve", *new, *listening, code=5)


def test_the_operator_sees_how_it_stands(served: Site, phones: dict[bytes, Phone]) -> None:
    found = json.loads(served.command("status", "--json"))
    assert found["members"] >= POPULATION
    assert [key["state"] for key in found["keys"]] == ["ACTIVE"]
    assert f"identity {found['identity']}\n" in served.keys.log.read_text()
    text = served.command("status")
    assert "active, 2048 bits" in text
    listed = [json.loads(line) for line in served.command("phones", "--json").splitlines()]
    assert {phone.hex() for phone in phones} <= {each["phone"] for each in listed}
    assert {each["state"] for each in listed} <= {"member", "left"}


def test_invitations_as_json_name_each_file_and_no_secret(served: Site) -> None:
    addresses = ("--key-server", "keys.example.org:1", "--aggregation-server", "agg.example.org:2")
    options = ("-n", "2", "-o", "as-json", "--certs", str(served.certs), "--days", "3", *addresses)
    printed = served.command("invite", *options, "--json")
    found = [json.loads(line) for line in printed.splitlines()]
    assert {each["file"] for each in found} == {
        f"as-json/{path.name}" for path in (served.folder / "as-json").iterdir()
    }
    for each in found:
        invitation = Invitation.from_text((served.folder / each["file"]).read_text())
        assert (each["key_server"], each["aggregation_server"]) == (
            invitation.key_server,
            invitation.aggregation_server,
        )
        assert dt.datetime.fromisoformat(each["expires"]) - dt.datetime.now(dt.UTC) <= dt.timedelta(days=3)
        assert invitation.token.hex() not in printed
    assert len(found) == 2


def test_logs_say_what_happened_and_no_secret(served: Site, phones: dict[bytes, Phone]) -> None:
    log = served.log
    assert "phone enrolled" in log
    assert "127.0.0.1" not in log
    for phone in phones.values():
        for secret in (phone.token, phone.signing.to_bytes()):
            assert secret.hex() not in log
    assert served.passphrase not in log


def test_the_environment_and_a_file_say_what_flags_do_not(served: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (served.folder / "other.toml").write_text('[keys.status]\nfolder = "nowhere"\njson = true\n')
    monkeypatch.setenv("RETICENT_CONFIG", "other.toml")
    assert "no key server in nowhere" in served.command("status", code=2, inherit=True)
    monkeypatch.setenv("RETICENT_KEYS_STATUS_FOLDER", "keys")
    assert json.loads(served.command("status", inherit=True))["members"] >= 0
    assert "no key server in elsewhere" in served.command("status", "--folder", "elsewhere", code=2, inherit=True)


def test_a_simulated_clock_is_moved_from_outside(tmp_path: Path) -> None:
    start = dt.datetime.now(dt.UTC).replace(microsecond=0)
    with site(tmp_path, "--membership-days", "2", clock=start) as place:
        members(place, 3)

        async def run() -> None:
            async with place.deciding.channel() as to, place.enrolment.channel() as door:
                assert (await terms_of(to)).population == 3
                clock: Any = services.SimulatedClockStub(door)
                later = int((start + dt.timedelta(days=2)).timestamp() * 1000)
                assert (await clock.Move(wire.Instant(milliseconds=later))).milliseconds == later
                assert (await terms_of(to)).population == 0

        asyncio.run(run())


def test_joining_too_often_is_answered_with_when_to_come_back(served: Site) -> None:
    async def run() -> None:
        async with served.enrolment.channel() as to:
            stub: Any = services.EnrolmentStub(to)

            guesses = (reply_of(stub.Join(Phone(bytes(16)).joining(), timeout=TIMEOUT)) for _ in range(300))
            replies = await all_replies(guesses)
            refused = [each for each in replies if isinstance(each, Refused)]
            assert len(refused) == len(replies) == 300
            assert {each.refusal for each in refused} == {Refusal.INVITATION, Refusal.BUSY}
            waits = [each.retry_after for each in refused if each.refusal is Refusal.BUSY]
            assert all(wait is not None and 0 < wait < 60 for wait in waits)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "--key-bits", "2048"), "bits must be one of 3072, 4096: got 2048"),
        (("serve", "--max-epsilon", "0"), "max_epsilon must be positive"),
        (("serve", "--simulated-clock", "now"), "an instant looks like 2027-03-01T12:00:00Z: got 'now'"),
        (
            ("serve", "--simulated-clock", "2027-03-01", "--phones", "0.0.0.0:1"),
            "a simulated clock needs local addresses",
        ),
        (("serve", "--membership-days", "0"), "a membership lasts from 1 to 36500 days: got 0"),
        (("serve", "--membership-days", "9999999"), "a membership lasts from 1 to 36500 days"),
        (("serve", "--min-liars-share", "1"), "min_liars_share must lie in [0, 1): got 1.0"),
        (("invite", "--days", "0"), "an invitation lasts from 1 to 36500 days: got 0"),
        (("invite", "--days=-1"), "an invitation lasts from 1 to 36500 days: got -1"),
        (("invite", "--days", "9999999"), "an invitation lasts from 1 to 36500 days: got 9999999"),
        (
            ("invite", "--key-server", "nonsense"),
            "such as keys.example.org:7101: got 'nonsense'",
        ),
        (("invite", "--aggregation-server", "a:0"), "an address is host:port"),
        (("invite", "-n", "0"), "there is no key server in keys"),
        (("status",), "there is no key server in keys"),
        (("rotate",), "there is no key server in keys"),
        (("backup", "copy"), "there is no key server in keys"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    place = Site(tmp_path)
    secret = ("--passphrase-file", "passphrase") if arguments[0] in {"serve", "rotate"} else ()
    output = place.command(*arguments, *secret, code=2)
    assert sentence in output
    assert "Traceback" not in output


def test_a_passphrase_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    place = Site(tmp_path)
    (tmp_path / "passphrase").chmod(0o644)
    assert "mode 0644" in place.command("serve", "--passphrase-file", "passphrase", code=2)
    assert not (tmp_path / "keys").exists()
