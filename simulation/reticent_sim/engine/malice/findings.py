"""Findings about malicious phones: who noticed them and how, and the gain of collusion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reticent.privacy import Query, Release
from reticent.protocol import Refusal
from reticent_analyst.handle import Progress
from reticent_sim.engine.malice.experience import ACKNOWLEDGED, Experience, QueryAttempts

__all__ = ["Collusion", "DecidedCount", "MaliceFinding", "collusions", "findings"]

KEY_SERVER, AGGREGATION_SERVER, ANALYST = "key server", "aggregation server", "analyst"


class DecidedCount(NamedTuple):
    """The end of a count, as the analyst sees it.

    Args:
        progress: Its contributors and the outcome of each cohort.
        release: Its release; None if the query was burnt.
    """

    progress: Progress
    release: Release | None

    @property
    def query(self) -> Query:
        """The query."""
        return self.progress.query


@dataclass(frozen=True)
class MaliceFinding:
    """The finding about one malicious phone.

    Args:
        phone: The number of the phone.
        kind: Its kind of malice.
        noticed: Whether anybody has noticed that something is wrong.
        how: What was noticed or not, in one sentence.
        by: The parties that noticed it.
    """

    phone: int
    kind: str
    noticed: bool
    how: str
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collusion:
    """The gain of the colluders of one cohort: they disclose their noise, and everybody can subtract it from the sum.

    Args:
        query: The id of the query.
        cohort: The cohort, which was released.
        contributors: Its contributions.
        colluders: How many of them are of colluders.
        tolerated: How many colluders a cohort of so many contributors tolerates. The query plans for `liars` among
            `min_contributions`; each contribution above that adds the noise of one more phone.
        left: The variance of the noise that is left in each counter, to one curious phone that knows its own share.
        needed: The variance that epsilon and delta require.
    """

    query: str
    cohort: int
    contributors: int
    colluders: int
    tolerated: int
    left: float
    needed: float

    @property
    def is_covered(self) -> bool:
        """Whether the noise that is left keeps the promise of the query."""
        return self.colluders <= self.tolerated


def collusions(experiences: Iterable[Experience], counts: Iterable[DecidedCount]) -> list[Collusion]:
    """The gain of the colluders in each released cohort that has any, by query and cohort."""
    colluders = Counter(
        (attempts.query, attempts.cohort)
        for experience in experiences
        for attempts in experience.attempts
        if attempts.noise and attempts.contributed
    )
    found = []
    for count in counts:
        query, progress = count.query, count.progress
        for cohort, contributors in enumerate(progress.contributors):
            number = colluders[query.id, cohort]
            if not number or progress.outcomes[cohort] != "released":
                continue
            tolerated = contributors - query.min_contributions + query.liars
            left = max(0, contributors - number - 1) * query.share_variance
            found.append(Collusion(query.id, cohort, contributors, number, tolerated, left, query.variance))
    return found


def findings(experiences: Iterable[Experience], counts: Iterable[DecidedCount]) -> list[MaliceFinding]:
    """The finding about each malicious phone, in the order of their numbers.

    Args:
        experiences: Of all malicious phones.
        counts: All counts that are decided.
    """
    phones = sorted(experiences, key=lambda experience: experience.phone)
    decided = {count.query.id: count for count in counts}
    gains = {(each.query, each.cohort): each for each in collusions(phones, decided.values())}
    return [_finding(experience, decided, gains) for experience in phones]


def _finding(
    experience: Experience, decided: Mapping[str, DecidedCount], gains: Mapping[tuple[str, int], Collusion]
) -> MaliceFinding:
    attempts = experience.attempts
    if not attempts:
        return MaliceFinding(experience.phone, experience.kind, False, "it took part in no count")
    facts = list(_refusals(attempts))
    match experience.kind:
        case "wild":
            facts += _wild_values(attempts, decided)
        case "replay":
            facts += _repeats(attempts)
        case "colluder":
            facts += _collusion(attempts, gains)
    sent = sum(each.contributed for each in attempts)
    facts.append(_Fact(f"it contributed to {sent} of {_plural(len(attempts), 'count')}"))
    if not any(each.replies for each in attempts):
        facts.append(_Fact("no party can tell this from absence"))
    by = tuple(dict.fromkeys(fact.by for fact in facts if fact.by))
    return MaliceFinding(experience.phone, experience.kind, bool(by), "; ".join(fact.text for fact in facts), by)


class _Fact(NamedTuple):
    """A part of a finding, and the party that noticed it; nobody if empty."""

    text: str
    by: str = ""


def _refusals(attempts: Sequence[QueryAttempts]) -> Iterator[_Fact]:
    refused = sum((Counter(each.replies) for each in attempts), Counter[str]())
    del refused[ACKNOWLEDGED]
    if refused:
        names = ", ".join(f"{name} ({number})" for name, number in sorted(refused.items()))
        is_honest = refused.keys() <= {Refusal.LATE.name}  # as honest phones are refused, too
        yield _Fact(f"the {AGGREGATION_SERVER} refused its calls: {names}", "" if is_honest else AGGREGATION_SERVER)


def _repeats(attempts: Sequence[QueryAttempts]) -> Iterator[_Fact]:
    repeats = sum(each.replies.get(ACKNOWLEDGED, 0) - each.contributed for each in attempts)
    if repeats:
        yield _Fact(f"{repeats} exact repeats were acknowledged again, like retries, and changed no sum")


def _wild_values(attempts: Sequence[QueryAttempts], decided: Mapping[str, DecidedCount]) -> Iterator[_Fact]:
    ends = Counter(
        _end_of(each.cohort, decided[each.query]) for each in attempts if each.contributed and each.query in decided
    )
    for text, by in _ENDS:
        if ends[text]:
            yield _Fact(f"{text} in {_plural(ends[text], 'count')}", by)


_VOID, _OUTLYING = (
    f"the {KEY_SERVER} voided its cohort for wrong tags",
    f"the {ANALYST} left out its cohort as outlying",
)
_BURNT, _HIDDEN = "its cohort had too few contributions and was burnt", "its values were not noticed"
_ENDS = ((_VOID, KEY_SERVER), (_OUTLYING, ANALYST), (_BURNT, ""), (_HIDDEN, ""))


def _end_of(cohort: int, count: DecidedCount) -> str:
    """The end of a cohort with wild values."""
    if count.progress.outcomes[cohort] != "released":
        return _VOID if count.progress.outcomes[cohort] == "void" else _BURNT
    outlying = () if count.release is None else count.release.cohorts_outlying
    return _OUTLYING if any(cohort in cohorts for cohorts in outlying) else _HIDDEN


def _collusion(attempts: Sequence[QueryAttempts], gains: Mapping[tuple[str, int], Collusion]) -> Iterator[_Fact]:
    disclosed = [(each.query, each.cohort) for each in attempts if each.noise and each.contributed]
    own = [gains[each] for each in disclosed if each in gains]
    if disclosed and not own:
        yield _Fact("it disclosed its noise, which no party can notice; no sum of its cohort was released")
    elif own:
        worst = min(own, key=lambda gain: gain.left / gain.needed)
        share = math.sqrt(worst.left / worst.needed)
        yield _Fact(
            f"it disclosed its noise, which no party can notice; with {_plural(worst.colluders, 'colluder')} in its "
            f"cohort, of {worst.tolerated} tolerated, the remaining noise has {share:.2f} times the required deviation"
        )


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
