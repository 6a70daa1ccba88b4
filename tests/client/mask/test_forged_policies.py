"""Policy files whose digest fits, by somebody who knows how: no lie in them does harm."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from reticent_client import FileError, Policy, mask_sensitive
from tests.client.mask import chains
from tests.client.mask.test_policy_file import assert_same, example


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a policy goes."""
    return tmp_path / "policy.npz"


Members = dict[str, bytes]


def members(policy: Policy, path: Path) -> Members:
    """What a policy's archive holds."""
    policy.save(path)
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path: Path, content: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """An archive of anything, with the digest that fits."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, member in content.items():
            archive.writestr(name, member)
        archive.comment = bytes(64)
    seal(path, file.getvalue()[:-64])


def seal(path: Path, content: bytes) -> None:
    """The content, with the digest that fits."""
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())


def headed(content: Members, **changes: Any) -> Members:
    """Another header; `...` removes a fact."""
    header = json.loads(content["header.json"]) | changes
    return content | {"header.json": json.dumps({k: v for k, v in header.items() if v is not ...}).encode()}


def npy(array: NDArray[Any]) -> bytes:
    """One array as it stands in an archive."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def test_a_forged_file_can_be_whole(path: Path) -> None:
    """The forgery itself is sound: the digest is no signature."""
    forge(path, members(example(), path))
    assert_same(example(), Policy.load(path))


def test_a_newer_file_is_refused(path: Path) -> None:
    """With both versions."""
    forge(path, headed(members(example(), path), version=2, news=True))
    with pytest.raises(FileError, match=r"the policy has format version 2: this program reads 1$"):
        Policy.load(path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "other"}, "not a policy written by Reticent"),
        ({"kind": "oracle"}, "unknown kind, 'oracle'"),
        ({"kind": ...}, "'kind' is missing"),
        ({"kind": "vector"}, "'table' is missing"),
        ({"kind": ["vector"]}, "unknown kind"),
        ({"check": 3}, "check must be a name"),
        ({"complete": 1}, "complete true or false"),
        ({"utility": -1.0}, "utility must be a number of at least 0: got -1.0"),
        ({"utility": float("nan")}, "utility must be"),
        ({"utility": True}, "utility must be"),
        ({"utility": "1"}, "utility must be"),
        ({"ceiling": float("inf")}, "ceiling must be"),
        ({"contexts": "abcdefg"}, "contexts must be a list"),
        ({"contexts": ["a"] * 7}, "'a' is named twice"),
        ({"contexts": [1, 2, 3, 4, 5, 6, 7]}, "a context is a string"),
        ({"contexts": ["a"]}, "one probability for each of the 1 contexts"),
        ({"contexts": [str(i) for i in range(5000)]}, "at most 4096"),
        ({"against": "own"}, "against must be a list"),
        ({"against": ["other"]}, r"'against\.0\.initial' is missing"),
        ({"against": ["own"] * 65}, "at most 64"),
        ({"more": 1}, "something that no policy has"),
    ],
)
def test_a_header_that_lies_is_refused(path: Path, changes: dict[str, Any], sentence: str) -> None:
    """Whatever it lies about."""
    forge(path, headed(members(example(), path), **changes))
    with pytest.raises(FileError, match=sentence):
        Policy.load(path)


def _tables() -> dict[str, tuple[str, NDArray[Any], str]]:
    """Arrays that do not belong into the example's file."""
    deltas = example().deltas
    rows = example().arrays()["rows"]
    onward = example().arrays()["onward"]
    return {
        "other shape": ("deltas", deltas[:2], "deltas must be above 0"),
        "negative delta": ("deltas", -deltas, "deltas must be above 0"),
        "other type": ("deltas", deltas.astype(np.float32), "not of numbers"),
        "big-endian": ("deltas", deltas.astype(">f8"), "not of numbers"),
        "Fortran order": ("deltas", np.asfortranarray(deltas), "not of numbers"),
        "objects": ("deltas", deltas.astype(object), "not of numbers"),
        "text": ("deltas", deltas.astype(str), "not of numbers"),
        "records": ("deltas", np.zeros(3, dtype=[("a", "f8")]), "not of numbers"),
        "integers for floats": ("deltas", np.ones(deltas.shape, np.int32), "deltas does not hold"),
        "NaN rows": ("policy.rows", rows * np.nan, "rows must hold probabilities"),
        "high rows": ("policy.rows", rows + 1, "rows must hold probabilities"),
        "floats for nodes": ("policy.onward", onward.astype(float), "onward does not hold"),
        "NaN for nodes": ("policy.onward", onward * np.nan, "onward"),
        "nodes beyond": ("policy.onward", onward + np.int32(10**6), "onward must hold nodes"),
        "rows that do not sum to 1": ("chain.transitions", chains.two_paths().transitions / 2, "sum to 0.5"),
        "a chain without steps": ("chain.transitions", np.zeros((5, 0, 7)), "damaged"),
        "no dimension": ("chain.transitions", np.array(1.0), "damaged"),
        "an array too many": ("surplus", np.zeros(2), "something that no policy has"),
    }


@pytest.mark.parametrize("name", _tables())
def test_arrays_that_do_not_fit_are_refused(path: Path, name: str) -> None:
    """Shapes, types and ranges."""
    place, array, sentence = _tables()[name]
    forge(path, members(example(), path) | {f"{place}.npy": npy(array)})
    with pytest.raises(FileError, match=sentence):
        Policy.load(path)


@pytest.mark.parametrize(
    "shape",
    [
        "(3, 1000000000000)",
        "(2, 7)",
        "(3, 7, 2)",
        "(1000000000000000000000, 0)",
        "(-3, -7)",
        "(3,)",
        "(3.0, 7)",
        "((3, 7),)",
        "3",
        "(" * 500,
    ],
)
def test_a_shape_that_lies_is_refused(path: Path, shape: str) -> None:
    """Nothing is allocated for what is not there."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(566) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(3 * 7 * 8)
    forge(path, members(example(), path) | {"deltas.npy": member})
    with pytest.raises(FileError, match="damaged"):
        Policy.load(path)


def test_a_pickle_is_never_loaded(path: Path) -> None:
    """Even where the digest fits."""

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return path.with_name("sprung").touch, ()

    trap = npy(np.array([[Trap()]], dtype=object))
    forge(path, members(example(), path) | {"deltas.npy": trap})
    with pytest.raises(FileError, match="damaged"):
        Policy.load(path)
    np.load(io.BytesIO(trap), allow_pickle=True)  # the trap would have sprung
    assert path.with_name("sprung").exists()


def test_a_bomb_is_not_unpacked(path: Path) -> None:
    """A small file that would become large is refused before it does; it may be no larger than memory allows."""
    content = members(example(), path) | {"deltas.npy": npy(np.zeros((1000, 1000)))}
    forge(path, content, zipfile.ZIP_DEFLATED)
    with pytest.raises(FileError, match="claims to hold more than it does"):
        Policy.load(path)


def test_members_may_not_overlap(path: Path) -> None:
    """Many names for one large member would be a bomb without compression."""
    forge(path, members(example(), path) | {"deltas.npy": npy(np.zeros((100, 100)))})
    whole = path.read_bytes()[:-64]
    with zipfile.ZipFile(path) as file:
        size = file.getinfo("deltas.npy").file_size
    declared = size.to_bytes(4, "little")
    assert whole.count(declared) >= 2
    seal(path, whole.replace(declared, (2**31).to_bytes(4, "little")))
    with pytest.raises(FileError, match="damaged"):
        Policy.load(path)


def test_deep_headers_do_not_overflow(path: Path) -> None:
    """JSON may nest; the reader does not follow for ever."""
    forge(path, members(example(), path) | {"header.json": b"[" * 200_000})
    with pytest.raises(FileError, match="not a policy written by Reticent"):
        Policy.load(path)


def test_an_archive_that_lies_about_itself_is_refused(path: Path) -> None:
    """Every byte of the archive's own tables may be wrong while the digest fits."""
    mask_sensitive(chains.coin(), sensitive={"s"}).save(path)
    whole = path.read_bytes()[:-64]
    directory = whole.index(b"PK\x01\x02")
    original = Policy.load(path)
    for position in range(directory, len(whole)):
        seal(path, whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            policy = Policy.load(path)
        except FileError as error:
            assert "\n" not in str(error)  # noqa: PT017  # others are harmless: times, attributes
        else:
            assert_same(original, policy)
