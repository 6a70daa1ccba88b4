"""One fault of a simulation: what fails, when, and for whom; as a line of JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, get_args

from reticent.storage.documents import parse_json
from reticent_sim.engine.times import STEPS

__all__ = ["CALLS", "CALL_KINDS", "KINDS", "SERVERS", "STEPS", "Call", "Fault", "Kind", "Moment", "Server"]


class Moment(NamedTuple):
    """A day and a step of it, from 0, and a round of counting at the end of the step, from 1; 0 before counting."""

    day: int
    step: int
    phase: int = 0

    @property
    def steps_before(self) -> int:
        """The number of steps before this one, since day 0."""
        return self.day * STEPS + self.step


Server = Literal["keys", "aggregation", "ads"]
SERVERS: tuple[Server, ...] = get_args(Server)

Call = Literal["join", "renew", "leave", "announcements", "query", "key", "contribute", "decisions"]
CALLS: tuple[Call, ...] = get_args(Call)
"""The calls of a phone to the two servers."""

Kind = Literal[
    "partition",
    "request lost",
    "reply lost",
    "duplicate",
    "delay",
    "cut",
    "crash",
    "skew",
    "full",
    "slow",
    "absent",
    "join",
    "leave",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
CALL_KINDS: tuple[Kind, ...] = ("request lost", "reply lost", "duplicate", "delay", "cut")
"""The faults of single calls."""

_PHONES = re.compile(r"phone (0|[1-9]\d{0,8})|phones (0|[1-9]\d{0,8})-(0|[1-9]\d{0,8})")
_AGGREGATION = re.compile(r"aggregation-([2-9]|[1-9]\d)")
_WORKER = re.compile(r"worker (0|[1-9]\d{0,3})")
_MAX_DAY = 10_000
_MAX_SKEW = 1800  # seconds: a mask whose clock was ahead by a step would decide that step never again


class _Form(NamedTuple):
    """The targets and the fields of a kind of fault.

    Args:
        targets: "phones", "worker" or the name of a server.
        required: Fields that must be stated, beside the day, the step, the kind and the target.
        optional: Fields that may be stated.
    """

    targets: tuple[str, ...]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_CALL = _Form(("phones",), ("call",), ("times",))
_FORMS: dict[str, _Form] = {
    **dict.fromkeys(CALL_KINDS, _CALL),
    "partition": _Form(("phones",), ("server",), ("steps", "phase")),
    "crash": _Form((*SERVERS, "worker"), (), ("steps", "phase")),
    "skew": _Form(("phones",), ("seconds",), ("steps", "phase")),
    "full": _Form(("phones", "keys", "aggregation"), (), ("steps", "phase")),
    "slow": _Form(("phones",), (), ("rounds",)),
    "absent": _Form(("phones",), (), ("steps", "phase")),
    "join": _Form(("phones",)),
    "leave": _Form(("phones",)),
}
_COMMON = ("day", "step", "kind", "target")
_LEAST = {"steps": 1, "times": 1, "rounds": 1, "phase": 1}


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, its time and its target. A field that the kind does not use keeps its default.

    Args:
        day: From 0.
        step: Of the day, 0 to 23.
        kind: One of `KINDS`.
        target: "phone 3", "phones 3-9", "keys", "aggregation", "ads" or "worker 0". The second aggregation server is
            "aggregation-2".
        steps: How many steps it lasts. A process that crashes starts again after them; with 0 at once. A server that is
            down, or has a full disk, works again when a count begins.
        call: Of a fault of calls: the name of the call.
        times: How many calls of this name fail, from the first one of the step on.
        server: Of a partition: which server the phones cannot reach.
        seconds: Of a skewed clock: how far it is ahead; negative if it is behind.
        rounds: Of a slow phone: how many rounds of counting it is late.
        phase: The round of counting at the end of the step, from 1, at which it begins. It then lasts so many rounds
            instead of steps, and ends with the count at the latest.

    >>> Fault(2, 9, "reply lost", "phone 3", call="contribute").to_json()
    '{"day": 2, "step": 9, "kind": "reply lost", "target": "phone 3", "call": "contribute", "times": 1}'
    """

    day: int
    step: int
    kind: Kind
    target: str
    steps: int = 1
    call: Call | None = None
    times: int = 1
    server: Server | None = None
    seconds: int = 0
    rounds: int = 1
    phase: int | None = None

    def __post_init__(self) -> None:
        _check_name("kind", self.kind, KINDS)
        form = _FORMS[self.kind]
        _check_whole("day", self.day, 0, _MAX_DAY)
        _check_whole("step", self.step, 0, STEPS - 1)
        self._check_target(form)
        for name in _FIELDS:
            value, default = getattr(self, name), _DEFAULTS[name]
            if name not in form.required and name not in form.optional:
                if value != default:
                    raise ValueError(f"{self.kind!r} has no {name}: got {value!r}")
            elif name in form.required and value == default:
                raise ValueError(f"{self.kind!r} needs {name}")
            elif value != default:
                self._check_field(name, value)

    def to_json(self) -> str:
        """One line, with all fields that the kind uses."""
        form = _FORMS[self.kind]
        names = (*_COMMON, *form.required, *form.optional)
        values = {name: getattr(self, name) for name in names}
        return json.dumps({name: value for name, value in values.items() if value is not None})

    @classmethod
    def from_json(cls, line: str) -> Self:
        """The fault of a line of JSON; raises `ValueError`."""
        document = parse_json(line)
        if not isinstance(document, dict):
            raise ValueError(f"a fault is a JSON object: got {line.strip()[:60]}")
        for name in _COMMON:
            if name not in document:
                raise ValueError(f"a fault needs {name}")
        for name in document:
            if name not in _COMMON and name not in _FIELDS:
                raise ValueError(f"a fault has no {name!r}")
        return cls(**document)

    @property
    def moment(self) -> Moment:
        """The moment at which it begins."""
        return Moment(self.day, self.step, self.phase or 0)

    @property
    def end(self) -> Moment:
        """The first moment at which it does not last any more."""
        if self.phase is not None:
            return Moment(self.day, self.step, self.phase + self.steps)
        later = self.moment.steps_before + self.steps
        return Moment(later // STEPS, later % STEPS)

    @cached_property
    def phones(self) -> range:
        """The numbers of the phones that it concerns; empty if it is a fault of a process."""
        found = _PHONES.fullmatch(self.target)
        if found is None:
            return range(0)
        first = int(found[1] or found[2])
        return range(first, int(found[3] or first) + 1)

    @property
    def worker(self) -> int | None:
        """The number of the worker that it concerns, if any."""
        found = _WORKER.fullmatch(self.target)
        return None if found is None else int(found[1])

    @property
    def aggregation_server(self) -> int | None:
        """The number of the aggregation server that it concerns, from 0, if any."""
        found = _AGGREGATION.fullmatch(self.target)
        return 0 if self.target == "aggregation" else None if found is None else int(found[1]) - 1

    def holds(self, moment: Moment) -> bool:
        """Whether it lasts at a moment."""
        return self.moment <= moment < self.end

    def changed(self, **fields: Any) -> Self:
        """The same fault with other values of some fields."""
        return dataclasses.replace(self, **fields)

    def _check_target(self, form: _Form) -> None:
        if not isinstance(self.target, str):
            raise ValueError(f"target is text: got {self.target!r}")
        found = "phones" if self.phones else "worker" if self.worker is not None else self.target
        found = "aggregation" if self.aggregation_server is not None else found
        if found not in form.targets or found == self.target == "worker":
            names = ["phone 3", "phones 3-9"] if "phones" in form.targets else []
            names += [each for each in form.targets if each in SERVERS]
            names += ["worker 0"] if "worker" in form.targets else []
            raise ValueError(f"the target of {self.kind!r} is one such as {', '.join(names)}: got {self.target!r}")

    def _check_field(self, name: str, value: object) -> None:
        if name == "call":
            _check_name(name, value, CALLS)
        elif name == "server":
            _check_name(name, value, SERVERS)
        elif name == "seconds":
            _check_whole(name, value, -_MAX_SKEW, _MAX_SKEW)
        else:
            least = 0 if (self.kind, name) == ("crash", "steps") else _LEAST[name]
            _check_whole(name, value, least, _MAX_DAY)


_DEFAULTS: dict[str, object] = {
    each.name: each.default for each in dataclasses.fields(Fault) if each.default is not dataclasses.MISSING
}
_FIELDS = tuple(_DEFAULTS)


def aggregation_name(number: int) -> str:
    """The name of an aggregation server by its number from 0, and the target of its faults.

    >>> aggregation_name(0), aggregation_name(1)
    ('aggregation', 'aggregation-2')
    """
    return "aggregation" if number == 0 else f"aggregation-{number + 1}"


def phones_target(first: int, last: int) -> str:
    """The target that names these phones.

    >>> phones_target(3, 3), phones_target(3, 9)
    ('phone 3', 'phones 3-9')
    """
    return f"phone {first}" if first == last else f"phones {first}-{last}"


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}: got {value!r}")


def _check_name(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise ValueError(f"{name} is one of {', '.join(names)}: got {value!r}")
