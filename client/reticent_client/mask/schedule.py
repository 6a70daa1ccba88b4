"""Policies by day of the week."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from reticent_client.mask.policy import Policy

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
GROUPS = {"weekday": DAYS[:5], "weekend": DAYS[5:]}


class Schedule:
    """A policy for each day of the week; a day's own name goes before "weekday" and "weekend".

    Give each policy a store of its own, and the mask the day's name:

        policy = schedule.on(today)
        mask = MaskIt(policy, store=stores[policy], day=today.isoformat())

    >>> from reticent_client import MarkovChain, mask_sensitive
    >>> chain = MarkovChain(["home", "gym"], [1, 0], [[[0.5, 0.5], [0.5, 0.5]]])
    >>> rest, work = (mask_sensitive(chain, sensitive={label}) for label in chain.contexts)
    >>> schedule = Schedule({"weekday": work, "friday": rest, "weekend": rest})
    >>> schedule.on(dt.date(2026, 1, 1)) is work  # a Thursday
    True
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        unknown = [name for name in policies if name not in GROUPS and name not in DAYS]
        if unknown:
            known = ", ".join([*GROUPS, *DAYS])
            raise ValueError(f"{unknown[0]!r} is no day of a schedule: use {known}")
        for name, policy in policies.items():
            if not isinstance(policy, Policy):
                raise ValueError(f"the schedule needs a policy for {name}: got {policy!r}")
        self._policies: dict[str, Policy] = {}
        for group, days in GROUPS.items():
            if group in policies:
                self._policies |= dict.fromkeys(days, policies[group])
        self._policies |= {day: policies[day] for day in DAYS if day in policies}
        missing = [day for day in DAYS if day not in self._policies]
        if missing:
            raise ValueError(f"the schedule has no policy for {', '.join(missing)}")

    @property
    def policies(self) -> list[Policy]:
        """The policies, each once."""
        return list(dict.fromkeys(self._policies.values()))

    def on(self, date: dt.date) -> Policy:
        """The policy of a day."""
        return self._policies[DAYS[date.weekday()]]
