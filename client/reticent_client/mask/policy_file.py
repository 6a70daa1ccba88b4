"""The file format of policies: an `.npz` without pickle, whose `header.json` describes the arrays.

The last 64 bytes of a file are the SHA-256 digest of all bytes before them, in hexadecimal, as the archive's comment,
so that any damage is detected. It is not a signature: anyone who can write a file can write its digest. Load policies
only from sources that you trust like the source of a program.
"""

from __future__ import annotations

import hashlib
import io
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
from reticent_client.mask.provenance import Arrays

FORMAT = DocumentFormat("reticent-policy", 1, "a policy", FileError)

MAX_BYTES = 256 * 2**20
"""The largest file that is read; nothing in it may claim to be larger than the file."""

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


def write(path: str | Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a policy's header and arrays, whole or not at all; `ValueError` for more bytes than a file may have."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        file.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), _encoded(header))
        for name, array in _stored(arrays).items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
        file.comment = bytes(_DIGEST_BYTES)
    content = archive.getvalue()[:-_DIGEST_BYTES]
    if len(content) + _DIGEST_BYTES > MAX_BYTES:
        raise ValueError(f"this policy takes {len(content)} bytes: a file has at most {MAX_BYTES}")
    files.replace(Path(path), content + _digest(content), files.PUBLIC)


def read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays that `write` wrote, bit for bit.

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


def fingerprint(header: Mapping[str, Any], arrays: Arrays) -> str:
    """A digest of the header and the arrays, equal only for equal ones."""
    digest = hashlib.sha256(_encoded(header))
    for name, array in _stored(arrays).items():
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _encoded(header: Mapping[str, Any]) -> bytes:
    return FORMAT.text(header).encode("ascii")


def _stored(arrays: Arrays) -> Arrays:
    """The arrays in the byte order of a file."""
    return {name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in arrays.items()}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode("ascii")


def _read(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays in the bytes of a file."""
    if not content.startswith(_FIRST) or _HEADER.encode("ascii") not in content[:128]:
        raise FileError("this is not a policy written by Reticent")
    if len(content) > MAX_BYTES:
        raise FileError(f"the file is larger than any policy may be, {MAX_BYTES} bytes")
    if content[-_DIGEST_BYTES:] != _digest(content[:-_DIGEST_BYTES]):
        raise FileError("the policy is damaged: its digest does not fit its content")
    return _members(content)


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


def check_same(described: tuple[Mapping[str, Any], Arrays], header: dict[str, Any], arrays: Arrays) -> None:
    """Raise `ValueError` if a file's header and arrays are not, bit for bit, those that describe its policy."""
    expected, again = FORMAT.parse(_encoded(described[0])), _stored(described[1])
    if expected != header or again.keys() != arrays.keys():
        raise ValueError("it holds something that no policy has")
    for name, array in again.items():
        if not _equal(array, arrays[name]):
            raise ValueError(f"{name} does not hold what a policy has there")


def _equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two contiguous arrays are equal bit for bit; NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one.reshape(-1).view(np.uint8) == other.reshape(-1).view(np.uint8)).all())
