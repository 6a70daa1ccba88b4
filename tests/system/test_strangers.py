"""Whatever strangers send to either server: a typed refusal, and nothing has changed."""

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reticent.protocol import Refusal, Refused, Unreachable, statements
from reticent.protocol.calls import reply_of
from reticent.protocol.channels import channel_credentials
from reticent.tls import certificates
from reticent.tls.certificates import Certificate
from reticent.v1 import counting_pb2 as wire
from reticent_sim.engine import ANALYST, Endpoint, ServerProcess
from tests.parties.calls import in_turn
from tests.parties.phone import Phone
from tests.system.bad_messages import BAD, NOBODY, Bad
from tests.system.deployment import (
    MAX_BYTES,
    METHODS,
    SERVICES,
    SHOWN,
    TIMEOUT,
    Deployment,
    call,
    inhabited,
    join,
    sent,
    statement_of,
    still_serves,
)

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """After all that is sent to it, a new phone joins and one that was there contributes."""
    with inhabited(tmp_path_factory.mktemp("strangers")) as made:
        yield made
        [newcomer] = join(made.servers, [made.spare])
        assert newcomer.id not in {phone.id for phone in made.phones}
        before = made.dumps()
        [acknowledged] = sent(made, "Collecting/Contribute", said := made.said(1))
        name = statements.digest(statement_of(said, made.open))
        assert wire.Acknowledgement.FromString(acknowledged).contribution == name
        assert made.dumps() != before


@pytest.fixture(autouse=True)
def unchanged(target: Deployment) -> Iterator[None]:
    """Whatever a test sends: both servers have written down nothing, and go on serving."""
    before = target.dumps()
    yield
    assert target.dumps() == before
    still_serves(target)
    assert all(process.is_running for process in target.servers.processes)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_bad_is_refused_for_its_reason(target: Deployment, bad: Bad) -> None:
    method, message, refusal = bad
    with pytest.raises(Refused) as refused:
        sent(target, method, message(target))
    assert refused.value.refusal is refusal


@pytest.mark.parametrize("method", METHODS)
def test_an_unreadable_message_is_malformed(target: Deployment, method: str) -> None:
    with target.channel(method.partition("/")[0]) as channel, pytest.raises(Refused) as refused:
        call(channel, method, [b"\xff\xff\xff"])
    assert refused.value.refusal is Refusal.MALFORMED


@pytest.mark.parametrize("method", METHODS)
def test_a_large_message_is_oversized(target: Deployment, method: str) -> None:
    with target.channel(method.partition("/")[0]) as channel, pytest.raises(Refused) as refused:
        call(channel, method, [bytes(MAX_BYTES + 1)])
    assert refused.value.refusal is Refusal.OVERSIZED


@pytest.mark.parametrize("method", METHODS)
def test_random_bytes_get_a_typed_refusal_or_an_answer_that_changes_nothing(target: Deployment, method: str) -> None:
    with target.channel(method.partition("/")[0]) as channel:

        @settings(suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.binary(max_size=200), max_size=3))
        def send(chunks: list[bytes]) -> None:
            with contextlib.suppress(Refused):  # anything else is a fault
                call(channel, method, chunks)

        send()


@pytest.mark.parametrize("method", ["Enrolment/Join", "Enrolment/Renew", "Enrolment/Leave", "Collecting/Contribute"])
def test_a_phones_message_in_which_a_byte_is_wrong_is_refused(target: Deployment, method: str) -> None:
    good = {
        "Enrolment/Join": Phone(target.spare.token).joining(),
        "Enrolment/Renew": target.phones[1].renewing(),
        "Enrolment/Leave": target.phones[1].leaving(),
        "Collecting/Contribute": target.said(1),
    }[method].SerializeToString()
    with target.channel(method.partition("/")[0]) as channel:

        @given(place=st.integers(0, len(good) - 1), other=st.integers(1, 255))
        def send(place: int, other: int) -> None:
            damaged = bytearray(good)
            damaged[place] ^= other
            with pytest.raises(Refused):
                call(channel, method, [bytes(damaged)])

        send()


NAMES = [("Deciding", ANALYST), ("Deciding", "keys"), ("Counting", "aggregation"), ("Counting", "keys")]


@pytest.mark.parametrize(("service", "name"), NAMES)
def test_the_certificate_of_another_role_is_not_permitted(target: Deployment, service: str, name: str) -> None:
    for method in SERVICES[service]:
        with pytest.raises(Refused) as refused:
            sent(target, f"{service}/{method}", SERVICES[service][method](), name)
        assert refused.value.refusal is Refusal.NOT_PERMITTED


@pytest.mark.parametrize("service", ["Deciding", "Counting"])
def test_nobody_without_a_certificate_is_heard(target: Deployment, service: str) -> None:
    for method in SERVICES[service]:
        with pytest.raises(Unreachable):
            sent(target, f"{service}/{method}", SERVICES[service][method](), None)


@pytest.mark.parametrize("service", ["Deciding", "Counting"])
def test_phones_addresses_have_nothing_for_others(target: Deployment, service: str) -> None:
    phones = target.endpoint({"Deciding": "Enrolment", "Counting": "Collecting"}[service])
    name = SHOWN[service]
    for method, kind in SERVICES[service].items():
        with (
            phones.blocking_channel(target.servers.credentials(name)) as channel,
            pytest.raises(Unreachable, match="UNIMPLEMENTED"),
        ):
            call(channel, f"{service}/{method}", [kind().SerializeToString()])


@pytest.mark.parametrize("service", SERVICES)
def test_a_foreign_authority_is_worth_nothing(target: Deployment, service: str, tmp_path: Path) -> None:
    """Neither to the servers, that do not know its certificates, nor to callers, that do not trust the servers then."""
    certificates.create(tmp_path / "certs", hosts=["127.0.0.1"], analysts=[ANALYST], days=2)
    foreign = Certificate.load(tmp_path / "certs", SHOWN[service] or "aggregation")
    authority = Certificate.load(target.servers.certs, "keys").authority
    trusting = grpc.ssl_channel_credentials(authority, foreign.key, foreign.certificate)
    ways = [foreign.channel_credentials(), channel_credentials(foreign.authority)]
    if SHOWN[service] is not None:  # phones' addresses look at no certificates
        ways.append(trusting)
    for way in ways:
        for method, kind in SERVICES[service].items():
            with target.endpoint(service).blocking_channel(way) as channel, pytest.raises(Unreachable):
                call(channel, f"{service}/{method}", [kind().SerializeToString()])


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_is_said_in_the_clear(target: Deployment, service: str) -> None:
    for method, kind in SERVICES[service].items():
        with grpc.insecure_channel(target.endpoint(service).address) as channel, pytest.raises(Unreachable):
            call(channel, f"{service}/{method}", [kind().SerializeToString()])


PLAIN = {
    "nothing": b"",
    "a page, please": b"GET / HTTP/1.1\r\nHost: reticent\r\n\r\n",
    "gRPC in the clear": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "half a greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a greeting that never ends": b"\x16\x03\x01\xff\xff" + bytes(1 << 16),
    "noise": random.Random(1).randbytes(100_000),  # noqa: S311  # to be replayed
}


@pytest.mark.parametrize("content", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("service", SERVICES)
def test_plain_connections_come_to_nothing(target: Deployment, service: str, content: bytes) -> None:
    host, _, port = target.endpoint(service).address.rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as raw:
            with contextlib.suppress(OSError):  # the server may have hung up
                raw.sendall(content)
                raw.shutdown(socket.SHUT_WR)
            raw.settimeout(TIMEOUT)
            with contextlib.suppress(ConnectionError):
                answer = raw.recv(1 << 16)
                assert b"reticent" not in answer


CONNECTIONS, FLOOD, AT_A_TIME = 400, 8000, 2000
FLOODS = 3
FLOODED = 16 << 10  # bytes of a message
KNOWN = 4096  # calls that gRPC takes in before it lets go of some by itself
A_CALL = 64 << 10
"""What there is of such a call at most: HTTP/2 lets a caller send so much that nobody has asked for."""
KEPT = FLOOD * FLOODED // 2
"""By how much two further floods may leave a server larger: a quarter of what they bring, for allocators keep some."""


async def flood(endpoint: Endpoint, method: str, content: bytes) -> Counter[str]:
    """Make so many calls at a time, until there were FLOOD of them: how often each refusal came."""
    found: Counter[str] = Counter()
    channels = [endpoint.channel() for _ in range(CONNECTIONS)]
    calls: list[Any] = [channel.unary_unary(f"/reticent.v1.{method}") for channel in channels]

    async def once(number: int) -> None:
        try:
            await reply_of(calls[number % CONNECTIONS](content, timeout=TIMEOUT))
        except Refused as refused:
            there = refused.refusal is not Refusal.BUSY or refused.retry_after
            found[refused.refusal.name if there else "BUSY, for ever"] += 1
        except Unreachable as error:
            found[str(error)] += 1
        else:
            found["taken"] += 1

    async with contextlib.AsyncExitStack() as stack:
        for channel in channels:
            await stack.enter_async_context(channel)
        await in_turn([partial(once, number) for number in range(FLOOD)], AT_A_TIME)
    return found


@contextlib.contextmanager
def most_memory(process: ServerProcess) -> Iterator[list[int]]:
    """The resident memory of a process, every few milliseconds: only root may reset the peak that Linux keeps."""
    found, ended = [process.memory()], threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            found.append(process.memory())

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield found
        finally:
            ended.set()
        looking.result()


def still_serves_soon(target: Deployment) -> None:
    """Honest phones are served again when they come back after the time that they are told."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            return still_serves(target)
        except Refused as refused:
            if refused.refusal is not Refusal.BUSY or time.monotonic() > until:
                raise
            time.sleep(refused.retry_after or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Enrolment/Join", "Collecting/Contribute"])
def test_a_flood_is_told_to_come_back_and_takes_a_bounded_memory(target: Deployment, method: str) -> None:
    """Thousands of calls at a time, on many connections.

    The server lets a bounded number inside, and asks only those for their messages. Of the others gRPC knows KNOWN,
    with what each has sent unasked. All that the floods bring is more than that: so nothing of it is kept for long, and
    what is left does not grow from flood to flood.
    """
    service = method.partition("/")[0]
    process = target.process(service)
    large = bytes(FLOODED)
    content = {
        "Enrolment/Join": wire.JoinRequest(invitation=NOBODY, signature=large),
        "Collecting/Contribute": wire.Contribution(
            query=target.open.digest, phone=NOBODY, ciphertexts=large, signature=bytes(64)
        ),
    }[method].SerializeToString()
    before, after = process.memory(), []
    with most_memory(process) as most, asyncio.Runner() as runner:
        for _ in range(FLOODS):
            answers = runner.run(flood(target.endpoint(service), method, content))
            assert answers.total() == FLOOD
            assert set(answers) <= {"BUSY", "MALFORMED", "NOT_DEALT"}
            assert answers["BUSY"] > FLOOD // 2
            after.append(process.memory())
            still_serves_soon(target)
    assert max(most) - before < KNOWN * A_CALL < FLOODS * FLOOD * FLOODED
    assert after[-1] - after[0] < KEPT
