"""The experiments about ads: every finding can hold and fail, and the command writes what they found."""

import csv
import json
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reticent.console import program
from reticent_sim.cli import ADS
from reticent_sim.experiments.ads import communication, disclosure, min_ctr, private_rates, surface
from reticent_sim.experiments.ads.measured import Measured, Setting
from reticent_sim.experiments.ads.samples import SampleSettings
from reticent_sim.experiments.ads.serving import Measures
from reticent_sim.experiments.results import Finding
from reticent_sim.experiments.verdicts import Verdict
from tests.sim.ads.test_checkins import line, write
from tests.system.documents import ROOT

WORLDS = 8

Make = Callable[..., Any]


def measured(settings: Iterable[Setting], make: Make, worlds: int = WORLDS) -> Measured:
    """Made-up results, which differ a little between worlds."""
    known = list(settings)
    return Measured(
        SampleSettings(), (), [{each: make(*each, jitter=0.0005 * world) for each in known} for world in range(worlds)]
    )


def verdicts(found: list[Finding]) -> dict[str, Verdict]:
    return {finding.name: finding.verdict for finding in found}


MIN_CTR: list[Setting] = [(support, rate) for support in min_ctr.SUPPORTS for rate in min_ctr.LEAST_RATES]
COMMUNICATION: list[Setting] = [
    *((communication.HYBRID, rate, ads) for rate in communication.LEAST_RATES for ads in communication.NUMBERS),
    (communication.SERVER_ONLY, 0.0, 1),
]
DISCLOSURE: list[Setting] = [
    (name, ads, rate)
    for name in (*disclosure.LEVELS, disclosure.CLIENT_ONLY)
    for ads in disclosure.NUMBERS
    for rate in disclosure.LEAST_RATES
]
PRIVATE: list[Setting] = [(*series, rate) for series in private_rates.ALL_SERIES for rate in private_rates.LEAST_RATES]
SURFACE: list[Setting] = [
    (delta, ads, rates)
    for delta in (None, *surface.DELTAS[::2])
    for ads in surface.NUMBERS
    for rates in surface.RATES_PER_AD[2:]
]


def min_ctr_as_published(support: float, rate: float, jitter: float) -> Measures:
    return Measures(0.4 + 0.5 * rate + 0.005 * support + jitter, 0.6 - 0.5 * rate + jitter, 0.5 - 0.3 * rate)


def min_ctr_opposite(support: float, rate: float, jitter: float) -> Measures:
    return Measures(0.3 - 0.1 * rate - 0.005 * support + jitter, 0.3 + 0.1 * rate, 0.5 + 0.3 * rate + jitter)


def communication_as_published(strategy: str, _: float, ads: int, jitter: float) -> Measures:
    if strategy == communication.SERVER_ONLY:
        return Measures(0.12, 1.0, 0.1)
    gain = 1 - 1 / ads
    return Measures(0.12 + 0.08 * gain + jitter * gain, 0.2 + 0.3 * gain + jitter * gain, 0.1 + 0.2 * gain)


def communication_opposite(strategy: str, _: float, ads: int, jitter: float) -> Measures:
    if strategy == communication.SERVER_ONLY:
        return Measures(0.12, 1.0, 0.1)
    loss = (ads / 50) ** 2
    falls = 0.11 + 0.01 * loss * (ads < 50) - 0.05 * (ads == 50)
    return Measures(falls + jitter * loss, 0.2 * (1 + loss) * (ads < 50), 0.1 + 0.2 * loss)


def disclosure_as_published(name: str, ads: int, rate: float, jitter: float) -> Measures:
    order = (*disclosure.LEVELS, disclosure.CLIENT_ONLY).index(name)
    lost = {0: 0.0, 1: 0.001, 5: 0.3}.get(order, 0.04 * order) * (1 if ads == 10 or order == 5 else 0.2)
    return Measures(0.3 + 0.5 * rate - lost / 2 + jitter / 10, 0.9 - rate - lost, 0.5 - lost)


def disclosure_opposite(name: str, ads: int, rate: float, jitter: float) -> Measures:
    order = (*disclosure.LEVELS, disclosure.CLIENT_ONLY).index(name)
    won = {0: 0.0, 5: 0.6}.get(order, 0.06 * order)
    return Measures(0.3 + 0.5 * rate + won / 2 + jitter / 10, 0.9 - rate + won / 3 - 0.3 * (ads == 50), 0.5 + won)


def private_as_published(
    _who: str, epsilon: float | None, tolerated: float, absent: float, depth: int, *_: float, jitter: float
) -> Measures:
    precision = (
        0.6 if epsilon is None else 0.5 - 0.02 * (epsilon < 1) - 0.02 * (tolerated + absent) + 0.05 * (depth == 1)
    )
    return Measures(precision + jitter / 10, 0.5, 0.3)


def private_opposite(
    who: str, epsilon: float | None, tolerated: float, absent: float, depth: int, *_: float, jitter: float
) -> Measures:
    precision = (
        0.2 if epsilon is None else 0.5 + 0.2 * (epsilon < 1) - 0.5 * (tolerated + absent) / 1.5 - 0.1 * (depth == 1)
    )
    return Measures(precision + 0.3 * (who == "trusted server") + jitter / 10, 0.5, 0.3)


def private_costly(_who: str, epsilon: float | None, *_: float, jitter: float) -> Measures:
    return Measures(0.6 if epsilon is None else 0.5 * epsilon + jitter, 0.5, 0.3)


def surface_as_claimed(delta: float | None, ads: int, rates: int, jitter: float) -> surface.Point:
    rise = 0.1 if delta is None else delta
    revenue = min(0.5, 0.3 + rise) * (1 + 0.001 * ads + 0.001 * rates) * (ads >= 10) + jitter
    return surface.Point(0.2, 0.5, revenue, rise)


def surface_opposite(delta: float | None, ads: int, rates: int, jitter: float) -> surface.Point:
    rise = 0.1 if delta is None else delta
    return surface.Point(0.2, 0.5, (0.1 + 0.8 * rise) * (1 - 0.01 * ads) - 0.001 * rates + 0.01 * jitter, rise)


CASES: list[tuple[Callable[[Measured], list[Finding]], list[Setting], Make, list[Make]]] = [
    (min_ctr.findings, MIN_CTR, min_ctr_as_published, [min_ctr_opposite]),
    (communication.findings, COMMUNICATION, communication_as_published, [communication_opposite]),
    (disclosure.findings, DISCLOSURE, disclosure_as_published, [disclosure_opposite]),
    (private_rates.findings, PRIVATE, private_as_published, [private_opposite, private_costly]),
    (surface.findings, SURFACE, surface_as_claimed, [surface_opposite]),
]


@pytest.mark.parametrize(("findings", "settings", "as_published", "opposites"), CASES)
def test_every_finding_can_hold_fail_and_be_undecided(
    findings: Callable[[Measured], list[Finding]],
    settings: list[Setting],
    as_published: Make,
    opposites: Sequence[Make],
) -> None:
    held = verdicts(findings(measured(settings, as_published)))
    assert set(held.values()) == {Verdict.HOLDS}, held
    runs = [verdicts(findings(measured(settings, opposite))) for opposite in opposites]
    for name in held:
        assert Verdict.FAILS in {failed[name] for failed in runs}, name
    few = verdicts(findings(measured(settings, as_published, worlds=3)))
    assert set(few.values()) == {Verdict.UNDECIDED}, few


def test_the_documentation_has_every_finding() -> None:
    """In their order. The numbers are those of ten minutes at full size, which no test repeats."""
    found = [name for findings, settings, make, _ in CASES for name in verdicts(findings(measured(settings, make, 3)))]
    section = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").partition("\n## Ads\n")[2]
    section = section.partition("\n## Figure 5.3")[0]
    assert re.findall(r"^\| `([\w-]+)` \| (?:yes|no|undecided) \|", section, re.MULTILINE) == found


def test_no_point_of_the_front_is_beaten_and_every_other_one_is() -> None:
    found = measured(SURFACE, surface_as_claimed)
    front = surface.pareto_front(found)
    points = {
        setting: (
            found.estimate(setting, "disclosure").value,
            surface.bytes_of(setting),
            -found.estimate(setting, "revenue").value,
        )
        for setting in SURFACE
    }
    for setting, own in points.items():
        beaten = any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in points.values())
        assert (setting in front) != beaten


# The command


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_all_experiments_run_quickly_and_write_what_they_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["experiment", "ads", "--quick", "--output", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    held = set()
    for name in [experiment.name for experiment in ADS]:
        result = json.loads((tmp_path / f"{name}.json").read_text())
        assert (result["settings"]["seed"], result["settings"]["samples"], result["settings"]["intervals"]) == (
            1,
            6,
            "worlds",
        )
        assert len(rows_of(tmp_path, name)) == len(result["rows"])
        for row in result["rows"]:
            assert 0 <= row["coverage"]["value"] <= 1
            assert row["coverage"]["low"] <= row["coverage"]["value"] <= row["coverage"]["high"]
            assert row["coverage"]["n"] == 6
        head = (tmp_path / f"{name}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24])[0] == 1000
        for finding in result["findings"]:
            assert all(finding[part] for part in ("name", "claim", "ours", "rule", "verdict"))
            assert " ".join(finding["claim"].split()) in " ".join(out.split())
        held |= {finding["name"] for finding in result["findings"] if finding["verdict"] == "holds"}
    assert held >= {
        "threshold-trades-coverage-for-precision",
        "more-ads-help",
        "limited-privacy-costs-little",
        "exact-rates-are-better",
        "larger-epsilon-is-better",
        "bytes-buy-revenue",
    }


@pytest.mark.slow
def test_the_same_seed_finds_the_same_with_any_number_of_workers(tmp_path: Path) -> None:
    for workers in ("1", "3"):
        arguments = ["--quick", "--people", "600", "--workers", workers, "--output", str(tmp_path / workers)]
        assert program.main(["experiment", "ads-communication", *arguments]) == 0
    for ending in ("csv", "json", "png"):
        one, other = ((tmp_path / workers / f"ads-communication.{ending}").read_bytes() for workers in ("1", "3"))
        assert one == other


@pytest.mark.slow
def test_check_ins_are_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        each
        for number in range(400)
        for user in ("ada", "bob", "cyd")
        for each in (
            line(user, "h", "h", f"40.7{number % 7}001,-74.00001", 2 * number),
            line(user, f"v{(number + len(user)) % 5}", "c", "40.75001,-73.95001", 2 * number + 1),
        )
    ]
    folder = write(
        tmp_path / "checkins",
        [each.replace("2012-04-", f"2012-{4 + number // 1200:02}-") for number, each in enumerate(lines)],
    )
    assert program.main(["experiment", "ads-min-ctr", "--quick", "--data", str(folder), "--output", str(tmp_path)]) == 0
    assert "6 parts of the tests (checkins, whose tests are split)." in capsys.readouterr().out
    result = json.loads((tmp_path / "ads-min-ctr.json").read_text())
    assert result["rows"][0]["coverage"]["value"] > 0.5
