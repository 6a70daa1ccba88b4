"""A policy survives its file bit for bit, and nothing else is taken for one."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reticent_client import (
    Adversary,
    FileError,
    MarkovChain,
    Policy,
    adaptive,
    hybrid,
    mask_sensitive,
    optimal,
    simulatable,
)
from reticent_client.mask import policy
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.checks import AGAINST, PRIVATE
from tests.client.mask import chains

REFUSED = r"the policy is damaged|this is not a policy"

SHARING = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal bit for bit."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def assert_same(policy: Policy, other: Policy) -> None:
    """Two policies are one and the same."""
    assert type(policy) is type(other)
    assert policy.check == other.check
    assert policy.complete is other.complete
    assert policy.utility.hex() == other.utility.hex()
    assert policy.ceiling == other.ceiling
    assert policy.contexts == other.contexts
    assert same(policy.deltas, other.deltas)
    assert len(policy.against) == len(other.against)
    for chain, twin in zip((policy.chain, *policy.against), (other.chain, *other.against), strict=True):
        assert chain.contexts == twin.contexts
        assert same(chain.initial, twin.initial)
        assert same(chain.transitions, twin.transitions)
    assert [other is policy.chain for other in policy.against] == [twin is other.chain for twin in other.against]
    arrays, twins = policy.arrays(), other.arrays()
    assert arrays.keys() == twins.keys()
    assert all(same(arrays[name], twins[name]) for name in arrays)
    assert policy.fingerprint() == other.fingerprint()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a policy goes."""
    return tmp_path / "policy.npz"


def example() -> Policy:
    """A small policy of the kind with most arrays."""
    return adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1)


@pytest.mark.parametrize("check", PRIVATE)
@SHARING
@given(problem=chains.problems())
def test_survives(check: Callable[..., Policy], problem: chains.Problem, path: Path) -> None:
    """Every kind of policy, on all chains."""
    policy = check(problem.chain, **problem.arguments)
    policy.save(path)
    assert_same(policy, Policy.load(path))


@pytest.mark.parametrize("check", AGAINST)
@SHARING
@given(data=st.data())
def test_survives_with_its_adversaries(check: Callable[..., Policy], data: st.DataObject, path: Path) -> None:
    """The chains of others come back too, and the user's own is not stored twice."""
    problem = data.draw(chains.problems())
    against = [data.draw(chains.beliefs_about(problem.chain)), problem.chain]
    policy = check(problem.chain, against=against, **problem.arguments)
    policy.save(path)
    assert_same(policy, Policy.load(path))
    with zipfile.ZipFile(path) as file:
        assert sum(name.startswith("against.") for name in file.namelist()) == 2


def test_a_mask_survives(path: Path) -> None:
    """Its deltas are infinite."""
    policy = mask_sensitive(chains.two_paths(), sensitive={"s", (0, "a")})
    policy.save(path)
    assert_same(policy, Policy.load(path))


def test_awkward_facts_survive(path: Path) -> None:
    """Labels of all kinds, an incomplete search, a ceiling, and a number with many digits."""
    labels = ["", "naïve \u2603", "\udc80", 'quo"te', "a,b\n"]
    chain = MarkovChain(labels, np.full(5, 0.2), np.full((1, 5, 5), 0.2))
    deltas = np.full((2, 5), np.nan)
    deltas[1, 2] = 0.1 + 0.2
    origin = Provenance("hybrid", chain, deltas, (), 1 / 3, False, 2 / 3)
    policy = VectorPolicy(origin, np.full((2, 5), 1 / 7))
    policy.save(path)
    assert_same(policy, Policy.load(path))


def test_a_loaded_policy_decides_as_before(path: Path) -> None:
    """The adversary believes the same of both, to the last bit."""
    policy = example()
    policy.save(path)
    outputs = ["a", None, None]
    assert same(Adversary(policy).beliefs(outputs), Adversary(Policy.load(path)).beliefs(outputs))


def test_numpy_reads_it(path: Path) -> None:
    """It is an ordinary archive, with a header that says what it is."""
    example().save(path)
    with np.load(path, allow_pickle=False) as arrays:
        header = json.loads(arrays["header.json"])
        assert same(arrays["deltas"], example().deltas)
    assert header["format"] == "reticent-policy"
    assert header["version"] == 1
    assert header["kind"] == "automaton"


def test_the_same_policy_makes_the_same_file(tmp_path: Path) -> None:
    """Whenever and wherever it is saved."""
    example().save(tmp_path / "one")
    example().save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_is_replaced_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing fails the old policy stands, and nothing else is left behind."""
    old = example()
    old.save(path)

    def fail(_descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        mask_sensitive(chains.coin(), sensitive={"s"}).save(path)
    assert_same(old, Policy.load(path))
    assert list(path.parent.iterdir()) == [path]


def test_every_flipped_byte_is_seen(path: Path) -> None:
    """Any byte, any bit of it."""
    mask_sensitive(chains.coin(), sensitive={"s"}).save(path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=REFUSED):
            Policy.load(path)


def test_every_truncation_is_seen(path: Path) -> None:
    """And something appended."""
    mask_sensitive(chains.coin(), sensitive={"s"}).save(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match=REFUSED):
            Policy.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FileError, match="its digest does not fit"):
        Policy.load(path)


def npz(**arrays: NDArray[Any]) -> bytes:
    """What NumPy writes."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"reticent",
        bytes(range(256)) * 40,
        b"PK\x03\x04" + bytes(1000),
        json.dumps(chains.coin().to_json()).encode(),
        npz(table=np.ones(3)),
        npz(table=np.array([{"a": 1}], dtype=object)),
        pickle.dumps({"format": "reticent-policy"}),
    ],
    ids=["empty", "text", "bytes", "zip-like", "chain", "npz", "pickles", "pickle"],
)
def test_foreign_files_are_refused(path: Path, content: bytes) -> None:
    """With one sentence that says so."""
    path.write_bytes(content)
    with pytest.raises(FileError) as error:
        Policy.load(path)
    assert str(error.value) == f"{path}: this is not a policy written by Reticent"


def test_a_file_that_is_not_there(path: Path) -> None:
    """Or cannot be read."""
    with pytest.raises(FileError, match=r"cannot read .*policy\.npz: No such file"):
        Policy.load(path)
    with pytest.raises(FileError, match=f"cannot read {path.parent}: Is a directory"):
        Policy.load(path.parent)


def test_a_policy_too_large_to_read_is_not_written(path: Path) -> None:
    """The limits of the reader hold for the writer."""
    chain = MarkovChain([str(i) for i in range(4097)], np.eye(4097)[0], np.empty((0, 4097, 4097)))
    with pytest.raises(ValueError, match="at most 4096 contexts"):
        mask_sensitive(chain, sensitive={"0"}).save(path)
    assert not path.exists()


def test_a_file_too_large_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However right it is."""
    example().save(path)
    monkeypatch.setattr(policy, "FORMAT", replace(policy.FORMAT, max_bytes=1000))
    with pytest.raises(FileError, match="larger than any policy"):
        Policy.load(path)
    with pytest.raises(ValueError, match="a file has at most 1000"):
        example().save(path)


def test_fingerprints_tell_policies_apart() -> None:
    """By anything that a file would hold."""
    chain = chains.two_paths()
    policies = [
        hybrid(chain, sensitive={"s"}, delta=0.1),
        hybrid(chain, sensitive={"s"}, delta=0.2),
        hybrid(chain, sensitive={(1, "s")}, delta=0.1),
        simulatable(chain, sensitive={"s"}, delta=0.1),
        simulatable(chain, sensitive={"s"}, delta=0.1, against=[chain, chain]),
        mask_sensitive(chain, sensitive={"s"}),
    ]
    assert len({policy.fingerprint() for policy in policies}) == len(policies)


def test_the_ceiling_is_no_part_of_a_fingerprint() -> None:
    """It depends on how long somebody looked for it; a phone goes on with the policy as before."""
    policy = hybrid(chains.two_paths(), sensitive={"s"}, delta=0.1)
    before = policy.fingerprint()
    policy.provenance = replace(policy.provenance, ceiling=2.5)
    assert policy.fingerprint() == before


def test_loading_needs_no_scipy(path: Path) -> None:
    """A phone runs what somebody else computed."""
    optimal(chains.two_paths(), sensitive={"s"}, delta=0.1).save(path)
    code = (
        "import sys; sys.modules['scipy'] = None; from reticent_client import Policy; print(Policy.load(sys.argv[1]))"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("<optimal policy: 3 steps, 7 contexts")
