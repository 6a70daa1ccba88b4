"""Figure 3.5: what each system releases and suppresses of three sensitive contexts and of the rest, and breaches."""

from __future__ import annotations

from reticent_client import TOLERANCE
from reticent_sim.experiments import statistics
from reticent_sim.experiments.maskit.groups import Group, at_random
from reticent_sim.experiments.results import Finding, Result, Row, settings_of
from reticent_sim.experiments.runner import DELTA, Runner
from reticent_sim.experiments.statistics import percent
from reticent_sim.experiments.systems import (
    ADAPTIVE,
    HYBRID,
    LEAKY,
    OPTIMAL,
    ORDERS,
    PROBABILISTIC,
    SIMULATABLE,
    SYSTEMS,
    Leakage,
    StepCounts,
)
from reticent_sim.experiments.verdicts import Verdict, above, all_of, at_most, ever, never

NAME = "maskit-checks"
TITLE = "Released and suppressed states, and breaches (figure 3.5)"
SENSITIVE = 3

LARGE_SHARE = 0.25
"""A large share of the sensitive states: half of the published one, and certain to be more."""
PRICES = {SIMULATABLE: 0.13, PROBABILISTIC: 0.31}
"""The part of MaskSensitive's utility that each check gives up, as published."""
ROOM = 0.05
"""The tolerance beyond the published loss of a check: without it, no number of people could confirm that loss."""
NEARLY = 0.05
"""Hybrid almost matches MaskSensitive: it gives up no more than this part (published: less than 1 %)."""

ABOVE_ZERO = "the interval of every paired difference lies above 0"


def run(runner: Runner) -> Result:
    """Compute the data of the figure."""
    group = group_of(runner)
    rows = [_row(group, system, runner.settings.seed) for system in SYSTEMS]
    settings = settings_of(runner, group.people, sensitive=f"{SENSITIVE} contexts at random", delta=DELTA)
    return Result(NAME, TITLE, settings, rows, findings(group, runner.settings.seed))


def group_of(runner: Runner) -> Group:
    """Everybody, with three contexts that are sensitive; three experiments look at the same answers."""
    return Group(runner, at_random(runner, runner.subjects, SENSITIVE), systems=SYSTEMS, audited=True).run()


def _row(group: Group, system: str, seed: int) -> Row:
    results = group.results(system)
    whole = [result.whole for result in results]
    breaches = _breaches(group, system)
    followed, strayed = _learned(group, system)
    return {
        "system": system,
        "n": len(results),
        "utility": group.estimate(system),
        "utility_on_model": group.known(system, "followed"),
        "utility_expected": group.estimate(system, "expected"),
        "released_sensitive": _mean(whole, "released_sensitive"),
        "released_other": statistics.mean([(t.released - t.released_sensitive) / t.steps for t in whole]),
        "suppressed_sensitive": _mean(whole, "suppressed_sensitive"),
        "suppressed_other": _mean(whole, "suppressed"),
        "gaps": _mean(whole, "gaps"),
        "released_gaps": _mean(whole, "released_gaps"),
        "sensitive_states": sum(counts.sensitive for counts in whole),
        "breaches": sum(breaches),
        "breaches_of_sensitive_states": statistics.ratio(breaches, [t.sensitive for t in whole], seed, NAME, system),
        "breaches_of_all_states": statistics.ratio(breaches, [t.steps for t in whole], seed, NAME, system),
        "breaches_on_model": followed.breaches,
        "sensitive_states_on_model": sum(result.followed.sensitive for result in results),
        "largest_gain_on_model": followed.largest_gain,
        "breaches_off_model": strayed.breaches,
        "sensitive_states_off_model": sum(result.strayed.sensitive for result in results),
        "largest_gain_off_model": strayed.largest_gain,
        "complete": sum(result.complete for result in results),
    }


def _breaches(group: Group, system: str) -> list[int]:
    """Of each person, on all days."""
    return [leakage.whole.breaches for leakage in group.leakage(system)]


def _learned(group: Group, *systems: str) -> tuple[Leakage, Leakage]:
    """The gains of adversaries on everybody: on the days that follow the chains, and on the others."""
    leakage = [each for system in systems for each in group.leakage(system)]
    return sum((each.followed for each in leakage), Leakage()), sum((each.strayed for each in leakage), Leakage())


def _mean(counts: list[StepCounts], what: str) -> statistics.Estimate:
    return statistics.mean([getattr(counts, what) / counts.steps for counts in counts])


def findings(group: Group, seed: int) -> list[Finding]:
    """The claims about this figure, compared with this run."""
    return [
        _leaks(group, seed),
        _keeps(group),
        *(_price(group, system, price, seed) for system, price in PRICES.items()),
        _ordered(group),
        _nearly(group, seed),
        _releases_sensitive(group),
        _orders(group),
        _better_checks(group),
        _better_checks_in_fact(group),
    ]


def _leaks(group: Group, seed: int) -> Finding:
    whole = [result.whole for result in group.results(LEAKY)]
    breaches = _breaches(group, LEAKY)
    found = statistics.ratio(breaches, [counts.sensitive for counts in whole], seed, NAME, LEAKY)
    of_all = statistics.ratio(breaches, [counts.steps for counts in whole], seed, NAME, LEAKY)
    hidden = statistics.mean([counts.sensitive / counts.steps for counts in whole])
    return Finding(
        name="mask-sensitive-leaks",
        claim="Hiding the sensitive states alone breaches a large share of them.",
        published="54 % of the sensitive states, which are 24 % of all",
        ours=f"{percent(found)} of the sensitive states, which are {percent(hidden)} of all; {percent(of_all)} of all",
        rule=f"the interval lies above {percent(LARGE_SHARE, 0)} of the sensitive states",
        verdict=above(found, LARGE_SHARE),
    )


def _keeps(group: Group) -> Finding:
    private = [system for system in SYSTEMS if system != LEAKY]
    followed, strayed = _learned(group, *private)
    states = sum(result.strayed.sensitive for system in private for result in group.results(system))
    return Finding(
        name="private-checks-never-breach",
        claim="No check of MaskIt breaches on days that follow the chain.",
        published="no breaches",
        ours=(
            f"{followed.breaches} breaches, largest gain {followed.largest_gain:.3f}; off the model, where nothing is "
            f"promised, {strayed.breaches} breaches of {states} sensitive states, largest gain "
            f"{strayed.largest_gain:.3f}"
        ),
        rule="no breach and no gain above delta on those days, by any of the checks",
        verdict=never(followed.breaches > 0 or followed.largest_gain > DELTA + TOLERANCE, len(group.people)),
    )


def _given_up(group: Group, system: str, seed: int, measure: str = "utility") -> statistics.Estimate:
    """The part of MaskSensitive's utility that a check gives up."""
    leaky = group.values(LEAKY, measure)
    lost = group.differences(LEAKY, system, measure)
    return statistics.ratio(lost, leaky, seed, NAME, "given up", system, measure)


def _price(group: Group, system: str, price: float, seed: int) -> Finding:
    found = _given_up(group, system, seed)
    on_model = _given_up(group, system, seed, "followed")
    return Finding(
        name=f"price-of-{system}",
        claim=f"The {system} check gives up a small part of MaskSensitive's utility.",
        published=percent(price, 0),
        ours=f"{percent(found)}; on days that follow the chain {percent(on_model)}",
        rule=f"the interval lies below the published part and {percent(ROOM, 0)}",
        verdict=at_most(found, price + ROOM),
    )


def _each_releases_more(group: Group, *pairs: tuple[str, str], measure: str = "utility") -> Verdict:
    """Whether in each pair the first system releases more than the second."""
    return all_of(above(statistics.mean(group.differences(*pair, measure)), 0) for pair in pairs)


def _ordered(group: Group) -> Finding:
    one, other = group.estimate(SIMULATABLE), group.estimate(PROBABILISTIC)
    return Finding(
        name="simulatable-above-probabilistic",
        claim="On average over people, the simulatable check releases more than the probabilistic one.",
        published="13 % given up instead of 31 %",
        ours=f"simulatable {percent(one)}, probabilistic {percent(other)}",
        rule=ABOVE_ZERO,
        verdict=_each_releases_more(group, (SIMULATABLE, PROBABILISTIC)),
    )


def _nearly(group: Group, seed: int) -> Finding:
    hybrid, leaky = group.estimate(HYBRID), group.estimate(LEAKY)
    lost = _given_up(group, HYBRID, seed)
    return Finding(
        name="hybrid-near-mask-sensitive",
        claim="The hybrid almost matches MaskSensitive.",
        published="75.8 % and 76.4 %",
        ours=f"{percent(hybrid)} and {percent(leaky)}: it gives up {percent(lost)}",
        rule=f"the interval of what it gives up lies below {percent(NEARLY, 0)}",
        verdict=at_most(lost, NEARLY),
    )


def _releases_sensitive(group: Group) -> Finding:
    released = {
        system: sum(result.followed.released_sensitive for result in group.results(system))
        for system in (SIMULATABLE, PROBABILISTIC)
    }
    return Finding(
        name="some-sensitive-states-are-released",
        claim="The checks release some sensitive states without a breach: those with a prior of 1 - delta or more.",
        published="some",
        ours=", ".join(f"{system} {count}" for system, count in released.items()) + " on days that follow the chain",
        rule="both release some",
        verdict=ever(all(released.values()), len(group.people)),
    )


def _orders(group: Group) -> Finding:
    values = {system: group.estimate(system) for system in (PROBABILISTIC, HYBRID, ORDERS)}
    return Finding(
        name="order-of-the-search-matters",
        claim=(
            "Lowered in several orders, of which the best is kept, the probabilistic check releases more than in the "
            "order of the text, and more than the hybrid."
        ),
        published="",
        ours=", ".join(f"{system} {percent(value)}" for system, value in values.items()),
        rule=ABOVE_ZERO,
        verdict=_each_releases_more(group, (ORDERS, PROBABILISTIC), (ORDERS, HYBRID)),
    )


def _better_checks(group: Group) -> Finding:
    values = {system: group.estimate(system, "expected") for system in (HYBRID, ADAPTIVE, OPTIMAL)}
    return Finding(
        name="better-checks-expect-more",
        claim="The adaptive check expects to release more than the hybrid, and the optimal one more than both.",
        published="",
        ours=", ".join(f"{system} {percent(value)}" for system, value in values.items()),
        rule=ABOVE_ZERO,
        verdict=_each_releases_more(group, (ADAPTIVE, HYBRID), (OPTIMAL, ADAPTIVE), measure="expected"),
    )


def _better_checks_in_fact(group: Group) -> Finding:
    values = {system: group.estimate(system) for system in (HYBRID, ADAPTIVE, OPTIMAL)}
    return Finding(
        name="better-checks-release-more-in-fact",
        claim="The adaptive and the optimal check also release more of the second half of the days than the hybrid.",
        published="",
        ours=", ".join(f"{system} {percent(value)}" for system, value in values.items()),
        rule=ABOVE_ZERO,
        verdict=_each_releases_more(group, (ADAPTIVE, HYBRID), (OPTIMAL, HYBRID)),
    )
