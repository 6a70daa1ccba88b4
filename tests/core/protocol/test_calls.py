"""What a server says of a call that failed, however it says it."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.protocol import BadCertificate, Refusal, Refused, Unreachable
from reticent.protocol.calls import REFUSAL, RETRY_AFTER, failure_of


def failed(*trailing: tuple[str, str | bytes], status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> Exception:
    """What a caller makes of a call that failed with these metadata."""
    return failure_of(grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), "because"))


def test_a_refusal_comes_with_when_to_come_back() -> None:
    found = failed((REFUSAL, "BUSY"), (RETRY_AFTER, "1500"))
    assert isinstance(found, Refused)
    assert (found.refusal, found.detail, found.retry_after) == (Refusal.BUSY, "because", 1.5)


@pytest.mark.parametrize(
    ("details", "refusal", "retry_after"),
    [
        ("CLIENT: Received message larger than max (9 vs. 4)", Refusal.OVERSIZED, None),
        ("too many", Refusal.BUSY, 1.0),
    ],
)
def test_grpcs_own_refusals_have_a_name_and_only_a_busy_server_is_called_again(
    details: str, refusal: Refusal, retry_after: float | None
) -> None:
    empty = grpc.aio.Metadata()
    found = failure_of(grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, empty, empty, details))
    assert isinstance(found, Refused)
    assert (found.refusal, found.retry_after) == (refusal, retry_after)
    assert found.refusal.retry is (retry_after is not None)


def test_a_call_that_grpc_has_dropped_is_like_a_lost_connection() -> None:
    """A server whose queue is full drops calls with a bare status: the caller retries."""
    assert isinstance(failed(status=grpc.StatusCode.CANCELLED), Unreachable)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK", "another authority issued"),
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid: OK", "Is the clock of this machine slow?"),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "the clock of this machine is fast"),
        ("UNAUTHENTICATED: Hostname Verification Check failed.", "Is this the right address?"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_named(words: str, sentence: str) -> None:
    empty = grpc.aio.Metadata()
    details = f"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: {words}"
    found = failure_of(grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, details))
    assert isinstance(found, BadCertificate)
    assert sentence in str(found)
    other = failure_of(grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, empty, empty, details))  # a server's own words
    assert not isinstance(other, BadCertificate)


@pytest.mark.parametrize(
    "wait",
    ["", "-1", "1.5", "9" * 10, "9" * 400, "9" * 5000, "٣", "²", "x", "1e3", " 1", "1_0"],
    ids=lambda each: each[:5],
)
def test_a_wait_that_makes_no_sense_is_none(wait: str) -> None:
    found = failed((REFUSAL, "BUSY"), (RETRY_AFTER, wait))
    assert isinstance(found, Refused)
    assert found.retry_after is None


@given(
    st.sampled_from([*Refusal.__members__, "", "NOTHING"]) | st.text(),
    st.text() | st.integers().map(str) | st.binary(),
    st.sampled_from(list(grpc.StatusCode)),
)
def test_whatever_a_server_says_is_a_failure(name: str, wait: str | bytes, status: grpc.StatusCode) -> None:
    found = failed((REFUSAL, name), (RETRY_AFTER, wait), status=status)
    assert isinstance(found, Refused | Unreachable)
    assert isinstance(found, Unreachable) or found.retry_after is None or 0 <= found.retry_after < 1e6
