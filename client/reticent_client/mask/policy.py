"""A policy: a small automaton that gives, at each step, the probability of suppressing each context.

The phone runs it and the adversary knows it. A memory is a small tuple of integers, and holds everything that the
policy knows of the day so far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reticent.storage.arrays import ArrayFormat, Arrays
from reticent.storage.documents import DocumentFormat
from reticent_client.errors import FileError
from reticent_client.mask.chain import Floats, MarkovChain
from reticent_client.mask.problem import SensitiveState, weight_row
from reticent_client.mask.provenance import Provenance

Ints = npt.NDArray[np.int32]
Memory = tuple[int, ...]

FORMAT = ArrayFormat(
    DocumentFormat("reticent-policy", 1, "a policy", FileError), dtypes=("<f8", "<i4"), max_bytes=256 * 2**20
)

_OWN = "policy."  # the prefix of a policy's own arrays in a file

START = -1
"""The step before the first: where the day's first window begins."""


class Policy(ABC):
    """Run by the phone, known to the adversary.

    `begin`, `suppression` and `advance` define its behaviour; everything else describes it.
    """

    kind: ClassVar[str]

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance

    @abstractmethod
    def begin(self) -> Memory:
        """The memory before the first step."""

    @abstractmethod
    def suppression(self, t: int, memory: Memory) -> Floats:
        """(n,): the probability of suppressing each context at step t. Read-only."""

    @abstractmethod
    def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
        """The memory after step t, at which the user was in context `index`."""

    @abstractmethod
    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays from which `from_arrays` restores this policy."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, provenance: Provenance, arrays: Mapping[str, npt.NDArray[Any]]) -> Policy:
        """The policy of these arrays; `ValueError` if they do not fit together."""

    def missed(self, t: int, memory: Memory) -> Memory | None:
        """The memory after a step at which nothing was read and nothing released; None if it is unknown.

        It is known if the policy would have suppressed every possible context and would then have one memory.
        """
        possible = np.flatnonzero(self.chain.reachable[t])
        if (self.suppression(t, memory)[possible] < 1).any():
            return None
        after = {self.advance(t, memory, int(i), False) for i in possible}
        return after.pop() if len(after) == 1 else None

    @property
    def check(self) -> str:
        """The name of the check that made this policy."""
        return self.provenance.check

    @property
    def chain(self) -> MarkovChain:
        """The user's chain, under which utility is measured."""
        return self.provenance.chain

    @property
    def against(self) -> tuple[MarkovChain, ...]:
        """The chains of the adversaries that the policy holds off."""
        return self.provenance.against

    @property
    def contexts(self) -> tuple[str, ...]:
        """The labels of the contexts."""
        return self.chain.contexts

    @property
    def horizon(self) -> int:
        """The number of steps of a day."""
        return self.chain.horizon

    @property
    def deltas(self) -> Floats:
        """(T, n): how far the belief in each sensitive state may rise; NaN where a state is not sensitive."""
        return self.provenance.deltas

    @property
    def sensitive(self) -> dict[SensitiveState, float]:
        """The sensitive contexts with their deltas; (step, context) pairs if steps differ."""
        found: dict[SensitiveState, float] = {}
        for label, column in zip(self.contexts, self.deltas.T, strict=True):
            if (column == column[0]).all():
                found[label] = float(column[0])
            else:
                steps = np.flatnonzero(~np.isnan(column))
                found |= {(int(t), label): float(column[t]) for t in steps}
        return found

    @property
    def delta(self) -> float | None:
        """The common delta of all sensitive states; None if they differ (see `sensitive`) or there is none."""
        values = set(self.sensitive.values())
        value = values.pop()
        return None if values or np.isinf(value) else value

    @property
    def weights(self) -> dict[str, float]:
        """The weight of the release of each context: 1 unless chosen otherwise, and 0 for "unknown"."""
        return dict(zip(self.contexts, self.provenance.weighting.tolist(), strict=True))

    @property
    def chosen_weights(self) -> dict[str, float]:
        """The weights that are not the default."""
        default = weight_row(self.chain).tolist()
        return {label: own for (label, own), usual in zip(self.weights.items(), default, strict=True) if own != usual}

    @property
    def readings(self) -> float:
        """The expected number of contexts in a day, by their weights; what `utility` would be without a secret."""
        return float((self.chain.prior @ self.provenance.weighting).sum())

    @property
    def utility(self) -> float:
        """The exact expected number of released contexts in a day, by their weights, if days follow the chain.

        Gaps do not count: "unknown" has the weight 0 unless another is given.
        """
        return self.provenance.utility

    @property
    def complete(self) -> bool:
        """False if a time limit cut the search short or, of the check `optimal`, if its ceiling is further than 1e-6.

        The policy is private in any case.
        """
        return self.provenance.complete

    @property
    def ceiling(self) -> float | None:
        """An upper bound on the utility of any private policy, if one was computed."""
        return self.provenance.ceiling

    @property
    def gap(self) -> float | None:
        """The part of the ceiling that the policy may miss, if a ceiling was computed; 0 if no policy is better."""
        if self.ceiling is None:
            return None
        return max(self.ceiling - self.utility, 0.0) / self.ceiling if self.ceiling > 0 else 0.0

    def index(self, label: str) -> int:
        """The index of a label."""
        return self.chain.index(label)

    def fingerprint(self) -> str:
        """A digest of all that a file of the policy holds except the ceiling, equal only for equal policies.

        How long somebody looked for the ceiling changes nothing that the policy does.
        """
        header, arrays = self.described()
        return FORMAT.fingerprint(header | {"ceiling": None}, arrays)

    def save(self, path: str | Path) -> None:
        """Write the policy to a file, whole or not at all; see `Policy.load`.

        `ValueError` for a policy that no phone would read: too many contexts, steps or bytes.
        """
        FORMAT.write(path, *self.described())

    @staticmethod
    def load(path: str | Path) -> Policy:
        """Read a policy that `save` wrote, bit for bit; `FileError` for a damaged, foreign or newer file."""
        header, arrays = FORMAT.read(path)
        try:
            kind = KINDS.get(str(header["kind"]))
            if kind is None:
                raise FileError(f"{path}: the policy is of an unknown kind, {header['kind']!r}")
            own = {name.removeprefix(_OWN): array for name, array in arrays.items() if name.startswith(_OWN)}
            with np.errstate(invalid="ignore"):
                policy = kind.from_arrays(Provenance.restored(header, arrays), own)
            FORMAT.check_same(*policy.described(), header, arrays)
        except KeyError as error:
            raise FileError(f"{path}: the policy is damaged: {error} is missing") from error
        except (TypeError, ValueError) as error:
            raise FileError(f"{path}: the policy is damaged: {error}") from error
        return policy

    def described(self) -> tuple[dict[str, Any], Arrays]:
        """The header and the arrays of a file of this policy."""
        header, arrays = self.provenance.described()
        return {"kind": self.kind} | header, arrays | {_OWN + name: array for name, array in self.arrays().items()}

    def __repr__(self) -> str:
        return (
            f"<{self.check} policy: {self.horizon} steps, {len(self.contexts)} contexts, "
            f"{self.utility:.3g} released a day>"
        )


class VectorPolicy(Policy):
    """One suppression probability for each state: the probabilistic check and MaskSensitive. It has no memory."""

    kind = "vector"

    def __init__(self, provenance: Provenance, table: Floats) -> None:
        super().__init__(provenance)
        self.table = probabilities(table, (self.horizon, len(self.contexts)), "table")

    def begin(self) -> Memory:
        return ()

    def suppression(self, t: int, memory: Memory) -> Floats:
        row: Floats = self.table[t]
        return row

    def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
        return memory

    def missed(self, t: int, memory: Memory) -> Memory | None:
        """The same memory: suppressing more never hurts a vector (theorem 3), so a missed step counts as suppressed."""
        return memory

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"table": self.table}

    @classmethod
    def from_arrays(cls, provenance: Provenance, arrays: Mapping[str, npt.NDArray[Any]]) -> VectorPolicy:
        return cls(provenance, arrays["table"])


class ReleaseTimes(Policy):
    """The step of the next release for each last release: the simulatable checks.

    The memory is the last release, (step, context). The decision does not depend on the current context.
    """

    kind = "release-times"

    def __init__(self, provenance: Provenance, times: Ints) -> None:
        super().__init__(provenance)
        shape = (self.horizon + 1, len(self.contexts))
        self.times = np.array(times, dtype=np.int32)  # [1 + step, context], step -1 for the start
        after = np.arange(self.horizon + 1)[:, None]
        if self.times.shape != shape or (self.times < after).any() or (self.times > self.horizon).any():
            raise ValueError(f"times must be later steps, or the horizon for never, in shape {shape}")
        self.times.flags.writeable = False
        self._suppress = np.ones(shape[1])
        self._suppress.flags.writeable = False
        self._release = np.zeros(shape[1])
        self._release.flags.writeable = False

    def begin(self) -> Memory:
        return (START, 0)

    def suppression(self, t: int, memory: Memory) -> Floats:
        """All ones before the next release and, if that was missed, after it: no check covers later releases."""
        step, context = memory
        return self._release if t == self.times[step + 1, context] else self._suppress

    def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
        return (t, index) if released else memory

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"times": self.times}

    @classmethod
    def from_arrays(cls, provenance: Provenance, arrays: Mapping[str, npt.NDArray[Any]]) -> ReleaseTimes:
        return cls(provenance, arrays["times"])


SILENT = -1
"""The node after which everything is suppressed until the day ends."""


class Automaton(Policy):
    """Nodes, each with a row of suppressions and the next node after a suppressed or a released context.

    The adaptive policy has one node for each (last release, step); the optimal one also tells apart which sensitive
    states the user has passed since.
    """

    kind = "automaton"

    def __init__(self, provenance: Provenance, rows: Floats, onward: Ints, roots: Ints) -> None:
        super().__init__(provenance)
        n = len(self.contexts)
        self.rows = probabilities(rows, (len(rows), n), "rows")  # [node, context]
        self.onward = _nodes(onward, (len(rows), n), len(rows), "onward")  # node after a suppression
        self.roots = _nodes(roots, (self.horizon + 1, n), len(rows), "roots")  # node after a release
        self._silence = np.ones(n)
        self._silence.flags.writeable = False

    def begin(self) -> Memory:
        return (int(self.roots[0, 0]),)

    def suppression(self, t: int, memory: Memory) -> Floats:
        (node,) = memory
        return self._silence if node == SILENT else self.rows[node]

    def advance(self, t: int, memory: Memory, index: int, released: bool) -> Memory:
        if released:
            return (int(self.roots[t + 1, index]),)
        (node,) = memory
        return memory if node == SILENT else (int(self.onward[node, index]),)

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        return {"rows": self.rows, "onward": self.onward, "roots": self.roots}

    @classmethod
    def from_arrays(cls, provenance: Provenance, arrays: Mapping[str, npt.NDArray[Any]]) -> Automaton:
        return cls(provenance, arrays["rows"], arrays["onward"], arrays["roots"])


KINDS: Mapping[str, type[Policy]] = {kind.kind: kind for kind in (VectorPolicy, ReleaseTimes, Automaton)}
"""The kinds of policies in files."""


def probabilities(values: npt.ArrayLike, shape: tuple[int, ...], name: str) -> Floats:
    """A read-only copy, checked for shape and for lying in [0, 1]."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} must hold probabilities in shape {shape}")
    array.flags.writeable = False
    return array


def _nodes(values: npt.ArrayLike, shape: tuple[int, ...], count: int, name: str) -> Ints:
    array = np.array(values, dtype=np.int32)
    if array.shape != shape or not ((array >= SILENT) & (array < count)).all():
        raise ValueError(f"{name} must hold nodes below {count} in shape {shape}")
    array.flags.writeable = False
    return array
