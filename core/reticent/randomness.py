"""The source of all randomness in Reticent.

A generator is always passed in. Everything that protects a person draws from `secure()`. A simulation uses
`seeded(...)`, and its results say so: `is_seeded` tells the two apart.

Both are NumPy generators over AES-128 in counter mode. The stream of `seeded` for a given seed and
path is the same in every version of Reticent; NumPy's distributions may change with NumPy.
"""

import hashlib
import os
import secrets
import weakref
from operator import index
from typing import Any, Never, cast

import numpy as np
from randomgen import AESCounter

__all__ = ["is_seeded", "secure", "seeded"]

KEY_BITS = 128
_STREAMS = b"reticent.streams"  # separates these keys from any other use of the same hash


def secure() -> np.random.Generator:
    """A generator with a secret key: 128 bits from the operating system.

    It cannot be copied, pickled, reseeded, spawned from or asked for its state: the difference of two messages with
    the same noise would show what the noise hides. A forked process gets a new key for each generator that it
    inherits.
    """
    return _SecureGenerator(_SecureStream())


def seeded(seed: int | str, *path: int | str) -> np.random.Generator:
    """A generator for simulations: the seed replays it.

    Streams of different seeds or paths are independent, so each part of a run uses its own path:

        >>> seeded(7, "phone", 12).integers(100, size=3).tolist()
        [4, 88, 29]

    Whole numbers and text differ (`1` is not `"1"`), and so do `("ab", "c")` and `("a", "bc")`.
    A pickled generator continues where it was. Another path gives another stream.
    """
    return np.random.Generator(_as_numpy(_SeededStream(key=_key(seed, *path))))


def is_seeded(rng: np.random.Generator) -> bool:
    """Whether a seed could replay `rng`: true for every generator that `secure` did not make."""
    return not (type(rng) is _SecureGenerator and type(cast("object", rng.bit_generator)) is _SecureStream)


def _key(*items: int | str) -> int:
    digest = hashlib.blake2b(digest_size=KEY_BITS // 8, person=_STREAMS)
    for item in items:
        kind, content = _encoded(item)
        digest.update(kind + len(content).to_bytes(8, "big") + content)
    return int.from_bytes(digest.digest(), "big")


def _encoded(item: int | str) -> tuple[bytes, bytes]:
    if isinstance(item, str):
        return b"s", item.encode()
    if isinstance(item, bool | np.bool_):
        raise TypeError(f"a seed and its path are whole numbers or text: got {item!r}")
    try:
        return b"i", f"{index(item):x}".encode()
    except TypeError:
        raise TypeError(f"a seed and its path are whole numbers or text: got {item!r}") from None


def _as_numpy(stream: AESCounter) -> np.random.BitGenerator:
    """The same object, as what NumPy's stubs ask for: randomgen's stubs hide that it is one."""
    return cast("np.random.BitGenerator", stream)


class _SeededStream(AESCounter):
    def spawn(self, _n_children: int) -> Never:
        # NumPy would seed the children from the operating system: no seed could replay them.
        raise TypeError("a seeded generator has no children: name them, seeded(seed, *path)")


class _SecureStream(AESCounter):
    """AES in counter mode under a key from the operating system that is never shown."""

    _sealed = False

    def __init__(self) -> None:
        super().__init__(key=secrets.randbits(KEY_BITS))
        self._sealed = True
        _alive.add(self)

    def seed(self, *args: Any, **kwargs: Any) -> None:
        if self._sealed:
            raise TypeError("a secure generator cannot be reseeded: ask for seeded(seed, *path)")
        super().seed(*args, **kwargs)

    def take_new_key(self) -> None:
        super().seed(key=secrets.randbits(KEY_BITS))

    def spawn(self, _n_children: int) -> Never:
        raise TypeError("a secure generator has no children: call secure() for each")

    def jumped(self, iter: int = 1) -> Never:  # noqa: A002  # randomgen's own name
        raise TypeError(_NO_COPY)

    @property
    def state(self) -> Never:
        raise TypeError("a secure generator does not show its state, which holds its key")

    @state.setter
    def state(self, _value: object) -> Never:
        raise TypeError("a secure generator cannot be given a state: ask for seeded(seed, *path)")

    def __reduce__(self) -> Never:
        raise TypeError(_NO_COPY)


class _SecureGenerator(np.random.Generator):
    def __init__(self, stream: _SecureStream) -> None:
        super().__init__(_as_numpy(stream))

    def __reduce__(self) -> Never:
        raise TypeError(_NO_COPY)


_NO_COPY = "a secure generator cannot be copied or pickled: its noise would be used twice"
_alive: "weakref.WeakSet[_SecureStream]" = weakref.WeakSet()


def _take_new_keys() -> None:
    for stream in list(_alive):
        stream.take_new_key()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_take_new_keys)
