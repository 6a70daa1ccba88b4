"""Every day and every output of a small chain, one by one: slow, and obviously right.

The oracle knows a policy through `begin`, `suppression` and `advance` only, and a chain through
its numbers only. It enumerates whole days (paths of positive probability) and never uses the
Markov property to shorten anything. Outputs are tuples of context indices, None where suppressed.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]
Day = tuple[int, ...]
Output = tuple[int | None, ...]
Sensitive = Iterable[str | tuple[int, str]] | Mapping[Any, float]

TOLERANCE = 1e-9


class Chain(Protocol):
    """What the oracle reads from a chain."""

    @property
    def contexts(self) -> tuple[str, ...]: ...
    @property
    def initial(self) -> Array: ...  # (n,)
    @property
    def transitions(self) -> Array: ...  # (T - 1, n, n)


class Policy(Protocol):
    """What the oracle asks of a policy."""

    def begin(self) -> Any: ...
    def suppression(self, step: int, memory: Any, /) -> Array: ...
    def advance(self, step: int, memory: Any, index: int, released: bool, /) -> Any: ...


class Limit(NamedTuple):
    """At `step`, the belief in `context`, an index, may rise by at most `delta`."""

    step: int
    context: int
    delta: float


@dataclass(frozen=True)
class Vector:
    """The policy that suppresses each context at each step with a fixed probability."""

    probabilities: Array  # (T, n)

    def begin(self) -> None:
        """Nothing is remembered."""

    def suppression(self, step: int, memory: None) -> Array:
        """The fixed probabilities of the step."""
        del memory
        row: Array = self.probabilities[step]
        return row

    def advance(self, step: int, memory: None, index: int, released: bool) -> None:
        """Nothing is remembered."""

    def lowered(self, step: int, index: int, factor: float) -> "Vector":
        """The same vector with one suppression multiplied by a factor."""
        probabilities = self.probabilities.copy()
        probabilities[step, index] *= factor
        return Vector(probabilities)


def limits(chain: Chain, sensitive: Sensitive, delta: float | None = None) -> list[Limit]:
    """One limit per sensitive state; a label stands for all its steps."""
    deltas = dict(sensitive) if isinstance(sensitive, Mapping) else dict.fromkeys(sensitive, delta)
    found = []
    for key, bound in deltas.items():
        assert bound is not None
        label = key if isinstance(key, str) else key[1]
        steps = range(len(chain.transitions) + 1) if isinstance(key, str) else [key[0]]
        found += [Limit(step, chain.contexts.index(label), bound) for step in steps]
    return found


def days(chain: Chain) -> dict[Day, float]:
    """Every day that can happen, with its probability."""
    found: dict[Day, float] = {(i,): float(p) for i, p in enumerate(chain.initial) if p > 0}
    for matrix in chain.transitions:
        found = {
            (*day, j): mass * float(p) for day, mass in found.items() for j, p in enumerate(matrix[day[-1]]) if p > 0
        }
    return found


def priors(chain: Chain) -> Array:
    """The probability of every context at every step, summed over days: (T, n)."""
    return _belief(chain, days(chain))


def outputs_of(policy: Policy, day: Day) -> dict[Output, float]:
    """Every output that a day can lead to, with its probability given the day."""
    running: list[tuple[Output, Any, float]] = [((), policy.begin(), 1.0)]
    for step, index in enumerate(day):
        following = []
        for output, memory, mass in running:
            suppressed = float(policy.suppression(step, memory)[index])
            assert 0 <= suppressed <= 1
            for released, share in ((False, suppressed), (True, 1 - suppressed)):
                if share > 0:
                    after = policy.advance(step, memory, index, released)
                    following.append(((*output, index if released else None), after, mass * share))
        running = following
    return {output: mass for output, _, mass in running}


def joint(policy: Policy, chain: Chain) -> dict[Output, dict[Day, float]]:
    """The joint probability of every output that can occur and every day behind it."""
    found: dict[Output, dict[Day, float]] = {}
    for day, chance in days(chain).items():
        for output, mass in outputs_of(policy, day).items():
            found.setdefault(output, {})[day] = chance * mass
    return found


def beliefs(policy: Policy, chain: Chain) -> dict[Output, Array]:
    """What an adversary who is certain of the chain believes after each output: (T, n)."""
    return {output: _belief(chain, behind) for output, behind in joint(policy, chain).items()}


def prefix_beliefs(policy: Policy, chain: Chain) -> dict[Output, Array]:
    """The same after every beginning of an output, the empty one included."""
    behind: dict[Output, dict[Day, float]] = {}
    for output, masses in joint(policy, chain).items():
        for length in range(len(output)):
            collected = behind.setdefault(output[:length], {})
            for day, mass in masses.items():
                collected[day] = collected.get(day, 0.0) + mass
    return {prefix: _belief(chain, masses) for prefix, masses in behind.items()}


def some(policy: Policy, chain: Chain, index: int, window: Sequence[int]) -> dict[Output, float]:
    """The belief, after each output, that the context occurs at some step of the window."""
    return {
        output: sum(mass for day, mass in behind.items() if any(day[t] == index for t in window)) / sum(behind.values())
        for output, behind in joint(policy, chain).items()
    }


def utility(policy: Policy, chain: Chain) -> float:
    """The expected number of releases in a day."""
    return sum(
        sum(behind.values()) * sum(index is not None for index in output)
        for output, behind in joint(policy, chain).items()
    )


def worst_excess(policy: Policy, chain: Chain, bounds: Sequence[Limit]) -> float:
    """How far, at worst, a belief rises above its limit (negative: all limits are kept)."""
    prior = priors(chain)
    after = beliefs(policy, chain).values()
    return max(float(b[t, s] - prior[t, s]) - delta for b in after for t, s, delta in bounds)


def worst_gain(policy: Policy, chain: Chain, bounds: Sequence[Limit]) -> float:
    """How far, at worst, the belief in a sensitive state rises, whatever its limit."""
    return worst_excess(policy, chain, [Limit(t, s, 0.0) for t, s, _ in bounds])


def decisions(policy: Policy, chain: Chain) -> dict[tuple[Output, int], set[float]]:
    """The suppressions at every moment that can occur: (output so far, context now) -> values."""
    found: dict[tuple[Output, int], set[float]] = {}
    for day in days(chain):
        running: list[tuple[Output, Any]] = [((), policy.begin())]
        for step, index in enumerate(day):
            following = []
            for output, memory in running:
                suppressed = float(policy.suppression(step, memory)[index])
                found.setdefault((output, index), set()).add(suppressed)
                following += [
                    (
                        (*output, index if released else None),
                        policy.advance(step, memory, index, released),
                    )
                    for released, share in ((False, suppressed), (True, 1 - suppressed))
                    if share > 0
                ]
            running = following
    return found


@dataclass(frozen=True)
class Algorithm4:
    """The simulatable check as the thesis writes it: decides on the outputs so far, caches nothing.

    Its memory is the whole output. It runs through each context that is possible now, each
    sensitive context and each step of the day.
    """

    chain: Chain
    bounds: Sequence[Limit]

    def begin(self) -> Output:
        """Nothing has been put out."""
        return ()

    def suppression(self, step: int, memory: Output) -> Array:
        """Release whatever the context is, or suppress whatever it is."""
        assert len(memory) == step
        okay = self.excess(memory) <= TOLERANCE
        return np.full(len(self.chain.contexts), 0.0 if okay else 1.0)

    def advance(self, step: int, memory: Output, index: int, released: bool) -> Output:
        """Append what was put out."""
        assert len(memory) == step
        return (*memory, index if released else None)

    def excess(self, output: Output) -> float:
        """How far above its limit a belief would rise, at worst, if the next step were released."""
        prior = priors(self.chain)
        agreeing = _agreeing(days(self.chain), output)
        possible = {day[len(output)] for day in agreeing}
        return max(
            float(_belief(self.chain, _agreeing(agreeing, (*output, j)))[t, s] - prior[t, s]) - delta
            for j in possible
            for t, s, delta in self.bounds
        )


def grid_optimum(chain: Chain, bounds: Sequence[Limit], parts: int, slack: float) -> float:
    """The best utility among all vectors on {0, 1/parts, ..., 1} that exceed no limit by slack."""
    prior = priors(chain)
    states = list(zip(*np.nonzero(prior), strict=True))
    vectors = [
        (
            sum(float(prior[state]) * (1 - p / parts) for state, p in zip(states, ps, strict=True)),
            ps,
        )
        for ps in itertools.product(range(parts + 1), repeat=len(states))
    ]
    for value, ps in sorted(vectors, reverse=True):
        probabilities = np.ones_like(prior)
        for state, p in zip(states, ps, strict=True):
            probabilities[state] = p / parts
        if worst_excess(Vector(probabilities), chain, bounds) <= slack:
            return value
    raise AssertionError("suppressing everything must be private")


class Optimum(NamedTuple):
    """What a solver says is the most that any policy can release, and by how much its own policy breaches."""

    value: float
    excess: float


def causal_optimum(chain: Chain, bounds: Sequence[Limit]) -> float:
    """The most that any policy can release, as the solver says."""
    return causal_program(chain, bounds).value


def causal_program(chain: Chain, bounds: Sequence[Limit]) -> Optimum:
    """The most that any policy can release: one linear program over all of them.

    A variable is Pr[these steps are released | this is the day so far], for every beginning of a
    day and every mask of the same length. Masks of a longer beginning add up to the shorter one's
    (the decision does not see the future), and after every output every belief keeps its limit.
    """
    chances = days(chain)
    horizon = len(chain.transitions) + 1
    variables = {
        key: column
        for column, key in enumerate(
            (start, mask)
            for length in range(horizon + 1)
            for start in sorted({day[:length] for day in chances})
            for mask in itertools.product((False, True), repeat=length)
        )
    }
    value = np.zeros(len(variables))
    masses: dict[Output, dict[Day, tuple[int, float]]] = {}
    for day, chance in chances.items():
        for mask in itertools.product((False, True), repeat=horizon):
            column = variables[day, mask]
            value[column] = chance * sum(mask)
            output = tuple(i if released else None for i, released in zip(day, mask, strict=True))
            masses.setdefault(output, {})[day] = (column, chance)
    equal, right = _causality(variables)
    result = linprog(
        -value,
        A_ub=np.array(list(_posterior_rows(chain, bounds, masses, len(variables)))),
        b_ub=np.zeros(len(masses) * len(bounds)),
        A_eq=equal,
        b_eq=right,
        bounds=(0, 1),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert result.status == 0, result.message
    assert result.fun is not None
    assert result.x is not None
    return Optimum(-float(result.fun), _worst_of_program(chain, bounds, masses, np.maximum(result.x, 0.0)))


def _causality(variables: Mapping[tuple[Day, tuple[bool, ...]], int]) -> tuple[Array, Array]:
    """Rows: the two masks that continue a mask share its probability, and the empty mask has 1."""
    rows, right = [], []
    for (start, mask), column in variables.items():
        row = np.zeros(len(variables))
        if not start:
            row[column] = 1.0
        elif mask[-1]:
            row[[column, variables[start, (*mask[:-1], False)]]] = 1.0
            row[variables[start[:-1], mask[:-1]]] = -1.0
        else:
            continue
        rows.append(row)
        right.append(0.0 if start else 1.0)
    return np.array(rows), np.array(right)


def _posterior_rows(
    chain: Chain,
    bounds: Sequence[Limit],
    masses: Mapping[Output, Mapping[Day, tuple[int, float]]],
    width: int,
) -> Iterator[Array]:
    """Rows: at most prior + delta of an output's mass passes through the sensitive state."""
    prior = priors(chain)
    for behind in masses.values():
        scale = max(chance for _, chance in behind.values())
        for step, index, delta in bounds:
            row = np.zeros(width)
            for day, (column, chance) in behind.items():
                passes = 1.0 if day[step] == index else 0.0
                row[column] = chance / scale * (passes - prior[step, index] - delta)
            yield row


def _worst_of_program(
    chain: Chain,
    bounds: Sequence[Limit],
    masses: Mapping[Output, Mapping[Day, tuple[int, float]]],
    solution: Array,
) -> float:
    """The largest excess over a limit in a solution: a solver is content with 1e-10 of mass, which may be an output."""
    prior = priors(chain)
    worst = -np.inf
    for behind in masses.values():
        joint = {day: chance * solution[column] for day, (column, chance) in behind.items()}
        total = sum(joint.values())
        if total > 0:
            for step, index, delta in bounds:
                passing = sum(mass for day, mass in joint.items() if day[step] == index)
                worst = max(worst, passing / total - prior[step, index] - delta)
    return float(worst)


def _agreeing(masses: Mapping[Day, float], output: Output) -> dict[Day, float]:
    """The days that pass through every context that was released."""
    return {
        day: mass for day, mass in masses.items() if all(o is None or o == i for i, o in zip(day, output, strict=False))
    }


def _belief(chain: Chain, masses: Mapping[Day, float]) -> Array:
    """The probability of every context at every step, given the mass of each day: (T, n)."""
    found = np.zeros((len(chain.transitions) + 1, len(chain.contexts)))
    for day, mass in masses.items():
        for step, index in enumerate(day):
            found[step, index] += mass
    return found / sum(masses.values())
