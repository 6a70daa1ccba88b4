"""Every reason to decline, which of them last, and that declining takes nothing from the budget."""

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from reticent.privacy import Cost, Counter, Query
from reticent.protocol import statements
from reticent.protocol.layout import contribution_bytes
from reticent.v1 import counting_pb2 as wire
from reticent_client import Declined, Participant, Participation
from reticent_client.counting import announcements
from reticent_client.errors import Reason
from tests.client.counting.world import BITS, Device, Servers, device, query
from tests.parties.key_pairs import pair

Attempt = Callable[[Device], Any]


def _ask(**changes: Any) -> Attempt:
    return lambda phone: phone.ask(query(**changes))


def _allow(policy: Participation, attempt: Attempt | None = None) -> Attempt:
    def ask(phone: Device) -> Any:
        phone.policy = policy
        phone.begin()
        return (attempt or _ask())(phone)

    return ask


def _with_counters(counted: dict[str, Any] | None) -> Attempt:
    def ask(phone: Device) -> Any:
        phone.counted = counted
        return phone.ask(query())

    return ask


def _announced(change: Callable[[wire.Announcement], None]) -> Attempt:
    def ask(phone: Device) -> Any:
        announced = query(cohorts=2, population=60)
        announcement = phone.servers.announce(announced)
        change(announcement)
        return phone.participant.contribute(announcement, announced.to_bytes(), phone.servers.public.to_bytes())

    return ask


def _signed(bad: Callable[[], bytes]) -> Attempt:
    """The key server's name is under it, and it is no query."""

    def ask(phone: Device) -> Any:
        content = bad()
        key = phone.servers.agreement.public
        announcement = wire.Announcement(query=Query.digest_of(content), agreement_key=key, closes_in_ms=1)
        announcement.countersignature = phone.servers.identity.sign(statements.countersigned(announcement.query, key))
        assert phone.participant.query_request(announcement) is not None
        assert phone.participant.key_id(announcement, content) is None
        return phone.participant.contribute(announcement, content, phone.servers.public.to_bytes())

    return ask


def _with_key(content: Callable[[bytes], bytes]) -> Attempt:
    return lambda phone: phone.participant.contribute(
        phone.servers.announce(query()), query().to_bytes(), content(phone.servers.public.to_bytes())
    )


def _with_query(content: bytes) -> Attempt:
    return lambda phone: phone.participant.contribute(
        phone.servers.announce(query()), content, phone.servers.public.to_bytes()
    )


def _for_real(phone: Device) -> Any:
    phone.simulation = False
    phone.begin()
    return phone.ask(query())


def _decided(phone: Device) -> Any:
    phone.ask(query())
    phone.participant.decided(phone.servers.decide(query(), wire.RELEASED))
    return phone.ask(query())


def _twice(phone: Device) -> Any:
    phone.ask(query())
    return phone.ask(query(epsilon=1.5))


def _in_a_sequence(**changes: Any) -> Attempt:
    def ask(phone: Device) -> Any:
        phone.ask(query(sequence="s"))
        return phone.ask(query(id="other", sequence="s", **changes))

    return ask


def _account_of_another_program(phone: Device) -> Any:
    phone.participant.ledger.reserve("gym", query().cost)
    return phone.ask(query())


def _left(phone: Device) -> Any:
    phone.participant.enrolment.leave()
    return phone.ask(query())


def _expired(phone: Device) -> Any:
    phone.pass_time(days=91)
    return phone.ask(query())


def _full(phone: Device) -> Any:
    for number in range(3):
        phone.ask(query(id=str(number)))
    return phone.ask(query())


def _set(name: str, value: Any) -> Callable[[wire.Announcement], None]:
    return lambda announcement: setattr(announcement, name, value)


MANY = [Counter(f"c{k}", 0, 1) for k in range(50)]

CASES: list[tuple[str, Reason, Attempt, str]] = [
    ("left", Reason.NOT_A_MEMBER, _left, "is not enrolled"),
    ("expired", Reason.NOT_A_MEMBER, _expired, "is not enrolled"),
    ("no query is sent", Reason.QUERY_MISSING, _with_query(b""), "does not send the announced"),
    (
        "another query is sent",
        Reason.QUERY_MISSING,
        _with_query(query(id="other").to_bytes()),
        "does not send the announced",
    ),
    ("no query", Reason.MALFORMED, _signed(lambda: b"what?"), "cannot be read"),
    ("cut", Reason.MALFORMED, _signed(lambda: query().to_bytes()[:-3]), "cut off"),
    ("unsigned and no query", Reason.NOT_COUNTERSIGNED, _announced(_set("query", b"what?")), "has not countersigned"),
    ("no such cohort", Reason.MALFORMED, _announced(_set("cohort", 2)), "2 cohorts: got 2"),
    ("unsigned", Reason.NOT_COUNTERSIGNED, _announced(_set("countersignature", b"")), "has not countersigned"),
    (
        "signed by another",
        Reason.NOT_COUNTERSIGNED,
        lambda phone: phone.participant.contribute(Servers().announce(query()), phone.servers.public.to_bytes()),
        "has not countersigned",
    ),
    (
        "signed for another",
        Reason.NOT_COUNTERSIGNED,
        _announced(lambda announcement: setattr(announcement, "query", query(epsilon=0.5).to_bytes())),
        "has not countersigned",
    ),
    ("closed", Reason.CLOSED, _announced(_set("closes_in_ms", 0)), "is closed"),
    ("no key", Reason.BAD_KEY, _with_key(lambda _: b""), "is none"),
    ("a short key", Reason.BAD_KEY, _for_real, "must have 3072 or 4096 bits: got 2048"),
    ("another key", Reason.WRONG_KEY, _ask(key_id="00" * 32), "not the one"),
    ("contributed", Reason.CONTRIBUTED, _decided, "released: spent"),
    ("a second attempt", Reason.NAME_TAKEN, _twice, "a second attempt needs a new name"),
    ("another cost", Reason.OTHER_TERMS, _in_a_sequence(epsilon=0.5), "'s' name other"),
    ("other bounds", Reason.OTHER_TERMS, _in_a_sequence(l1=4), "'s' name other"),
    (
        "another grid",
        Reason.OTHER_TERMS,
        lambda phone: [
            phone.ask(query(id=str(bits), sequence="g", noise="gaussian", fraction_bits=bits)) for bits in (20, 21)
        ],
        "'g' name other",
    ),
    ("an account of another program", Reason.BUDGET, _account_of_another_program, "an entry for 'gym' already"),
    ("epsilon", Reason.EPSILON, _allow(Participation(max_epsilon=0.9)), "epsilon of 1, and 0.9 is allowed"),
    ("delta", Reason.DELTA, _allow(Participation(max_delta=1e-7)), "delta of 1e-06, and 1e-07 is allowed"),
    ("a share", Reason.SHARE_OF_BUDGET, _allow(Participation(max_budget_share=0.3)), "0.333333, and 0.3 is allowed"),
    ("name", Reason.NOT_ALLOWED, _allow(Participation(queries=("steps-*",))), "the query name 'gym' is not allowed"),
    (
        "counter",
        Reason.NOT_ALLOWED,
        _allow(Participation(counters=("vis*",))),
        "counter name 'swims' is not allowed",
    ),
    ("few honest", Reason.FEW_HONEST, _allow(Participation(min_honest=21)), "with 20 honest phones, and 21"),
    (
        "few liars",
        Reason.FEW_LIARS,
        _allow(Participation(min_liars_share=0.091)),
        "tolerates 2 liars among 22, and 3 are required",
    ),
    (
        "few honest by default",
        Reason.FEW_HONEST,
        _ask(min_contributions=21),
        "with 19 honest phones, and 20 are required",
    ),
    ("no liars by default", Reason.FEW_LIARS, _ask(liars=0), "tolerates 0 liars among 22, and 2 are required"),
    ("large for a day", Reason.TOO_LARGE, _allow(Participation(max_bytes_per_day=500)), "bytes of 633, and 500"),
    ("budget", Reason.BUDGET, _full, r"takes \(1, 1e-06\) .* \(0, 7e-06\) is left"),
    ("no counters", Reason.NO_COUNTERS, _with_counters(None), "no counters for 'gym'"),
    ("no number", Reason.BAD_COUNTERS, _with_counters({"visits": None}), "'visits' must be a number: got a NoneType"),
    ("text", Reason.BAD_COUNTERS, _with_counters({"swims": "3"}), "'swims' must be a number: got a str"),
    ("not charging", Reason.NOT_CHARGING, _allow(Participation(only_charging=True)), "only while it is charging"),
    ("metered", Reason.METERED, _allow(Participation(only_unmetered=True)), "only over unmetered"),
    (
        "queries a day",
        Reason.QUERIES_PER_DAY,
        _allow(Participation(max_queries_per_day=3), _full),
        "3 contributions were made in the last 24 hours, and 3",
    ),
    (
        "bytes a day",
        Reason.BYTES_PER_DAY,
        _allow(Participation(max_bytes_per_day=1900), _full),
        r"\d+ bytes were sent in the last 24 hours, '2' takes 633, and 1900",
    ),
]


@pytest.mark.parametrize(
    ("reason", "attempt", "sentence"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_it_declines_with_a_reason(tmp_path: Path, reason: Reason, attempt: Attempt, sentence: str) -> None:
    with device(tmp_path, limit=Cost(3.0, 1e-5) if reason is not Reason.QUERIES_PER_DAY else Cost(9.0, 1e-4)) as phone:
        with pytest.raises(Declined, match=sentence) as declined:
            attempt(phone)
        assert declined.value.reason is reason
        again = pickle.loads(pickle.dumps(declined.value))  # noqa: S301  # our own
        assert (again.reason, str(again), again.query) == (reason, str(declined.value), declined.value.query)
        # The ledger has the accounts of the contributions, and of another program.
        others = {"gym"} if attempt is _account_of_another_program else set()
        assert phone.accounts().keys() == {record.account for record in phone.participant.records.all()} | others


def test_every_reason_has_a_case() -> None:
    assert {case[1] for case in CASES} == set(Reason)


def test_a_contribution_that_no_server_would_take_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "MAX_CONTRIBUTION_BYTES", 1000)
    with device(tmp_path) as phone, pytest.raises(Declined) as declined:
        phone.ask(query(counters=[Counter(f"c{k}", -(2**18), 2**18) for k in range(200)], l1=5, l2_squared=13))
    assert declined.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("spare", [-1, 0])
def test_the_largest_contribution_that_a_server_takes_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    size = contribution_bytes(query(), pair(BITS).public.bits)
    monkeypatch.setattr(announcements, "MAX_CONTRIBUTION_BYTES", size + spare)
    with device(tmp_path) as phone:
        if spare < 0:
            with pytest.raises(Declined, match=f"would have {size} bytes"):
                phone.ask(query())
        else:
            assert phone.ask(query()).phone


def test_keys_for_simulation_only_are_declined_unless_they_are_allowed(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.participant = Participant(
            phone.store,
            phone.limit,
            rng=phone.rng,
            now=lambda: phone.now,
            policy=phone.policy,
            counters=lambda _query: phone.counted,
        )
        with pytest.raises(Declined) as declined:
            phone.ask(query())
    assert declined.value.reason is Reason.BAD_KEY


def test_noise_that_cannot_be_drawn_is_declined_and_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed nonsense: shares so large that there is no sampler for them."""
    with monkeypatch.context() as unverified_tls:
        unverified_tls.setattr("reticent.privacy.mechanisms.Skellam.check_share", lambda *_: None)
        huge = query(counters=[Counter("visits", 0, 2**30)], l1=2**30, l2_squared=2**60, epsilon=1e-6)
    with device(tmp_path, limit=Cost(1.0, 1e-3)) as phone:
        with pytest.raises(Declined, match="each phone would add Skellam noise") as declined:
            phone.ask(huge)
        assert declined.value.reason is Reason.MALFORMED
        assert phone.accounts() == {}


def test_what_cannot_be_computed_is_declined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(*_: Any) -> float:
        raise OverflowError("too large")

    impossible_query = query(id="impossible")
    monkeypatch.setattr("reticent.privacy.mechanisms.skellam._variance", impossible)
    with device(tmp_path) as phone, pytest.raises(Declined, match="cannot be read: too large"):
        phone.ask(impossible_query)


@given(st.data())
def test_whatever_comes_is_a_contribution_or_a_reason(data: st.DataObject) -> None:
    """Announcements with bytes changed, cut or made up: without a countersignature nothing is contributed."""
    good = HONEST.announce(query()).SerializeToString()
    how = data.draw(st.sampled_from(["bytes", "query", "changed"]))
    announcement = wire.Announcement.FromString(good)
    if how == "bytes":
        announcement.query = data.draw(st.binary(max_size=300))
    elif how == "query":
        announcement.query = announcement.query[: data.draw(st.integers(0, len(announcement.query) - 1))]
    else:
        content = bytearray(announcement.query)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] ^= data.draw(st.integers(1, 255))
        announcement.query = bytes(content)
    with tempfile.TemporaryDirectory() as folder, device(Path(folder), servers=HONEST) as phone:
        if announcement.query == query().digest:  # changed and changed back
            return
        assert phone.participant.query_request(announcement) is None
        with pytest.raises(Declined) as declined:
            phone.participant.contribute(announcement, query().to_bytes(), HONEST.public.to_bytes())
        assert declined.value.reason is Reason.NOT_COUNTERSIGNED
        assert phone.accounts() == {}


HONEST = Servers()
