"""Files of arrays: an `.npz` without pickle, whose `header.json` describes the arrays.

The last 64 bytes of a file are the SHA-256 digest of all bytes before them, in hexadecimal, as the archive's comment,
so that any damage is detected. It is not a signature: anyone who can write a file can write its digest. Load files
only from sources that you trust like the source of a program.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reticent.storage import files
from reticent.storage.documents import DocumentFormat

__all__ = ["ArrayFormat", "Arrays"]

Arrays = dict[str, npt.NDArray[Any]]

_HEADER = "header.json"
_DIGEST_BYTES = 64
# NumPy's own reader would evaluate whatever stands there.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<dtype><[fi][48])', 'fortran_order': False, "
    rb"'shape': \((?P<shape>[0-9, ]{0,64})\), \} *\n",
    re.DOTALL,
)
_FIRST = b"PK\x03\x04"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same arrays make the same file, whenever it is written
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


@dataclass(frozen=True)
class ArrayFormat:
    """The format of a file of arrays.

    Args:
        header: The format of the header. Its title and its error are those of the file.
        dtypes: The types of arrays that a file may hold, such as "<f8" and "<i4".
        max_bytes: The largest file that is written or read; nothing in it may claim to be larger than the file.
    """

    header: DocumentFormat
    dtypes: tuple[str, ...]
    max_bytes: int

    def write(self, path: str | Path, header: Mapping[str, Any], arrays: Arrays) -> None:
        """Write the header and the arrays, whole or not at all; `ValueError` for more bytes than a file may have."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            file.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), self._encoded(header))
            for name, array in _stored(arrays).items():
                member = io.BytesIO()
                np.lib.format.write_array(member, array, allow_pickle=False)
                file.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
            file.comment = bytes(_DIGEST_BYTES)
        content = archive.getvalue()[:-_DIGEST_BYTES]
        if len(content) + _DIGEST_BYTES > self.max_bytes:
            raise ValueError(f"this {self._noun} takes {len(content)} bytes: a file has at most {self.max_bytes}")
        files.replace(Path(path), content + _digest(content), files.PUBLIC)

    def read(self, path: str | Path) -> tuple[dict[str, Any], Arrays]:
        """The header and the arrays that `write` wrote, bit for bit.

        The format's error, with one sentence, for a damaged, foreign or newer file.
        """
        error = self.header.error
        try:
            with Path(path).open("rb") as file:
                content = file.read(self.max_bytes + 1)
        except OSError as reason:
            raise error(f"cannot read {path}: {reason.strerror}") from reason
        try:
            return self._read(content)
        except _BadFile as reason:
            raise error(f"{path}: {reason}") from reason

    def fingerprint(self, header: Mapping[str, Any], arrays: Arrays) -> str:
        """A digest of the header and the arrays, equal only for equal ones."""
        digest = hashlib.sha256(self._encoded(header))
        for name, array in _stored(arrays).items():
            digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def check_same(
        self, expected: Mapping[str, Any], expected_arrays: Arrays, header: Mapping[str, Any], arrays: Arrays
    ) -> None:
        """Raise `ValueError` if a file's header and arrays are not, bit for bit, the expected ones."""
        again = _stored(expected_arrays)
        if self.header.parse(self._encoded(expected)) != header or again.keys() != arrays.keys():
            raise ValueError(f"it holds something that no {self._noun} has")
        for name, array in again.items():
            if not _equal(array, arrays[name]):
                raise ValueError(f"{name} does not hold what a {self._noun} has there")

    @property
    def _noun(self) -> str:
        """The title without its article."""
        return self.header.title.partition(" ")[2]

    def _encoded(self, header: Mapping[str, Any]) -> bytes:
        return self.header.text(header).encode("ascii")

    def _read(self, content: bytes) -> tuple[dict[str, Any], Arrays]:
        """The header and the arrays in the bytes of a file."""
        if not content.startswith(_FIRST) or _HEADER.encode("ascii") not in content[:128]:
            raise _BadFile(f"this is not {self.header.title} written by Reticent")
        if len(content) > self.max_bytes:
            raise _BadFile(f"the file is larger than any {self._noun} may be, {self.max_bytes} bytes")
        if content[-_DIGEST_BYTES:] != _digest(content[:-_DIGEST_BYTES]):
            raise self._damaged("its digest does not fit its content")
        return self._members(content)

    def _members(self, content: bytes) -> tuple[dict[str, Any], Arrays]:
        """The header, of this version, and the arrays of an archive whose digest fits."""
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as file:
                infos = file.infolist()
                sizes = [info.file_size for info in infos]
                stored = all(info.compress_type == zipfile.ZIP_STORED for info in infos)
                if not stored or sum(sizes) > len(content):
                    raise self._damaged("it claims to hold more than it does")
                header = replace(self.header, error=_BadFile).parse(file.read(_HEADER))
                names = {info.filename for info in infos} - {_HEADER}
                if len(infos) != len(names) + 1:
                    raise self._damaged("it names an array twice")
                return header, {name.removesuffix(".npy"): self._array(file.read(name)) for name in names}
        except _BAD_ARCHIVE as error:
            raise self._damaged("its archive cannot be read") from error

    def _array(self, content: bytes) -> npt.NDArray[Any]:
        """An array of numbers whose shape and type fill the member exactly; nothing is copied."""
        head = _ARRAY.match(content)
        dtype = "" if head is None else head["dtype"].decode("ascii")
        if head is None or dtype not in self.dtypes:
            raise self._damaged("an array in it is not of numbers as NumPy writes them")
        shape = tuple(int(side) for side in head["shape"].split(b",") if side.strip())
        try:
            return np.frombuffer(content, dtype, offset=head.end()).reshape(shape)
        except (ValueError, OverflowError) as error:
            raise self._damaged("an array in it has not the shape that it claims") from error

    def _damaged(self, reason: str) -> _BadFile:
        return _BadFile(f"the {self._noun} is damaged: {reason}")


class _BadFile(Exception):
    """A file is damaged, foreign or of another version; with the sentence for the format's error."""


def _stored(arrays: Arrays) -> Arrays:
    """The arrays in the byte order of a file."""
    return {name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in arrays.items()}


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode("ascii")


def _equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether two contiguous arrays are equal bit for bit; NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool((one.reshape(-1).view(np.uint8) == other.reshape(-1).view(np.uint8)).all())
