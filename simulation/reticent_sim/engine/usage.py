"""The resources that workers use, and the experience of malicious phones: added up from report to report.

A worker that crashes loses at most what it has not reported.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reticent_sim.engine.malice import Experience, QueryAttempts

__all__ = ["CpuMeter", "Reported", "TotalUsage", "Usage", "peak_memory"]


class CpuMeter:
    """The CPU time of some parts of a program."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Add the CPU time of this context."""
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - began


@dataclass(frozen=True)
class Usage:
    """The resources that a worker has used since its last report.

    Args:
        phones_cpu: CPU seconds of the phones, with the events that they record.
        other_cpu: CPU seconds of all else: the people, policies, an adversary's beliefs and the start.
        calls: The calls of phones to the servers and to the ad service.
        bytes_sent: The bytes of their requests.
        bytes_received: The bytes of the replies.
        experiences: New attempts of malicious phones.
    """

    phones_cpu: float = 0.0
    other_cpu: float = 0.0
    calls: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    experiences: tuple[Experience, ...] = ()


class Reported(NamedTuple):
    """The reply of a worker to a request, and what it has used."""

    reply: Any
    usage: Usage


class TotalUsage:
    """The usage of all workers so far."""

    def __init__(self) -> None:
        self.phones_cpu = self.other_cpu = 0.0
        self.calls = self.bytes_sent = self.bytes_received = 0
        self._kinds: dict[int, str] = {}
        self._attempts: dict[int, dict[str, QueryAttempts]] = {}

    def add(self, usage: Usage) -> None:
        """Add a report."""
        self.phones_cpu += usage.phones_cpu
        self.other_cpu += usage.other_cpu
        self.calls += usage.calls
        self.bytes_sent += usage.bytes_sent
        self.bytes_received += usage.bytes_received
        for each in usage.experiences:
            self._kinds[each.phone] = each.kind
            self._attempts.setdefault(each.phone, {}).update({attempts.query: attempts for attempts in each.attempts})

    @property
    def experiences(self) -> Sequence[Experience]:
        """All attempts of the malicious phones, in the order of the phones."""
        return [
            Experience(phone, kind, tuple(self._attempts[phone].values()))
            for phone, kind in sorted(self._kinds.items())
        ]


def peak_memory() -> int:
    """The most resident memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
