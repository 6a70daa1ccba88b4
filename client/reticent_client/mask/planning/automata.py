"""Builds the nodes of an automaton from windows, only those that some release can begin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reticent_client.mask.chain import Floats
from reticent_client.mask.policy import SILENT, START, Automaton
from reticent_client.mask.provenance import Provenance

Nodes = tuple[list[Floats], list[list[int]]]
"""A window's rows of suppressions (n,), and for each row the node, counted within the window, that a suppressed context
leads to."""


def build(provenance: Provenance, nodes_of: Callable[[int, int], Nodes]) -> Automaton:
    """The policy whose window after the release of each (step, context) has these nodes; no nodes for silence."""
    horizon, n = provenance.chain.horizon, provenance.chain.size
    roots = np.full((horizon + 1, n), SILENT, dtype=np.int32)
    rows: list[Floats] = []
    onward: list[list[int]] = []
    waiting = [(START, 0)]
    seen = {(START, 0)}
    while waiting:
        start, i = waiting.pop()
        found, leads = nodes_of(start, i)
        if not found:
            continue
        base = len(rows)
        roots[start + 1, i] = base
        depth = {0: start + 1}
        for number, (row, lead) in enumerate(zip(found, leads, strict=True)):
            rows.append(row)
            onward.append([SILENT if node == SILENT else base + node for node in lead])
            depth |= {node: depth[number] + 1 for node in lead if node != SILENT}
            for x in map(int, np.flatnonzero(row < 1)):
                release = depth[number], x
                if release not in seen:
                    seen.add(release)
                    waiting.append(release)
    return Automaton(
        provenance,
        np.array(rows, dtype=np.float64).reshape(-1, n),
        np.array(onward, dtype=np.int32).reshape(-1, n),
        roots,
    )
