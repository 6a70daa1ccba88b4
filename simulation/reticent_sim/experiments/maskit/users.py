"""Figure 3.6: which of the two checks is better for whom, and whether the hybrid knows."""

from __future__ import annotations

from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.checks import SENSITIVE, group_of
from reticent_sim.experiments.maskit.groups import Group
from reticent_sim.experiments.results import Finding, Result, Row, settings_of
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.statistics import Estimate, percent
from reticent_sim.experiments.subjects import Subject
from reticent_sim.experiments.systems import HYBRID, LEAKY, PROBABILISTIC, SIMULATABLE, SYSTEMS
from reticent_sim.experiments.verdicts import above, all_of

NAME = "maskit-users"
TITLE = "Utility of two checks for each person (figure 3.6)"

ALMOST_ALL = 0.9
"""The hybrid picks the better check for almost all: for more than this part of the people (published: 95 %)."""
EACH = 0.1
"""Neither check is best for all: each is for more than this part of the people (published: 58 and 42 %)."""

TIE = "neither"
PICKED = "hybrid picks the better check"


def better(check: str) -> str:
    """The name of the share of people for whom a check releases most."""
    return f"better check: {check}"


def run(runner: Runner) -> Result:
    """Compute the data of the figure."""
    group = group_of(runner)
    rows: list[Row] = [
        {"measure": better(check), "share": _share(group, check)} for check in (SIMULATABLE, PROBABILISTIC, TIE)
    ]
    rows += [
        {"measure": PICKED, "share": _right(group)},
        {"measure": "the same on days that follow the chain", "share": _right(group, "followed")},
    ]
    settings = settings_of(runner, group.people, sensitive=f"{SENSITIVE} contexts at random", delta=DELTA)
    return Result(NAME, TITLE, settings, rows, findings(group), [_person(group, subject) for subject in group.people])


def _person(group: Group, subject: Subject) -> Row:
    row: Row = {
        "user": subject.name,
        "contexts": subject.seen,
        "days": len(subject.days),
        "off_model_days": len(subject.halves[1]),
        "better": _better(group, subject),
        "chosen": group.result(subject, HYBRID).system,
        "right": _is_right(group, subject, "utility"),
    }
    row |= {system: group.result(subject, system).whole.utility for system in SYSTEMS}
    return row | {f"{system}_expected": group.result(subject, system).expected for system in SYSTEMS}


def _better(group: Group, subject: Subject) -> str:
    one, other = (group.result(subject, check).whole.released for check in (SIMULATABLE, PROBABILISTIC))
    return TIE if one == other else SIMULATABLE if one > other else PROBABILISTIC


def _is_right(group: Group, subject: Subject, measure: str) -> bool:
    """Whether the hybrid's choice suppressed no more than the other check."""
    hybrid, *both = (
        result.whole.released if measure == "utility" else result.followed.released
        for result in (group.result(subject, system) for system in (HYBRID, SIMULATABLE, PROBABILISTIC))
    )
    return hybrid == max(both)


def _share(group: Group, check: str) -> Estimate:
    return statistics.share(sum(_better(group, subject) == check for subject in group.people), len(group.people))


def _right(group: Group, measure: str = "utility") -> Estimate:
    people = [subject for subject in group.people if measure == "utility" or subject.halves[0]]
    return statistics.share(sum(_is_right(group, subject, measure) for subject in people), max(len(people), 1))


def findings(group: Group) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    shares = {check: _share(group, check) for check in (SIMULATABLE, PROBABILISTIC)}
    right, on_model = _right(group), _right(group, "followed")
    losses = [
        max(group.result(subject, check).whole.utility for check in (SIMULATABLE, PROBABILISTIC))
        - group.result(subject, HYBRID).whole.utility
        for subject in group.people
        if not _is_right(group, subject, "utility")
    ]
    wrong = f"; where it is wrong it loses {percent(sum(losses) / len(losses))} of all steps" if losses else ""
    means = {system: group.estimate(system) for system in (SIMULATABLE, PROBABILISTIC, HYBRID, LEAKY)}
    leads = [statistics.mean(group.differences(HYBRID, check)) for check in (SIMULATABLE, PROBABILISTIC)]
    return [
        Finding(
            name="neither-check-is-best-for-all",
            claim="Neither the simulatable nor the probabilistic check is the better one for everybody.",
            published="simulatable better for 58 %, probabilistic for 42 %",
            ours=", ".join(f"{check} better for {percent(share)}" for check, share in shares.items()),
            rule=f"the interval of each share lies above {percent(EACH, 0)}",
            verdict=all_of(above(share, EACH) for share in shares.values()),
        ),
        Finding(
            name="hybrid-picks-the-better-check",
            claim="The hybrid picks the check that suppresses less in the second half for almost everybody.",
            published="95 %",
            ours=f"{percent(right)}; counting only days that follow the chain, {percent(on_model)}{wrong}",
            rule=f"the interval lies above {percent(ALMOST_ALL, 0)}",
            verdict=above(right, ALMOST_ALL),
        ),
        Finding(
            name="hybrid-above-both",
            claim="On average over people the hybrid releases more than either check.",
            published="75.8 %, which is much more than either",
            ours=", ".join(f"{system} {percent(value)}" for system, value in means.items()),
            rule="the intervals of both paired differences lie above 0",
            verdict=all_of(above(lead, 0) for lead in leads),
        ),
    ]
