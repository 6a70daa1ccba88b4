"""The public names as an app uses them: mypy checks every type here in strict mode, and the tests run the code."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt

from reticent.paillier import PublicKey
from reticent.privacy import (
    Cost,
    Counter,
    Ledger,
    Mechanism,
    Query,
    Quote,
    Release,
    gaussian_sigma,
    mechanism_of,
    skellam_variance,
)
from reticent.randomness import secure
from reticent_analyst import Analyst, Handle, Plan, Progress, Question, plan
from reticent_client import (
    Audit,
    Broker,
    Connection,
    MarkovChain,
    MaskIt,
    Phone,
    PhoneStore,
    Policy,
    Step,
    audit,
    connect,
    hybrid,
)
from reticent_keys import KeyPair

DAYS: list[list[str | None]] = [["home", "work", "home"], ["home", "hospital", "home"], ["home", None, "home"]]


def test_an_app_masks_contexts(tmp_path: Path) -> None:
    chain = assert_type(MarkovChain.fit(DAYS), MarkovChain)
    policy = assert_type(hybrid(chain, sensitive={"hospital"}, delta=0.2), Policy)
    policy.save(tmp_path / "policy.npz")
    mask = MaskIt(assert_type(Policy.load(tmp_path / "policy.npz"), Policy))
    released = assert_type(mask.observe("home"), str | None)
    assert released in {"home", None}
    assert_type(policy.utility, float)
    assert_type(audit(policy, [["home", "work", "home"]]), Audit)


def test_an_analyst_plans_a_count() -> None:
    question = Question(id="gym", counters=[Counter("visits", 0, 2)], epsilon=1.0, delta=1e-6, absent=0.3)
    query = assert_type(question.to_query(population=10_000, key_id="k1"), Query)
    planned = assert_type(plan(query, absent=0.3), Plan)
    assert planned.query == query


def test_a_budget_and_noise_are_computed() -> None:
    ledger = Ledger(Cost(2.0, 1e-5))
    quote = assert_type(ledger.quote("gym", Cost(1.0, 1e-6)), Quote)
    assert assert_type(quote.fits, bool)
    assert assert_type(gaussian_sigma(1.0, 1e-6, 1.0), float) ** 2 > assert_type(
        skellam_variance(1.0, 1e-6, 1.0), float
    )
    mechanism = assert_type(mechanism_of("skellam"), Mechanism)
    assert_type(mechanism.share(1.0, 3, secure(), 0), npt.NDArray[np.int64])


def test_a_key_pair_encrypts_and_decrypts() -> None:
    pair = KeyPair.generate(1024, simulation=True)
    public = assert_type(pair.public, PublicKey)
    [found] = pair.decrypt(public.encrypt([42], secure()))
    assert found == 42


def test_an_app_reads_the_stream_of_a_phone(tmp_path: Path) -> None:
    policy = hybrid(MarkovChain.fit(DAYS), sensitive={"hospital"}, delta=0.2)
    step = asyncio.run(_current(policy, PhoneStore(tmp_path / "phone.db")))
    assert step is None or step.context is None  # nothing before tomorrow


async def _current(policy: Policy, store: PhoneStore) -> Step | None:
    async with Phone(policy, store=store, zone=dt.UTC) as phone, Broker(phone) as broker:
        token = assert_type(phone.apps.add("weather"), str)
        phone.sense("home")
        with assert_type(connect(broker.address, token), Connection) as connection:
            step = await asyncio.to_thread(connection.current)
    store.close()
    return assert_type(step, Step | None)


def count(address: str, identity: Path, question: Question, ledger: Ledger) -> Release:
    """Needs servers: mypy checks it, and nothing calls it."""
    with Analyst(address, None, identity=identity, ledger=ledger) as analyst:
        query = assert_type(analyst.query(question), Query)
        handle = assert_type(analyst.start(query), Handle)
        assert_type(handle.status(), Progress)
        return assert_type(handle.result(timeout=60.0), Release)
