"""`reticent mask audit`: what it says of days, as text, CSV, picture and JSON."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from reticent.randomness import seeded
from reticent_client import MarkovChain, MaskIt, Policy, audit, ceiling, simulatable
from reticent_client.mask.occupancy import release_probabilities
from reticent_client.mask.policy import VectorPolicy
from reticent_client.mask.provenance import Provenance
from tests.client.commands import Run, days, furnish, lines, runner
from tests.client.mask import chains

PNG = b"\x89PNG\r\n\x1a\n"

WEEK = """\
day,step,context
2027-02-01,0,s
2027-02-01,1,s
2027-02-02,0,s
2027-02-02,1,x
2027-02-03,0,x
2027-02-03,1,
2027-02-04,0,x
2027-02-04,1,x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, in which we are; `stay.npz` suppresses step 0, and knows nobody who moves."""
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    chain = MarkovChain(["x", "s"], [0.5, 0.5], [[[1, 0], [0, 1]]])
    deltas = np.array([[np.nan, 0.2], [np.nan, 0.2]])
    VectorPolicy(Provenance("by hand", chain, deltas, (), 0.5), np.array([[1, 1], [0, 1.0]])).save("stay.npz")
    (tmp_path / "week.csv").write_text(WEEK)
    return tmp_path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program, in this process."""
    return runner(folder, monkeypatch, capsys)


def test_days_on_and_off_the_model_are_judged_apart(run: Run) -> None:
    """A count of breaches off the model says that nothing is promised; breaches are listed by date and time."""
    said = run("audit", "stay.npz", "week.csv", "--seed", "1", code=1)
    assert (
        lines(said.stdout)
        == """\
check     by hand
expected  0.50 contexts a day
seeded    for simulation only

                           on the model               off the model
days                       2 of 2 steps               2 of 2 steps
released                   1 of 4 (25%) contexts      1 of 3 (33.3%) contexts
released a day             0.50 contexts              0.50 contexts
suppressed                 3 contexts                 2 contexts
off-model                  0 contexts, 0 gaps         0 contexts, 1 gaps
after lost memory          0 contexts                 0 contexts
gaps                       0, 0 of them released      1, 0 of them released
impossible outputs         0                          0
sensitive visits           2                          1
breaches                   2                          0, with no promise
largest gain               0.500: 's', 2027-02-01     0.500: 's', 2027-02-03
                           00:00                      00:00
largest gain at some step  0.500: 's', 2027-02-01     0.500: 's', 2027-02-03

Nothing is promised for days off the model: the chain rules them out.

Breaches: visits at which the belief in the context rose by more than delta.

day         time   context  gain
2027-02-01  00:00  s        0.500  on the model
2027-02-01  12:00  s        0.500  on the model
""".splitlines()
    )


def test_an_audit_counts_by_the_policys_weights(run: Run, folder: Path) -> None:
    """What is expected and what came are in the same measure."""
    simulatable(chains.two_paths(), sensitive={"s"}, delta=0.1, weights={"a": 0.5, "j": 0}).save(folder / "w.npz")
    said = lines(run("audit", "w.npz", "days.csv", "--seed", "1").stdout)
    policy, real = Policy.load(folder / "w.npz"), days(20)
    assert said[1:4] == [
        f"expected             {release_probabilities(policy).sum():.2f} contexts a day",
        "weights              a 0.5, j 0",
        f"expected by weights  {policy.utility:.2f} a day",
    ]
    facts = json.loads(run("audit", "w.npz", "days.csv", "--seed", "1", "--json").stdout)
    mask = MaskIt(policy, seeded(1))
    worth = sum(policy.weights[label] for day in real for label in mask.filter_day(day.labels) if label is not None)
    assert facts["on_model"]["worth"] == worth
    assert f"released by weights        {worth / 20:.2f} a day" in "\n".join(said)


def test_no_breach_is_said_of_no_promise(run: Run) -> None:
    """Where every day leaves the chain, the column of the promise is empty."""
    header = "day,step,context\n"
    said = run("audit", "stay.npz", stdin=f"{header}mon,0,s\nmon,1,x\n")
    assert "breaches                   -             0, with no promise" in lines(said.stdout)


def test_an_audit_by_day_and_by_time(run: Run) -> None:
    by_day = lines(run("audit", "stay.npz", "week.csv", "--by", "day", code=1).stdout)
    assert (
        by_day[-5:]
        == """\
day                        released      visits  breaches  largest gain
2027-02-01  on the model   0 of 2 (0%)   2       2         0.500
2027-02-02  off the model  1 of 2 (50%)  1       0         -0.500
2027-02-03  off the model  0 of 1 (0%)   0       0         0.500
2027-02-04  on the model   1 of 2 (50%)  0       0         -0.500
""".splitlines()
    )
    by_time = lines(run("audit", "stay.npz", "week.csv", "--by", "time", code=1).stdout)
    assert (
        by_time[-5:]
        == """\
time                  released       visits  breaches  largest gain
00:00  on the model   0 of 2 (0%)    1       1         0.500
12:00  on the model   1 of 2 (50%)   1       1         0.500
00:00  off the model  0 of 2 (0%)    1       0         0.500
12:00  off the model  1 of 1 (100%)  0       0         0.500
""".splitlines()
    )


def test_an_audit_by_day_and_by_time_as_json(run: Run) -> None:
    """The groups of the text, as numbers."""
    facts = json.loads(run("audit", "stay.npz", "week.csv", "--by", "day", "--json", code=1).stdout)
    assert [group["name"] for group in facts["by_day"]] == [f"2027-02-0{number}" for number in range(1, 5)]
    assert facts["by_day"][1] == {
        "name": "2027-02-02",
        "on_model": False,
        "contexts": 2,
        "released": 1,
        "visits": 1,
        "breaches": 0,
        "largest_gain": -0.5,
    }
    facts = json.loads(run("audit", "stay.npz", "week.csv", "--by", "time", "--json", code=1).stdout)
    found = [(group["name"], group["on_model"], group["breaches"]) for group in facts["by_time"]]
    assert found == [("00:00", True, 1), ("12:00", True, 1), ("00:00", False, 0), ("12:00", False, 0)]
    assert "by_day" not in facts


def test_an_audit_as_csv(run: Run, folder: Path) -> None:
    """A line for each step, from which anything can be counted again."""
    run("audit", "stay.npz", "week.csv", "--csv", "steps.csv", code=1)
    with (folder / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[1] == {
        "day": "2027-02-01",
        "step": "1",
        "time": "12:00",
        "model": "on",
        "context": "s",
        "outcome": "suppressed",
        "output": "",
        "visit": "1",
        "breach": "1",
        "largest_gain": "0.500000",
        "gain_context": "s",
    }
    assert [row["outcome"] for row in rows[4:]] == ["suppressed", "missing", "suppressed", "released"]
    assert [row["model"] for row in rows[::2]] == ["on", "off", "off", "on"]


def test_an_audit_as_a_picture(run: Run, folder: Path) -> None:
    run("audit", "stay.npz", "week.csv", "--picture", "week.png", code=1)
    assert (folder / "week.png").read_bytes().startswith(PNG)


def test_a_picture_without_matplotlib(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named, before anything is computed."""
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "reticent_client.pictures."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = run("audit", "stay.npz", "week.csv", "--picture", "week.png", code=2)
    assert "pip install 'reticent[plot]'" in said.stderr
    assert not (folder / "week.png").exists()


def test_an_audit_without_breaches(run: Run, folder: Path) -> None:
    """Exits with 0."""
    facts = json.loads(run("audit", "private.npz", "days.csv", "--seed", "1", "--json").stdout)
    policy, real = Policy.load(folder / "private.npz"), days(20)
    expected = audit(policy, [day.labels for day in real], names=[day.name for day in real], rng=seeded(1))
    assert facts == json.loads(json.dumps(expected.to_json()))
    assert facts["on_model"]["days"] == 20


def test_the_distance_to_the_ceiling(run: Run, folder: Path) -> None:
    """Computed when it is asked for."""
    most = ceiling(chains.two_paths(), sensitive={"s"}, delta=0.1)
    policy = Policy.load(folder / "private.npz")
    said = run("audit", "private.npz", "days.csv", "--ceiling")
    assert f"at most possible  {most:.2f} contexts a day ({policy.utility / most:.0%} reached)" in said.stdout
    facts = json.loads(run("audit", "leaky.npz", "days.csv", "--ceiling", "--delta", "0.1", "--json", code=1).stdout)
    assert facts["ceiling"] == pytest.approx(most)
    assert json.loads(run("audit", "private.npz", "days.csv", "--json").stdout)["ceiling"] is None


def test_the_ceiling_of_another_promise(run: Run, folder: Path) -> None:
    """A policy made against somebody else may release more than the user's own chain allows."""
    uniform = MarkovChain.uniform(chains.two_paths().contexts, 3)
    simulatable(chains.two_paths(), sensitive={"s"}, delta=0.1, against=[uniform]).save(folder / "other.npz")
    said = run("audit", "other.npz", "days.csv", "--ceiling", code=2)
    assert said.stderr == "reticent: --ceiling is for policies made against the user's own chain\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("leaky.npz days.csv", "--delta is missing: a mask_sensitive policy has none of its own"),
        ("private.npz days.csv --delta 0", "delta must lie in (0, 1): got 0.0"),
        ("private.npz long.csv", "long.csv:3: step 3 lies outside the day of 3 steps"),
        ("private.npz short.csv", "short.csv: the days have 2 steps where 3 are expected"),
        ("private.npz empty.csv", "empty.csv: there are no days to audit"),
        (
            "private.npz other.csv",
            (
                "other.csv: the policy does not know the contexts of 2 of 3 readings, such as 'gym': "
                "give days with the contexts of its chain"
            ),
        ),
        ("private.npz days.csv --csv days.csv", "days.csv would overwrite the input days.csv: name another output"),
        ("private.npz days.csv --picture none/x.png", "none/x.png: No such file or directory"),
    ],
)
def test_bad_input(run: Run, folder: Path, arguments: str, said: str) -> None:
    """Exits with 2 and one sentence, and writes nothing."""
    header = "day,step,context\n"
    (folder / "long.csv").write_text(f"{header}mon,0,a\nmon,3,a\n")
    (folder / "short.csv").write_text(f"{header}mon,0,a\nmon,1,s\ntue,0,a\ntue,1,s\n")
    (folder / "other.csv").write_text(f"{header}mon,0,a\nmon,1,gym\nmon,2,pool\n")
    (folder / "empty.csv").write_text(header)
    before = sorted(folder.iterdir())
    done = run("audit", *arguments.split(), code=2)
    assert (done.stdout, done.stderr) == ("", f"reticent: {said}\n")
    assert sorted(folder.iterdir()) == before
