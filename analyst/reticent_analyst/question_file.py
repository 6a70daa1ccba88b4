"""A question in a file: TOML, as docs/counting.md describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reticent.privacy import MAX_INTEGER, Counter
from reticent.storage.documents import parse_toml
from reticent.times import duration

__all__ = ["fields_of"]

_OTHERS = {"counters", "bounds", "expected", "means", "ratios", "histograms"}
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "noise", "sequence", "scaling"), str),
    **dict.fromkeys(("epsilon", "delta", "absent", "lying", "risk"), (int, float)),
    **dict.fromkeys(
        ("l2_squared", "l1", "fraction_bits", "population", "cohorts", "min_contributions", "liars", "enough"), int
    ),
    "closes_after": int,
}
_IN_SECTION = {"bounds": {"l1", "l2_squared"}, "expected": {"absent", "lying", "risk"}}


def fields_of(text: str) -> dict[str, Any]:
    """The arguments of `Question` in a text in TOML.

    Raises:
        ValueError: The text is no question.
    """
    content = parse_toml(text)
    counters = [_counter(name, bounds) for name, bounds in _table(content, "counters").items()]
    found = {name: value for name, value in content.items() if name not in _OTHERS}
    for section in ("bounds", "expected"):
        for name, value in _table(content, section).items():
            if name not in _IN_SECTION[section]:
                raise ValueError(f"[{section}] has the keys {', '.join(sorted(_IN_SECTION[section]))}: got {name!r}")
            found[name] = value
    unknown = found.keys() - _KINDS.keys()
    missing = {"id", "epsilon", "delta", "absent"} - found.keys()
    if unknown:
        raise ValueError(f"a question has the keys {_named([*_KINDS, 'means'])}: got {', '.join(sorted(unknown))}")
    if missing:
        raise ValueError(f"a question needs {_named(missing)}: got {_named(found) or 'nothing'}")
    if isinstance(found.get("closes_after"), str):
        found["closes_after"] = int(duration(found["closes_after"], "closes_after").total_seconds())
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, _KINDS[name]):
            raise ValueError(f"{_named([name])} must be {'text' if _KINDS[name] is str else 'a number'}: got {value!r}")
        if isinstance(value, int | float) and not abs(value) <= MAX_INTEGER:
            raise ValueError(f"{_named([name])} is too large: got {value!r}")
    return {"counters": counters, **found, **_statistics(content)}


def _statistics(content: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics to compute from the release."""
    number = (int, float)
    return {
        "means": _list("means", content.get("means", []), str),
        "ratios": {name: _list(f"[ratios] {name}", pair, str, 2) for name, pair in _table(content, "ratios").items()},
        "histograms": {
            name: _list(f"[histograms] {name}", edges, number) for name, edges in _table(content, "histograms").items()
        },
    }


def _table(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}] must be a table: got {table!r}")
    return table


def _list(name: str, value: Any, kind: type | tuple[type, ...], length: int | None = None) -> tuple[Any, ...]:
    if isinstance(value, list) and length in {None, len(value)}:  # noqa: SIM102  # two questions
        if all(isinstance(each, kind) and not isinstance(each, bool) for each in value):
            return tuple(value)
    what = "numbers" if kind is not str else "two names of counters" if length else "names of counters"
    raise ValueError(f"{name} must be a list of {what}: got {value!r}")


def _named(names: Iterable[str]) -> str:
    """The keys as in a file, each with its section."""
    sections = {name: section for section, those in _IN_SECTION.items() for name in those}
    return ", ".join(sorted(f"[{sections[name]}] {name}" if name in sections else name for name in names))


def _counter(name: str, bounds: Any) -> Counter:
    scale = 1
    if isinstance(bounds, dict) and bounds.keys() == {"bounds", "scale"} and _is_whole(bounds["scale"]):
        bounds, scale = bounds["bounds"], int(bounds["scale"])
    if isinstance(bounds, list) and [_is_whole(bound) for bound in bounds] == [True, True]:
        low, high = map(int, bounds)
        return Counter(name, low, high, scale)
    raise ValueError(
        f"[counters] a counter has two whole numbers as bounds, as in visits = [0, 7], or a table with a scale, as in "
        f"visits = {{ bounds = [0, 7], scale = 3 }}: got {name} = {bounds!r}"
    )


def _is_whole(bound: Any) -> bool:
    return type(bound) in {int, float} and abs(bound) <= MAX_INTEGER and bound == int(bound)
