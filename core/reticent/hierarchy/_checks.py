"""Checks of the parts that make a hierarchy; each failure is one `ValueError` that names the place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from reticent.arguments import whole
from reticent.hierarchy._attributes import Attribute
from reticent.hierarchy._node import Context

_SHOWN = 80  # characters of a refused value that an error shows


def checked_attributes(attributes: Iterable[Attribute]) -> tuple[Attribute, ...]:
    """Attributes with different names."""
    checked = tuple(attributes)
    names = [attribute.name for attribute in checked]
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"a hierarchy needs attributes with different names: got {names!r:.{_SHOWN}}")
    return checked


def checked_sequence(sequence: Iterable[Sequence[int]], attributes: Sequence[Attribute]) -> tuple[tuple[int, ...], ...]:
    """The sequence, which begins with zeros and raises one attribute at each step."""
    checked = []
    for number, levels in enumerate(sequence):
        if not isinstance(levels, tuple | list) or len(levels) != len(attributes):
            raise ValueError(
                f"level {number} of the sequence needs a number for each of {len(attributes)} attributes: "
                f"got {levels!r:.{_SHOWN}}"
            )
        checked.append(tuple(whole(f"level {number} of the sequence", each) for each in levels))
    if not checked or any(checked[0]):
        raise ValueError(f"a sequence begins with zeros: got {checked[:1]!r:.{_SHOWN}}")
    for number, levels in enumerate(checked):
        for level, attribute in zip(levels, attributes, strict=True):
            if not 0 <= level < attribute.levels:
                raise ValueError(
                    f"level {number} of the sequence: {attribute.name!r} has levels 0 to {attribute.levels - 1}: "
                    f"got {level}"
                )
    for number, (below, levels) in enumerate(pairwise(checked), start=1):
        steps = [level - former for former, level in zip(below, levels, strict=True) if level != former]
        if len(steps) != 1 or steps[0] < 0:
            raise ValueError(f"each step of a sequence raises one attribute: level {number} is {levels} after {below}")
    return tuple(checked)


def checked_contexts(contexts: Iterable[Context], attributes: Sequence[Attribute]) -> list[Context]:
    """Contexts with a text for each attribute."""
    if isinstance(contexts, str | bytes | Mapping):
        raise ValueError(f"contexts are a list: got {contexts!r:.{_SHOWN}}")
    checked = [checked_context(f"context {number}", context, attributes) for number, context in enumerate(contexts)]
    if not checked:
        raise ValueError("a hierarchy needs at least one context")
    return checked


def checked_context(title: str, context: object, attributes: Sequence[Attribute]) -> Context:
    """A context with a text for each attribute."""
    if (
        not isinstance(context, tuple | list)
        or len(context) != len(attributes)
        or not all(isinstance(each, str) for each in context)
    ):
        names = ", ".join(attribute.name for attribute in attributes)
        raise ValueError(f"{title} must have a text for each of {names}: got {context!r:.{_SHOWN}}")
    return tuple(context)
