"""Policies on disk: an `.npz` without pickle, whose `header.json` describes the arrays.

The last 64 bytes of a file are the SHA-256 digest of all bytes before them, in hexadecimal, as the archive's comment,
so that any damage is detected. It is not a signature: anyone who can write a file can write its digest. Load policies
only from sources that you trust like the source of a program.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.storage import files
from reticent.storage.documents import DocumentFormat
from reticent_client.errors import FileError
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.policy import Automaton, Policy, Provenance, ReleaseTimes, VectorPolicy

FORMAT = DocumentFormat("reticent-policy", 1, "a policy", FileError)

MAX_BYTES = 256 * 2**20
"""The largest file that is read; nothing in it may claim to be larger than the file."""

MAX_CONTEXTS = 4096
MAX_STEPS = 24 * 60 * 60
MAX_OPPONENTS = 64

KINDS: Mapping[str, type[Policy]] = {kind.kind: kind for kind in (VectorPolicy, ReleaseTimes, Automaton)}

Arrays = dict[str, npt.NDArray[Any]]

_HEADER = "header.json"
_DIGEST_BYTES = 64
# NumPy's own reader would evaluate whatever stands there.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<dtype><f8|<i4)', 'fortran_order': False, "
    rb"'shape': \((?P<shape>[0-9, ]{0,64})\), \} *\n",
    re.DOTALL,
)
_FIRST = b"PK\x03\x04"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same policy makes the same file, whenever it is saved
_OWN, _OTHER = "own", "other"  # an adversary's chain: the user's, or one with arrays of its own
_BAD_ARCHIVE = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)
_POLICY = "policy."  # what a policy's own arrays are called in a file


def save(policy: Policy, path: str | Path) -> None:
    """Write the policy, whole or not at all.

    `ValueError` for a policy that no phone would read: too many contexts, steps or bytes.
    """
    header, arrays = _described(policy)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        file.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), header)
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
        file.comment = bytes(_DIGEST_BYTES)
    content = archive.getvalue()[:-_DIGEST_BYTES]
    if len(content) + _DIGEST_BYTES > MAX_BYTES:
        raise ValueError(f"this policy takes {len(content)} bytes: a file has at most {MAX_BYTES}")
    files.replace(Path(path), content + _digest(content), files.PUBLIC)


def load(path: str | Path) -> Policy:
    """Read a policy that `save` wrote, bit for bit.

    `FileError`, with one sentence, for a damaged, foreign or newer file.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _read(content)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error


def fingerprint(policy: Policy) -> str:
    """A digest of the contents of the policy's file, equal only for equal policies."""
    header, arrays = _described(policy)
    digest = hashlib.sha256(header)
    for name, array in arrays.items():
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _described(policy: Policy) -> tuple[bytes, Arrays]:
    """The header and the arrays that restore this policy."""
    origin = policy.provenance
    chain = origin.chain
    if chain.size > MAX_CONTEXTS or chain.horizon > MAX_STEPS or len(origin.against) > MAX_OPPONENTS:
        raise ValueError(
            f"a policy file has at most {MAX_CONTEXTS} contexts, {MAX_STEPS} steps and "
            f"{MAX_OPPONENTS} adversaries: this one has {chain.size}, {chain.horizon} and "
            f"{len(origin.against)}"
        )
    header = {
        "kind": policy.kind,
        "check": origin.check,
        "complete": origin.complete,
        "utility": float(origin.utility),
        "ceiling": None if origin.ceiling is None else float(origin.ceiling),
        "contexts": chain.contexts,
        "against": [_OWN if other is chain else _OTHER for other in origin.against],
    }
    arrays: Arrays = _chain_arrays("chain", chain) | {"deltas": origin.deltas}
    for k, other in enumerate(origin.against):
        if other is not chain:
            arrays |= _chain_arrays(f"against.{k}", other)
    arrays |= {_POLICY + name: array for name, array in policy.arrays().items()}
    return json.dumps(FORMAT.document(header)).encode("ascii"), {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in arrays.items()
    }


def _chain_arrays(name: str, chain: MarkovChain) -> Arrays:
    return {f"{name}.initial": chain.initial, f"{name}.transitions": chain.transitions}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode("ascii")


def _read(content: bytes) -> Policy:
    """The policy in the bytes of a file."""
    if not content.startswith(_FIRST) or _HEADER.encode("ascii") not in content[:128]:
        raise FileError("this is not a policy written by Reticent")
    if len(content) > MAX_BYTES:
        raise FileError(f"the file is larger than any policy may be, {MAX_BYTES} bytes")
    if content[-_DIGEST_BYTES:] != _digest(content[:-_DIGEST_BYTES]):
        raise FileError("the policy is damaged: its digest does not fit its content")
    header, arrays = _members(content)
    try:
        return _policy(header, arrays)
    except FileError:
        raise
    except KeyError as error:
        raise FileError(f"the policy is damaged: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise FileError(f"the policy is damaged: {error}") from error


def _members(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The header, of this version, and the arrays of an archive whose digest fits."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            infos = file.infolist()
            sizes = [info.file_size for info in infos]
            stored = all(info.compress_type == zipfile.ZIP_STORED for info in infos)
            if not stored or sum(sizes) > len(content):
                raise FileError("the policy is damaged: it claims to hold more than it does")
            header = FORMAT.parse(file.read(_HEADER))
            names = {info.filename for info in infos} - {_HEADER}
            if len(infos) != len(names) + 1:
                raise FileError("the policy is damaged: it names an array twice")
            return header, {name.removesuffix(".npy"): _array(file.read(name)) for name in names}
    except _BAD_ARCHIVE as error:
        raise FileError("the policy is damaged: its archive cannot be read") from error


def _array(content: bytes) -> npt.NDArray[Any]:
    """An array of numbers whose shape and type fill the member exactly; nothing is copied."""
    head = _ARRAY.match(content)
    if head is None:
        raise FileError("the policy is damaged: an array in it is not of numbers as NumPy writes them")
    shape = tuple(int(side) for side in head["shape"].split(b",") if side.strip())
    try:
        return np.frombuffer(content, head["dtype"].decode("ascii"), offset=head.end()).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise FileError("the policy is damaged: an array in it has not the shape that it claims") from error


def _policy(header: dict[str, Any], arrays: Arrays) -> Policy:
    """The policy, if header and arrays fit together; `ValueError` or `KeyError` if they do not."""
    kind = KINDS.get(str(header["kind"]))
    if kind is None:
        raise FileError(f"the policy is of an unknown kind, {header['kind']!r}")
    provenance = _provenance(header, arrays)
    own = {n.removeprefix(_POLICY): a for n, a in arrays.items() if n.startswith(_POLICY)}
    with np.errstate(invalid="ignore"):
        policy = kind.from_arrays(provenance, own)
    written, again = _described(policy)
    if FORMAT.parse(written) != header or again.keys() != arrays.keys():
        raise ValueError("it holds something that no policy has")
    for name, array in again.items():
        if not _same(array, arrays[name]):
            raise ValueError(f"{name} does not hold what a policy has there")
    return policy


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two contiguous arrays are equal bit for bit, whatever NaN says of itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one.reshape(-1).view(np.uint8) == other.reshape(-1).view(np.uint8)).all())


def _provenance(header: dict[str, Any], arrays: Arrays) -> Provenance:
    contexts = header["contexts"]
    if not isinstance(contexts, list) or len(contexts) > MAX_CONTEXTS:
        raise ValueError(f"contexts must be a list of at most {MAX_CONTEXTS} labels")
    chain = _chain("chain", contexts, arrays)
    against = header["against"]
    if not isinstance(against, list) or len(against) > MAX_OPPONENTS:
        raise ValueError(f"against must be a list of at most {MAX_OPPONENTS} adversaries")
    complete, check = header["complete"], header["check"]
    if not isinstance(complete, bool) or not isinstance(check, str):
        raise ValueError("check must be a name, and complete true or false")
    utility = _releases(header["utility"], "utility")
    ceiling = header["ceiling"]
    return Provenance(
        check,
        chain,
        _deltas(arrays["deltas"], chain),
        tuple(chain if which == _OWN else _chain(f"against.{k}", contexts, arrays) for k, which in enumerate(against)),
        utility,
        complete,
        None if ceiling is None else _releases(ceiling, "ceiling"),
    )


def _chain(name: str, contexts: list[str], arrays: Arrays) -> MarkovChain:
    initial, transitions = arrays[f"{name}.initial"], arrays[f"{name}.transitions"]
    if len(transitions) >= MAX_STEPS:
        raise ValueError(f"a day has at most {MAX_STEPS} steps")
    return MarkovChain(contexts, initial, transitions)


def _deltas(table: npt.NDArray[Any], chain: MarkovChain) -> Floats:
    deltas = np.array(table, dtype=np.float64)
    if deltas.shape != (chain.horizon, chain.size) or (deltas <= 0).any():
        raise ValueError("deltas must be above 0, one for each step and context")
    deltas.flags.writeable = False
    return deltas


def _releases(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0: got {value!r}")
    return float(value)
