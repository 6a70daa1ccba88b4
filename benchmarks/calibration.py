"""Noise that (epsilon, delta) needs, against theorem 1 of the dissertation as printed; time to compute it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

from benchmarks.measure import Row, best_of, seconds, table
from reticent.privacy import (
    fixed_point_sigma,
    gaussian_delta,
    gaussian_sigma,
    skellam_delta,
    skellam_variance,
    thesis_sigma,
)

TARGET = 0.05  # seconds for any single call
REPEATS = 5
EPSILONS = (0.1, 0.5, 1.0)
DELTAS = (0.02, 1e-4, 1e-6, 1e-9)
WIDE_EPSILONS = (1e-9, 1e-6, 0.001, 0.003, 0.01, 0.1, 1.0, 10.0, 100.0)
WIDE_DELTAS = (0.3, 0.02, 1e-6, 1e-30)
AWKWARD_VARIANCES = (1e-9, 90.0, 3e5, 1e15)
NORMS = (1.0, math.sqrt(2), 2.0, 5.0, 1e3, 1e6)
FRACTION_BITS = 16


def run() -> Iterator[str]:
    """The noise that is saved, and the time of the slowest call of each kind."""
    yield _saved()
    yield table(f"The slowest single call, of many parameters (best of {REPEATS})", list(_times()))


def _saved() -> str:
    heads = ("epsilon", "delta", "printed", "exact", "saved", "Skellam, one bit", "Skellam, 16 bits", "of the exact")
    lines = [heads]
    for epsilon, delta in itertools.product(EPSILONS, DELTAS):
        printed, exact = thesis_sigma(epsilon, delta, 1), gaussian_sigma(epsilon, delta, 1)
        bit, bits = (math.sqrt(skellam_variance(epsilon, delta, norm)) for norm in (1.0, 4.0))
        lines.append(
            (
                f"{epsilon:g}",
                f"{delta:g}",
                f"{printed:.3f}",
                f"{exact:.3f}",
                f"{1 - exact / printed:.0%}",
                f"{bit:.3f}",
                f"{bits:.3f}",
                f"{bit / exact:.3f}, {bits / exact / 4:.3f}",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    title = "The deviation that (epsilon, delta) needs, by theorem 1 as printed and exactly"
    return "\n".join([title, "-" * len(title), *text, ""])


def _times() -> Iterator[Row]:
    for name, calls in _calls().items():
        slowest = max(best_of(REPEATS, call) for call in calls)
        yield Row(name, seconds(slowest), target=f"under {seconds(TARGET)}")


def _calls() -> dict[str, list[Callable[[], float]]]:
    calls: dict[str, list[Callable[[], float]]] = {
        name: []
        for name in ("gaussian_sigma", "gaussian_delta", "fixed_point_sigma", "skellam_variance", "skellam_delta")
    }
    for e, d, s in itertools.product(WIDE_EPSILONS, WIDE_DELTAS, NORMS):
        sigma, variance = gaussian_sigma(e, d, s), skellam_variance(e, d, s)
        calls["gaussian_sigma"].append(lambda e=e, d=d, s=s: gaussian_sigma(e, d, s))  # type: ignore[misc]
        calls["gaussian_delta"].append(lambda e=e, s=s, sigma=sigma: gaussian_delta(sigma, e, s))  # type: ignore[misc]
        calls["fixed_point_sigma"].append(
            lambda e=e, d=d, s=s: fixed_point_sigma(e, d, s, l1=s * s, fraction_bits=FRACTION_BITS)  # type: ignore[misc]
        )
        calls["skellam_variance"].append(lambda e=e, d=d, s=s: skellam_variance(e, d, s))  # type: ignore[misc]
        for v in (variance, *AWKWARD_VARIANCES):
            calls["skellam_delta"].append(lambda e=e, s=s, v=v: skellam_delta(v, e, s))  # type: ignore[misc]
    return calls
