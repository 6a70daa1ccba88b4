"""The public names as an app uses them: mypy checks every type here in strict mode, and the tests run the code."""

import asyncio
import contextlib
import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import assert_type

import grpc
import numpy as np
import numpy.typing as npt

from reticent.hierarchy import Cut, Decimals, Hierarchy, Node, Tree, level_cut, lowest_cut
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
    secure,
    skellam_variance,
)
from reticent.protocol import Refused, Unreachable
from reticent.rates import RateTable, Resolved, resolve
from reticent.selection import Rates, Revenues, Selection, best, exact, greedy
from reticent_analyst import (
    Analyst,
    Certificate,
    CertificateError,
    Handle,
    NotDecided,
    Plan,
    Progress,
    Question,
    plan,
)
from reticent_client import (
    AlreadyJoined,
    AppRefused,
    AppReports,
    Audit,
    BadMembership,
    Broker,
    Connection,
    CounterNotAllowed,
    InUse,
    Invitation,
    MarkovChain,
    MaskIt,
    NotJoined,
    Participation,
    Phone,
    PhoneStore,
    Policy,
    ReticentError,
    Round,
    Situation,
    Step,
    UnknownApp,
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


def certified(folder: Path, name: str) -> Certificate:
    """A certificate of a new authority."""
    certs = folder / "certs"
    subprocess.run([sys.executable, "-m", "reticent", "certs", "init", certs, "--analyst", "ada"], check=True)
    return assert_type(Certificate.load(certs, name), Certificate)


def test_an_app_reports_what_it_has_counted(tmp_path: Path) -> None:
    certificate = certified(tmp_path, "keys")  # it names this machine
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        assert asyncio.run(_report(store, certificate, {"visits": 1.0})) == "kept"
        assert asyncio.run(_report(store, certificate, {"else": 1.0})) == "not allowed, nor over the wire"


async def _report(store: PhoneStore, certificate: Certificate, counters: dict[str, float]) -> str:
    allowed = Participation(apps={"app": AppReports(counters={"visits": (0, 7)})})
    credentials = grpc.ssl_server_credentials([(certificate.key, certificate.certificate)])
    async with (
        Phone(store=store, participation=allowed) as phone,
        Broker(phone, "127.0.0.1:0", credentials=credentials) as broker,
    ):
        with contextlib.suppress(UnknownApp):
            phone.apps.remove("app")
        token = phone.apps.add("app", trusted=True)
        with connect(broker.address, token, root_certificates=certificate.authority) as connection:
            try:
                phone.report("app", counters)
                await asyncio.to_thread(connection.report, counters)
            except CounterNotAllowed:
                try:
                    await asyncio.to_thread(connection.report, counters)
                except AppRefused:
                    return "not allowed, nor over the wire"
        return "kept"


def test_an_app_joins_and_leaves_as_the_servers_allow(tmp_path: Path) -> None:
    authority = certified(tmp_path, "ada").authority.decode()
    invitation = Invitation(bytes(16), bytes(32), authority, "127.0.0.1:1", "127.0.0.1:1")  # nobody listens there
    assert Invitation.from_text(invitation.to_text()) == invitation
    rounds: list[Round] = []
    with contextlib.closing(PhoneStore(tmp_path / "phone.db")) as store:
        assert asyncio.run(_leave(store)) == "not joined"
        assert asyncio.run(_join(store, invitation, rounds)) == "unreachable"


async def _join(store: PhoneStore, invitation: Invitation, rounds: list[Round]) -> str:
    situation = Situation(charging=True, unmetered=True)
    async with Phone(
        store=store, participation=Participation(), situation=lambda: situation, on_round=rounds.append
    ) as phone:
        for _ in range(20):
            try:
                await phone.counting.join(invitation)
            except AlreadyJoined:
                return "joined before"
            except (BadMembership, Refused) as error:
                return str(error)
            except Unreachable:
                return "unreachable"
            except InUse:  # a round is being made
                await asyncio.sleep(0.1)
        return "joined"


async def _leave(store: PhoneStore) -> str:
    async with Phone(store=store) as phone:
        try:
            await phone.counting.leave()
        except NotJoined:
            return "not joined"
        except ReticentError as error:  # the base of all
            return str(error)
    return "left"


def count(address: str, certs: Path, identity: Path, question: Question, ledger: Ledger) -> Release | None:
    """Needs servers: mypy checks it, and nothing calls it."""
    try:
        certificate = assert_type(Certificate.load(certs, "ada"), Certificate)
    except CertificateError:
        certificate = None  # a server on this machine may require none
    with Analyst(address, certificate, identity=identity, ledger=ledger) as analyst:
        query = assert_type(analyst.query(question), Query)
        handle = assert_type(analyst.start(query), Handle)
        assert_type(handle.status(), Progress)
        try:
            return assert_type(handle.result(timeout=60.0), Release)
        except (NotDecided, Refused, Unreachable):
            return None


def test_a_phone_chooses_a_cut_and_a_service_looks_up_rates(tmp_path: Path) -> None:
    queries = Tree("query", 2, {"espresso": "cafe", "latte": "cafe"})
    contexts = [("40.7271,-73.9910", "espresso"), ("40.7272,-73.9910", "latte"), ("41.0,-73.0", "latte")]
    hierarchy = Hierarchy([Decimals("location"), queries], contexts, [(0, 0), (0, 1), (5, 1)])
    hierarchy.save(tmp_path / "hierarchy.json")
    assert_type(Hierarchy.load(tmp_path / "hierarchy.json"), Hierarchy)
    cut = assert_type(lowest_cut(hierarchy, {contexts[0]: 0.2, Node(3, ()): 0.5}), Cut)
    assert assert_type(cut.generalise(contexts[0]), Node) == Node(2, ("40,-73", "cafe"))
    assert max(cut.disclosure([contexts[0]]).values()) <= 0.2
    assert level_cut(hierarchy, 3).nodes == hierarchy.nodes[:1]
    table = RateTable(
        hierarchy=hierarchy.fingerprint,
        ads=("cake",),
        frequency=hierarchy.sums([0.5, 0.25, 0.25]),
        ad=np.zeros(1, dtype=np.int32),
        node=np.zeros(1, dtype=np.int32),
        rate=np.array([0.1]),
        low=np.array([0.05]),
        high=np.array([0.2]),
        views=np.array([40.0]),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=False,
        source="autumn",
    )
    resolved = assert_type(resolve(table, hierarchy, least_support=10), Resolved)
    assert resolved.rate.tolist() == [0.1, 0.1, 0.1]
    rates = Rates(resolved.ad, resolved.column, resolved.rate, (len(table.ads), len(resolved.columns)))
    assert assert_type(greedy(rates, resolved.weights, [2.0], 1), Selection).ads.tolist() == [0]
    revenues = assert_type(Revenues.of(rates, Rates.of([[1.0, 0.0, 2.0]])), Revenues)
    assert revenues.columns(slice(1, 2)).greedy(resolved.weights[1:2], 1).gains.tolist() == []
    assert exact(revenues, resolved.weights, 1, alpha=0.01).ads.tolist() == [0]
    assert assert_type(best([0.1, 0.3], [1.0, 0.5]), int | None) == 1
