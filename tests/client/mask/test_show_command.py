"""`reticent mask show`: what a file is."""

import json
from pathlib import Path

import pytest

from reticent_client import FileStore, MarkovChain, MaskIt, Policy, ceiling, hybrid, mask_sensitive, optimal
from reticent_client.mask.occupancy import release_probabilities
from tests.client.commands import Run, furnish, lines, runner
from tests.client.mask import chains


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in a folder with files, in this process."""
    furnish(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def test_a_policy(run: Run) -> None:
    """The check, the promise, what it releases, and how far that is from the most that is possible."""
    policy = Policy.load("private.npz")
    most = ceiling(chains.two_paths(), sensitive={"s"}, delta=0.1)
    said = lines(run("show", "private.npz", "--ceiling").stdout)
    assert said[:10] == [
        "file              policy",
        "check             simulatable",
        "sensitive         's', delta 0.1",
        "adversaries       one, who knows the user's chain",
        "steps             3 a day",
        "contexts          7",
        f"releases          {policy.utility:.2f} of 3.00 contexts a day",
        f"at most possible  {most:.2f}, {most - policy.utility:.2f} more",
        "search            complete",
        f"fingerprint       {policy.fingerprint()[:8]}",
    ]
    assert said[11] == "context  steps a day  released"
    facts = json.loads(run("show", "private.npz", "--json").stdout)
    assert (facts["kind"], facts["sensitive"]) == ("policy", [{"context": "s", "delta": 0.1}])
    assert (facts["utility"], facts["ceiling"]) == (policy.utility, None)
    assert sum(each["released"] for each in facts["contexts"].values()) == pytest.approx(policy.utility)


def test_a_policy_with_weights_gaps_and_steps(run: Run) -> None:
    chain = MarkovChain.fit([["s", None], ["x", "x"], ["x", "x"]])
    hybrid(chain, sensitive={(1, "x"), "s"}, delta=0.2, weights={"x": 0.5}).save("p.npz")
    said = "\n".join(lines(run("show", "p.npz").stdout))
    assert "sensitive         's', delta 0.2\n" in said
    assert "sensitive         'x' at 12:00, delta 0.2\n" in said
    assert "weights           x 0.5\n" in said
    assert "of 0.33 steps a day released as 'unknown'\n" in said
    assert "at most possible  not known\n" in said


def test_weighted_numbers_have_rows_of_their_own(run: Run) -> None:
    """What is released is a number of contexts under any weights; the ceiling is by weights."""
    chain = chains.two_paths()
    policy = optimal(chain, sensitive={"s"}, delta=0.1, weights={"a": 0.2})
    policy.save("p.npz")
    said = lines(run("show", "p.npz").stdout)
    released = float(release_probabilities(policy).sum())
    assert released > policy.utility
    assert said[6:10] == [
        f"releases          {released:.2f} of 3.00 contexts a day",
        "weights           a 0.2",
        f"by weights        {policy.utility:.2f} of {policy.readings:.2f} a day",
        f"at most possible  {policy.ceiling:.2f} by weights, 0.00 more",
    ]


def test_a_policy_that_promises_nothing(run: Run) -> None:
    mask_sensitive(chains.coin(), sensitive={"s"}).save("leaky.npz")
    assert "'s', no promise" in run("show", "leaky.npz").stdout
    assert json.loads(run("show", "leaky.npz", "--json").stdout)["sensitive"] == [{"context": "s", "delta": None}]


def test_a_policy_without_a_promise_has_no_ceiling(run: Run) -> None:
    mask_sensitive(chains.coin(), sensitive={"s"}).save("leaky.npz")
    assert run("show", "leaky.npz", "--ceiling", code=2).stderr == (
        "reticent: --ceiling is for policies with a delta: mask_sensitive promises none, so it has no ceiling\n"
    )


def test_the_ceiling_that_policy_found_is_in_the_file(run: Run) -> None:
    """The number of `policy` is that of `show`; a search that is cut short gives a higher one, never a lower one."""
    chain = chains.two_paths()
    asked = ["policy", "chain.json", "--sensitive", "s", "--delta", "0.1", "-o", "p.npz"]
    run(*asked, "--time-limit", "0")
    loose = Policy.load("p.npz").ceiling
    run(*asked)
    policy = Policy.load("p.npz")
    most = ceiling(chain, sensitive={"s"}, delta=0.1)
    assert policy.ceiling == most
    assert loose is not None
    assert loose >= most
    assert f"at most possible  {most:.2f}, " in run("show", "p.npz").stdout
    for limit in ("0", "60"):
        found = json.loads(run("show", "p.npz", "--ceiling", "--time-limit", limit, "--json").stdout)
        assert found["ceiling"] == most


def test_a_search_for_the_ceiling_stops_after_its_time(run: Run) -> None:
    """The number that is known by then is a bound as well."""
    most = ceiling(chains.two_paths(), sensitive={"s"}, delta=0.1)
    found = json.loads(run("show", "private.npz", "--ceiling", "--time-limit", "0", "--json").stdout)
    assert most < found["ceiling"] <= 3
    refused = run("show", "private.npz", "--ceiling", "--time-limit", "-1", code=2)
    assert refused.stderr == "reticent: time_limit must be a number of seconds of at least 0: got -1.0\n"


def test_a_chain(run: Run) -> None:
    said = lines(run("show", "chain.json").stdout)
    assert said[:3] == ["file            chain", "steps           3 a day", "contexts        7"]
    assert next(line for line in said if line.startswith("a ")).split() == ["a", "0.90", "00:00", "(90%)"]
    facts = json.loads(run("show", "chain.json", "--json").stdout)
    assert (facts["kind"], facts["steps"]) == ("chain", 3)
    assert sum(facts["contexts"].values()) == pytest.approx(3)


def test_days(run: Run) -> None:
    said = lines(run("show", "days.csv").stdout)
    assert said[:3] == ["file      days", "days      20: day 0 to day 19", "steps     3 a day"]
    facts = json.loads(run("show", "days.csv", "--json").stdout)
    assert (facts["kind"], len(facts["days"]), sum(facts["contexts"].values())) == ("days", 20, 60)


def test_a_state(run: Run) -> None:
    policy = Policy.load("private.npz")
    MaskIt(policy, store=FileStore("state"), day="2027-02-01")
    assert "memory     lost: nothing is released until the day ends" in run("show", "state").stdout
    mask = MaskIt(policy, store=FileStore("state"), day="2027-02-02")
    mask.observe("a", step=0)
    facts = json.loads(run("show", "state", "--json").stdout)
    assert (facts["kind"], facts["day"], facts["next_step"], facts["suspended"]) == ("state", "2027-02-02", 1, False)
    assert facts["policy"] == policy.fingerprint()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "notes.txt",
            b"hello\n",
            "notes.txt is no chain, policy, state or days file: notes.txt:1: the first line",
        ),
        ("other.json", b'{"format": "x"}', "other.json is no chain, policy, state or days file: its format is 'x'"),
        ("cut.json", b'{"format": ', "cut.json: this is no JSON that Reticent wrote"),
        ("deep.json", b'{"a": ' * 100_000, "deep.json: this is no JSON that Reticent wrote: it is nested too deeply"),
        ("phone.db", b"SQLite format 3\0", "phone.db is the store of a phone: reticent phone report shows it"),
    ],
)
def test_other_files(run: Run, tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """Exits with 2 and one sentence."""
    (tmp_path / name).write_bytes(content)
    done = run("show", name, code=2)
    assert done.stderr.startswith(f"reticent: {said}")
    assert done.stderr.count("\n") == 1
