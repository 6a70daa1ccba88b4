"""What `reticent mask` answers, and what it refuses."""

import inspect
import json
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, ceiling, mask_sensitive
from reticent_client.cli import policy as policy_command
from reticent_client.cli.policy import make_policy
from reticent_client.mask.checks.registry import CHECKS
from reticent_client.mask.days_file import DayRecord, read_days
from reticent_client.mask.policy import VectorPolicy
from tests.client.commands import Run, days, furnish, lines, runner
from tests.client.mask import chains


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, in which we are."""
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program, in this process."""
    return runner(folder, monkeypatch, capsys)


# Policies


@pytest.mark.parametrize(
    "options",
    [
        ["--check", "simulatable", "--plan", "best"],
        ["--check", "probabilistic", "--search", "exact", "--grid", "2"],
        ["--check", "probabilistic", "--grid", "4"],
        [],
        ["--check", "hybrid", "--effort", "2"],
        ["--check", "adaptive", "--time-limit", "60"],
        ["--check", "adaptive", "--against", "chain.json", "uniform.json"],
        ["--check", "optimal", "--effort", "1"],
    ],
    ids=" ".join,
)
def test_every_check(run: Run, folder: Path, options: list[str]) -> None:
    """The file holds the policy that the check gives, and the answer says what it releases."""
    chain = chains.two_paths()
    MarkovChain.uniform(chain.contexts, 3).save(folder / "uniform.json")
    done = run("policy", "chain.json", "--sensitive", "s", "--delta", "0.2", *options, "-o", "p.npz", "--json")
    policy, facts = Policy.load(folder / "p.npz"), json.loads(done.stdout)
    assert policy.check == (options[1] if "--check" in options else "adaptive")
    assert policy.sensitive == {"s": 0.2}
    assert len(policy.against) == 2 if "--against" in options else policy.against == (policy.chain,)
    assert facts["utility"] == policy.utility > 0
    assert facts["ceiling"] == policy.ceiling
    assert facts["complete"] is True
    assert [row["context"] for row in facts["contexts"]] == list(policy.contexts)
    assert sum(row["expected"] for row in facts["contexts"]) == pytest.approx(3)
    assert sum(row["released"] for row in facts["contexts"]) == pytest.approx(policy.utility)


def test_a_policy_in_words(run: Run, folder: Path) -> None:
    """How much, how near to the most that is possible, and what is suppressed."""
    chains.coin().save(folder / "coin.json")
    done = run("policy", "coin.json", "--sensitive", "s", "--delta", "0.25", "--check", "optimal", "-o", "p.npz")
    assert lines(done.stdout) == [
        "optimal: releases 0.33 of 1.00 contexts on an average day (33.3%)",
        "No private policy releases more.",
        "Most suppressed contexts:",
        "",
        "context  steps a day  suppressed",
        "s        0.50         100%",
        "x        0.50         33.3%",
    ]
    assert done.stderr == ""


def test_a_policy_is_about_contexts(run: Run, folder: Path) -> None:
    """Gaps are not counted as contexts; what is released of them stands beside."""
    MarkovChain.fit([["s", None], ["x", None], ["x", "x"], ["x", "x"]]).save(folder / "gaps.json")
    done = run("policy", "gaps.json", "--sensitive", "s", "--delta", "0.2", "-o", "p.npz")
    policy = Policy.load(folder / "p.npz")
    assert policy.readings == 1.5
    assert policy.utility <= policy.readings
    assert lines(done.stdout)[0].startswith(
        f"adaptive: releases {policy.utility:.2f} of 1.50 contexts on an average day"
    )
    assert lines(done.stdout)[1].startswith("Of 0.50 steps without a reading, ")
    assert "unknown  " not in done.stdout


def test_contexts_have_weights(run: Run, folder: Path) -> None:
    """The policy is the best for what the user cares for, and keeps the weights."""
    asked = ["policy", "chain.json", "--sensitive", "s", "--delta", "0.1", "--check", "optimal"]
    plain = json.loads(run(*asked, "-o", "p.npz", "--json").stdout)
    done = run(*asked, "--weight", "a=0", "--weight", "k=0.5", "-o", "w.npz")
    policy = Policy.load(folder / "w.npz")
    assert policy.weights == {"a": 0, "b": 1, "s": 1, "z": 1, "w": 1, "j": 1, "k": 0.5}
    assert f"Weighted by a 0, k 0.5: {policy.utility:.2f} of {policy.readings:.2f}" in done.stdout
    unweighted = sum(row["released"] * policy.weights[row["context"]] for row in plain["contexts"])
    assert policy.utility > unweighted


def test_the_default_says_what_a_longer_search_may_add(run: Run, folder: Path) -> None:
    most = ceiling(chains.two_paths(), sensitive={"s"}, delta=0.1)
    done = run("policy", "chain.json", "--sensitive", "s", "--delta", "0.1", "-o", "p.npz")
    found = Policy.load(folder / "p.npz")
    assert found.check == "adaptive"
    assert lines(done.stdout)[1] == (
        f"No private policy releases more than {most:.2f}: --check optimal may add up to {most - found.utility:.2f}."
        if most - found.utility > 0.005
        else "No private policy releases more."
    )
    published = run("policy", "chain.json", "--sensitive", "s", "--delta", "0.1", "--check", "hybrid", "-o", "h.npz")
    assert "No private policy" not in published.stdout


def test_a_search_that_was_cut_short(run: Run, folder: Path) -> None:
    """It is said."""
    options = ["--check", "hybrid", "--time-limit", "0"]
    done = run("policy", "chain.json", "--sensitive", "s", "--delta", "0.1", *options, "-o", "p.npz")
    assert "The search was cut short. The policy is private" in done.stdout
    assert not Policy.load(folder / "p.npz").complete


def test_a_slow_search_tells_how_to_stop_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no limit unless one is given."""
    monkeypatch.setattr(policy_command, "SLOW", 0.0)
    asked = ["policy", "chain.json", "--sensitive", "s", "--delta", "0.1", "-o", "p.npz"]
    assert "--time-limit stops the search earlier" in run(*asked).stderr
    assert run(*asked, "--time-limit", "60").stderr == run(*asked, "--check", "simulatable").stderr == ""


def test_what_is_sensitive(run: Run, folder: Path) -> None:
    """Contexts, contexts of a step, and contexts whose name looks like one."""
    layers = {"a": {"2:a": 1.0}}
    chains.layered({"a": 0.5, "1:a": 0.5}, layers, {}).save(folder / "odd.json")
    named = ["--sensitive", "1:a", "--sensitive", "0:a", "--sensitive", "1:2:a"]
    run("policy", "odd.json", *named, "--delta", "0.2", "-o", "p.npz")
    assert Policy.load(folder / "p.npz").sensitive == {"1:a": 0.2, (0, "a"): 0.2, (1, "2:a"): 0.2}


def test_the_command_line_offers_every_registered_check_with_all_its_options() -> None:
    parameters = inspect.signature(make_policy).parameters
    assert get_args(get_type_hints(make_policy)["check"]) == tuple(CHECKS)
    assert set().union(*(check.options for check in CHECKS.values())) <= parameters.keys()


def test_what_was_fitted_as_json(run: Run) -> None:
    facts = json.loads(run("fit", "days.csv", "-o", "c.json", "--json").stdout)
    assert (facts["kind"], facts["days"], facts["steps"]) == ("chain", 20, 3)
    assert run("fit", "days.csv", "-o", "c.json").stdout == ""


# Filters


def test_a_filter_s_report_as_json(run: Run) -> None:
    """On standard output, unless that holds the days."""
    written = run("filter", "private.npz", "days.csv", "--seed", "7", "-o", "out.csv", "--json")
    piped = run("filter", "private.npz", "days.csv", "--seed", "7", "--json")
    assert written.stderr == ""
    assert json.loads(written.stdout) == json.loads(piped.stderr)
    assert json.loads(written.stdout)["days"] == 20


def test_released_gaps_are_told_beside_what_is_released(run: Run) -> None:
    """They are no contexts, whether they are released or suppressed."""
    policy = mask_sensitive(MarkovChain.fit([["s", None], ["x", "x"]]), sensitive={"s"})
    policy.save("gaps.npz")
    done = run("filter", "gaps.npz", stdin="day,step,context\nmon,0,x\nmon,1,x\ntue,0,s\ntue,1,\n")
    assert done.stderr == "2 days: released 2 of 3 contexts (67%), suppressed 1, 1 of 1 gaps released as 'unknown'\n"
    VectorPolicy(policy.provenance, np.ones((2, 3))).save("silent.npz")
    done = run("filter", "silent.npz", "--json", stdin="day,step,context\nmon,0,x\nmon,1,\n")
    facts = json.loads(done.stderr)
    assert (facts["contexts"], facts["released_contexts"], facts["suppressed"]) == (1, 0, 2)
    assert facts["gaps"] == {"suppressed": 1}


def test_a_seeded_filter_says_so(run: Run, folder: Path) -> None:
    """In its output and its report; the output is read as days again."""
    first = run("filter", "private.npz", "days.csv", "--seed", "7")
    assert first.stdout.startswith("# seeded with 7: for simulation only\nday,step,context\n")
    assert first.stderr.endswith("; seeded, for simulation only\n")
    assert run("filter", "private.npz", "days.csv", "--seed", "7").stdout == first.stdout
    mask = MaskIt(Policy.load(folder / "private.npz"), seeded(7))
    expected = [DayRecord(day.name, mask.filter_day(day.labels)) for day in days(20)]
    assert read_days(first.stdout.splitlines(keepends=True), "stdout", 3) == expected
    run("audit", "private.npz", stdin=first.stdout)


def test_surprises_are_reported(run: Run) -> None:
    """And suppressed."""
    done = run("filter", "leaky.npz", stdin="day,step,context\nmon,0,a\nmon,1,gym\nmon,2,\n")
    assert done.stdout == "day,step,context\nmon,0,a\nmon,1,\nmon,2,\n"
    assert done.stderr == (
        "1 day: released 1 of 2 contexts (50%), suppressed 0, off-model 1, 0 of 1 gaps released as 'unknown'; "
        "off-model contexts: 'gym' 1\n"
    )


# Explanations


def test_an_explanation_in_words(run: Run) -> None:
    """The time, the last release, and a reason for each context that is possible then."""
    done = run("explain", "private.npz", "--at", "08:30", "--released", "00:00=a")
    assert lines(done.stdout) == [
        "At 08:00 (step 1), when 'a' was released last, at 00:00:",
        "",
        "context  suppressed  why",
        "s        100%        releasing would raise the belief in 's' at 08:00 from 47%",
        "                     to 100% (limit 57%)",
        "z        100%        cover: releasing raises the belief in 's' at 16:00 from 0%",
        "                     to at most 0% (limit 10%); but if it were always released,",
        "                     suppressing it would raise the belief in 's' at 08:00 from",
        "                     47% to 100% (limit 57%)",
        "",
        "Ruled out by the chain, and suppressed as off-model if they occur: 'a', 'b',",
        "'w', 'j', 'k'.",
    ]


def test_the_most_likely_release(run: Run) -> None:
    """Where none is given."""
    done = run("explain", "private.npz", "--at", "1", "--context", "s")
    assert lines(done.stdout)[:2] == [
        "At 08:00 (step 1), when 'a' was released last, at 00:00 (the most likely case,",
        "90% of days):",
    ]
    assert "z " not in done.stdout


def test_an_explanation_as_json(run: Run) -> None:
    """With all the numbers."""
    done = run("explain", "private.npz", "--at", "23:59", "--released", "0=a", "--context", "j", "--json")
    facts = json.loads(done.stdout)
    assert (facts["step"], facts["released"], facts["likelihood"]) == (2, [0, "a"], None)
    (found,) = facts["contexts"]
    assert (found["context"], found["suppression"], found["reason"]) == ("j", 1.0, "reveals")
    assert found["release"]["belief"] == pytest.approx(1.0)


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("policy chain.json --sensitive s -o p.npz", "--delta is missing: the check adaptive needs it"),
        ("policy chain.json --sensitive s --delta 2 -o p.npz", "delta must lie in (0, 1): got 2.0"),
        (
            "policy chain.json --sensitive s --delta .1 --plan best -o p.npz",
            "--plan is no option of the check adaptive: it is for simulatable",
        ),
        (
            "policy chain.json --sensitive s --check mask_sensitive --delta .1 -o p.npz",
            (
                "--delta is no option of the check mask_sensitive: "
                "it is for simulatable, probabilistic, hybrid, adaptive, optimal"
            ),
        ),
        (
            "policy chain.json --sensitive s --check simulatable --delta .1 --time-limit 1 -o p.npz",
            "--time-limit is no option of the check simulatable: it is for hybrid, adaptive, optimal",
        ),
        (
            "policy chain.json --sensitive gym --delta .1 -o p.npz",
            "unknown context 'gym': this chain has 'a', 'b', 's', 'z', 'w', 'j', 'k'",
        ),
        (
            "policy chain.json --sensitive 9:s --delta .1 -o p.npz",
            "sensitive step 9 lies outside the day of 3 steps",
        ),
        (
            "policy chain.json --sensitive s --delta .1 --weight gym=1 -o p.npz",
            "unknown context 'gym': this chain has 'a', 'b', 's', 'z', 'w', 'j', 'k'",
        ),
        (
            "policy chain.json --sensitive s --delta .1 --weight a=1.5 -o p.npz",
            "the weight of 'a' must lie between 0 and 1: got 1.5",
        ),
        (
            "policy chain.json --sensitive s --delta .1 --weight a -o p.npz",
            "--weight is a context and a number, as in work=0.2: got 'a'",
        ),
        ("policy none.json --sensitive s --delta .1 -o p.npz", "cannot read none.json: No such file or directory"),
        ("policy days.csv --sensitive s --delta .1 -o p.npz", "days.csv: this is not a chain written by Reticent"),
        (
            "policy chain.json --sensitive s --delta .1 --against days.csv -o p.npz",
            "days.csv: this is not a chain written by Reticent",
        ),
        ("filter chain.json days.csv", "chain.json: this is not a policy written by Reticent"),
        ("filter none.npz days.csv", "cannot read none.npz: No such file or directory"),
        ("filter private.npz none.csv", "none.csv: No such file or directory"),
        ("filter private.npz chain.json", "chain.json:1: the first line must be day,step,context"),
        ("filter private.npz long.csv", "long.csv:3: step 3 lies outside the day of 3 steps"),
        ("filter private.npz", "standard input:1: the first line must be day,step,context"),
        ("filter private.npz days.csv -o none/out.csv", "none/out.csv: No such file or directory"),
        ("explain private.npz --at noon", "a step is a time of day such as 08:30, or a number: got 'noon'"),
        ("explain private.npz --at 24:00", "24:00 is no time of day"),
        ("explain private.npz --at 3", "step 3 lies outside the day of 3 steps"),
        (
            "explain private.npz --at 1 --released 00:00",
            "--released is a time and a context, as in 08:00=home, or start: got '00:00'",
        ),
        (
            "explain private.npz --at 1 --released start",
            "the policy always releases something between that release and step 1",
        ),
        (
            "explain private.npz --at 1 --context gym",
            "unknown context 'gym': this chain has 'a', 'b', 's', 'z', 'w', 'j', 'k'",
        ),
        ("policy chain.json --sensitive s --delta .1 -o none/p.npz", "none/p.npz: No such file or directory"),
        ("fit none.csv -o c.json", "none.csv: No such file or directory"),
        ("fit empty.csv -o c.json", "fit needs at least one day: got none"),
        (
            "policy chain.json --sensitive s --delta .1 -o ./chain.json",
            "chain.json would overwrite the input chain.json: name another output",
        ),
        (
            "policy chain.json --sensitive s --delta .1 --against link.json -o link.json",
            "link.json would overwrite the input chain.json: name another output",
        ),
        ("fit days.csv -o days.csv", "days.csv would overwrite the input days.csv: name another output"),
        (
            "filter private.npz days.csv -o private.npz",
            "private.npz would overwrite the input private.npz: name another output",
        ),
        (
            "filter private.npz days.csv -o days.csv",
            "days.csv would overwrite the input days.csv: name another output",
        ),
        ("fit days.csv -o c.json --smoothing -1", "smoothing must be a number of at least 0: got -1.0"),
    ],
)
def test_bad_input(run: Run, folder: Path, arguments: str, sentence: str) -> None:
    """Exits with 2 and one sentence, and writes nothing."""
    (folder / "long.csv").write_text("day,step,context\nmon,0,a\nmon,3,a\n")
    (folder / "empty.csv").write_text("day,step,context\n")
    (folder / "link.json").symlink_to("chain.json")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = run(*arguments.split(), code=2)
    assert (done.stdout, done.stderr) == ("", f"reticent: {sentence}\n")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_labels_are_not_markup(run: Run, folder: Path) -> None:
    """Whatever a label is made of, it is printed as it is."""
    chain = chains.layered({"[red]a[/red]": 0.5, ":smile:": 0.5})
    chain.save(folder / "odd.json")
    done = run("policy", "odd.json", "--sensitive", ":smile:", "--delta", "0.1", "-o", "p.npz")
    assert "[red]a[/red]" in done.stdout
    assert ":smile:" in done.stdout
    assert "[red]a[/red]" in run("explain", "p.npz", "--at", "0").stdout
