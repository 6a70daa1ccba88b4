"""`reticent mask compare`: all checks and several deltas, side by side."""

import json
import sys
from pathlib import Path

import pytest

from reticent_client import ceiling
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.comparison import compare
from reticent_client.mask.occupancy import release_probabilities
from tests.client.commands import Run, furnish, lines, runner
from tests.client.mask import chains

PNG = b"\x89PNG\r\n\x1a\n"
ASKED = ["compare", "chain.json", "--sensitive", "s", "--delta", "0.2", "--delta", "0.1"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in a folder with files, in this process."""
    furnish(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def test_all_checks_stand_in_one_table(run: Run) -> None:
    """A row for each check, a column for each delta, in order, with the time; the last row is the most possible."""
    said = lines(run(*ASKED).stdout)
    assert said[0] == "Released contexts of 3.00 on an average day:"
    assert said[2].split() == ["delta", "0.1", "delta", "0.2"]
    assert [line.split()[0] for line in said[3:10]] == [*CHECKS, "at"]
    chain = chains.two_paths()
    most = [f"{ceiling(chain, sensitive={'s'}, delta=delta):.2f}" for delta in (0.1, 0.2)]
    assert said[9].split() == ["at", "most", "possible", *most]
    row = next(line for line in said if line.startswith("hybrid")).split()
    policies = [CHECKS["hybrid"].policy(chain, {"s"}, delta) for delta in (0.1, 0.2)]
    assert [row[1], row[5]] == [f"{policy.utility:.2f}" for policy in policies]
    assert row[2] == f"({policies[0].utility / 3:.0%})"
    assert row[4] in {"s", "ms"}
    assert "mask_sensitive leaks: it promises no delta." in said


def test_weighted_numbers_stand_in_rows_of_their_own(run: Run) -> None:
    """The weights are named, and what is released is a number of contexts."""
    checks = ["--check", "hybrid", "--check", "optimal"]
    said = lines(run(*ASKED, *checks, "--weight", "a=0.5", "--weight", "j=0").stdout)
    policy = CHECKS["hybrid"].policy(chains.two_paths(), {"s"}, 0.1, weights={"a": 0.5, "j": 0})
    released = float(release_probabilities(policy).sum())
    assert said[:2] == [
        "Released contexts of 3.00 on an average day:",
        f"By weights (a 0.5, j 0), of {policy.readings:.2f}:",
    ]
    assert said[4].split()[:3] == ["hybrid", f"{released:.2f}", f"({released / 3:.0%})"]
    assert said[5].split()[:4] == [
        *("by", "weights"),
        *(f"{policy.utility:.2f}", f"({policy.utility / policy.readings:.0%})"),
    ]
    assert released > policy.utility
    assert said[8].split()[:5] == ["at", "most", "possible", "by", "weights"]


def test_a_comparison_as_json_and_picture(run: Run, tmp_path: Path) -> None:
    checks = ["--check", "adaptive", "--check", "optimal"]
    facts = json.loads(run(*ASKED, *checks, "--weight", "a=0.5", "--picture", "c.png", "--json").stdout)
    assert [(row["check"], row["delta"]) for row in facts["rows"]] == [
        ("adaptive", 0.1),
        ("adaptive", 0.2),
        ("optimal", 0.1),
        ("optimal", 0.2),
    ]
    assert all(row["complete"] and 0 < row["share"] <= 1 and row["seconds"] > 0 for row in facts["rows"])
    assert facts["rows"][0]["readings"] == pytest.approx(2.55)
    assert facts["rows"][0]["contexts"] == pytest.approx(3)
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_a_search_that_was_cut_short_is_marked(run: Run) -> None:
    said = run(*ASKED, "--check", "adaptive", "--time-limit", "0").stdout
    assert "%)+ " in said
    assert "+ The search was cut short" in said


def test_a_check_without_its_extra_is_left_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reticent_client.mask.planning.planner", None)
    said = run(*ASKED).stdout
    assert "optimal is left out: it needs pip install 'reticent[plan]'." in said
    assert "adaptive" in said


def test_every_policy_is_announced_before_it_is_computed() -> None:
    seen: list[tuple[str, float | None]] = []
    found = compare(chains.two_paths(), {"s"}, [0.1], progress=lambda check, delta: seen.append((check, delta)))
    assert seen == [(row.check, row.delta) for row in found]
    assert seen[0] == ("mask_sensitive", None)
