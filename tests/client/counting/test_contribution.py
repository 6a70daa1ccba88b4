"""What a contribution holds, and that nothing else is ever said."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.privacy import Counter, Norms, gaussian_share, skellam_share
from reticent.protocol import AgreementKey, SigningKey, statements
from reticent.randomness import secure, seeded
from reticent.v1 import counting_pb2 as wire
from reticent_client.counting import contribution
from reticent_client.counting.consent import Participation
from reticent_client.counting.contribution import values_of
from reticent_client.counting.enrolment import Member
from reticent_client.counting.inputs import Counted
from reticent_client.counting.records import ContributionState
from reticent_client.errors import Declined
from tests.client.counting.world import MEMBERSHIP, Servers, device, query


def test_a_contribution_holds_the_fitted_counters_and_one_share_of_noise(tmp_path: Path) -> None:
    example = query(counters=[Counter(f"c{k}", -1, 3) for k in range(300)], l1=60, l2_squared=120)
    counted = {f"c{k}": k - 150.3 for k in range(300)}
    with device(tmp_path, counted=counted, rng=seeded(3, "noise")) as phone:
        message = phone.ask(example)
        counters, tags = phone.servers.open(example, message)
        fitted = example.fit([counted[counter.name] for counter in example.counters])
        share = skellam_share(example.share_variance, example.size, seeded(3, "noise"))
        assert counters == (fitted + share).tolist()
        assert share.any()
        assert len(tags) > 1
        assert tags == phone.servers.tags(example, message)
        assert phone.participant.records.all()[0].norms == Norms(0, 0)  # they would tell what was counted
        assert message.seeded


def test_only_in_a_sequence_is_it_remembered_how_much_was_said(tmp_path: Path) -> None:
    with device(tmp_path) as phone:
        phone.ask(query(sequence="s"))
        assert phone.participant.records.all()[0].norms == Norms(3, 5)


def test_real_numbers_are_said_on_the_grid_of_the_query(tmp_path: Path) -> None:
    example = query(noise="gaussian", fraction_bits=20)
    with device(tmp_path, counted={"visits": 1.23456, "swims": -0.5}, rng=seeded(4, "noise")) as phone:
        message = phone.ask(example)
        counters, tags = phone.servers.open(example, message)
        share = gaussian_share(example.share_variance, 2, seeded(4, "noise"), 20)
        assert counters == [round(1.23456 * 2**20) + share[0], -(2**19) + share[1]]
        assert tags == phone.servers.tags(example, message)


def test_a_scaled_counter_and_a_histogram_are_said_as_the_query_asks(tmp_path: Path) -> None:
    bins = [Counter(name, 0, 1, 20) for name in ("km[0,2)", "km[2,5)", "km[5,inf)")]
    asked = query(counters=[Counter("km", 0, 40), Counter("walked", 0, 1, 40), *bins], l2_squared=3600, l1=100)
    policy = Participation(counters=("km", "walked"))  # which allows bins of km
    counted = {"km": 4.4, "walked": 1.0}
    with device(tmp_path, counted=counted, rng=seeded(4, "noise"), policy=policy) as phone:
        said = phone.ask(asked)
        counters, tags = phone.servers.open(asked, said)
        share = skellam_share(asked.share_variance, asked.size, seeded(4, "noise"))
        assert counters == (np.array([4, 40, 0, 20, 0]) + share).tolist()
        assert tags == phone.servers.tags(asked, said)


@pytest.mark.parametrize(
    ("allowed", "is_allowed"),
    [
        (("km[0,2)",), True),
        (("km[*",), False),
        (("*2*",), False),
        (("km",), True),
        (("k*",), True),
        (("steps",), False),
    ],
)
def test_a_bin_is_allowed_by_its_own_name_or_by_that_of_its_number(
    tmp_path: Path, allowed: tuple[str, ...], is_allowed: bool
) -> None:
    asked = query(counters=[Counter("km[0,2)", 0, 1)], l2_squared=1, l1=1)
    with device(tmp_path, policy=Participation(counters=allowed)) as phone:
        if is_allowed:
            assert phone.ask(asked).query == asked.digest
        else:
            with pytest.raises(Declined, match=r"the counter name 'km\[0,2\)' is not allowed"):
                phone.ask(asked)


def test_secure_noise_is_not_marked(tmp_path: Path) -> None:
    with device(tmp_path, rng=secure()) as phone:
        example = query()
        message = phone.ask(example)
        assert not message.seeded
        assert phone.servers.acknowledge(example, message).contribution


def test_the_pads_hide_a_contribution_from_whoever_only_decrypts(tmp_path: Path) -> None:
    """Without the phone's secret the tag slot and the counters are as good as random."""
    example = query()
    with device(tmp_path) as phone:
        message = phone.ask(example)
        phone.servers.agreement = type(phone.servers.agreement)()
        counters, tags = phone.servers.open(example, message)
        assert tags != phone.servers.tags(example, message)
        assert max(map(abs, counters)) > 1


def test_nobody_keeps_the_key_that_a_contribution_was_hidden_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the phone later, and has all that the servers have, does not learn what it said."""
    made = contribution._agreement_key
    keys: list[AgreementKey] = []

    def kept(*arguments: Any) -> AgreementKey:
        keys.append(made(*arguments))
        return keys[-1]

    monkeypatch.setattr(contribution, "_agreement_key", kept)
    with device(tmp_path, rng=secure()) as phone:
        message = phone.ask(query())
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    [key] = keys
    assert key.public == message.agreement_key
    assert key.public in content  # what is searched is where the message is
    for secret in (key.to_bytes(), phone.servers.secret(message)):
        assert secret not in content
        assert secret.hex().encode() not in content


def test_a_phone_that_was_copied_while_it_ran_says_nothing_else_under_the_same_key(tmp_path: Path) -> None:
    """Its generator comes twice to the same state, as that of a virtual machine that is restored does."""
    messages = []
    for number, visits in enumerate((0, 1, 0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with device(folder, counted={"visits": visits}, rng=seeded(5, "copied"), joined=False) as phone:
            request = phone.participant.enrolment.join(SERVERS.invitation())
            copied = SigningKey(bytes(range(32)))
            phone.participant.enrolment._keep(Member(SERVERS.invitation(), copied))
            request.verify_key = copied.public
            request.signature = copied.sign(statements.joining(request.invitation, copied.public))
            phone.participant.enrolment.joined(SERVERS.enrol(request, phone.now + MEMBERSHIP))
            phone.servers = SERVERS
            messages.append(phone.ask(query()))
    first, other, same = messages
    assert first == same
    assert first.agreement_key != other.agreement_key
    assert SERVERS.tags(query(), first) != SERVERS.tags(query(), other)


SERVERS = Servers()


def test_what_was_said_once_is_said_again_byte_by_byte(tmp_path: Path) -> None:
    example = query()
    with device(tmp_path, rng=secure()) as phone:
        first = phone.ask(example).SerializeToString()
        assert phone.ask(example).SerializeToString() == first
        phone.counted = {"visits": 0}
        phone.restart()
        assert phone.ask(example).SerializeToString() == first
        assert [each.SerializeToString() for each in phone.participant.due()] == [first]
        phone.participant.acknowledged(phone.servers.acknowledge(example, wire.Contribution.FromString(first)))
        assert phone.participant.due() == []
        assert phone.ask(example).SerializeToString() == first
        assert phone.participant.records.all()[0].state is ContributionState.ACKNOWLEDGED


def test_a_decided_answer_is_forgotten_and_the_fact_stays(tmp_path: Path) -> None:
    example = query()
    with device(tmp_path) as phone:
        phone.ask(example)
        phone.participant.decided(phone.servers.decide(example, wire.RELEASED))
        [record] = phone.participant.records.all()
        assert record.message is None
        assert record.state is ContributionState.RELEASED
        assert phone.participant.awaited() == []


@pytest.mark.parametrize("cohort", [0, 2])
def test_a_contribution_names_its_cohort(tmp_path: Path, cohort: int) -> None:
    example = query(population=90, cohorts=3)
    with device(tmp_path) as phone:
        message = phone.ask(example, cohort=cohort)
        counters, tags = phone.servers.open(example, message)
        assert message.cohort == cohort
        assert tags == phone.servers.tags(example, message)
        assert counters


@pytest.mark.parametrize(
    ("value", "expected"),
    [(math.nan, 0), (math.inf, 3), (-math.inf, 0), (10**400, 3), (-(10**400), 0), (1e308, 3), (True, 1), (2.4, 2.4)],
)
def test_whatever_arithmetic_brings_about_is_said_as_some_number(value: float, expected: float) -> None:
    """Declining it would be seen, and tell what was counted."""
    assert values_of(query(), {"visits": value}) == [expected, 0]


def test_who_has_none_of_the_counters_says_zero(tmp_path: Path) -> None:
    """Or a query of one rare counter would sort its phones, without any noise."""
    path = tmp_path / "counters.csv"
    for content in ("name,value\nsteps,9000\n", "name,value\nsteps,9000\nvisits,1\n"):
        path.write_text(content)
        folder = tmp_path / str(len(content))
        folder.mkdir()
        with device(folder) as phone:
            phone.counted = Counted(path, ()).among(query())
            assert phone.ask(query()).query == query().digest
