"""`reticent mask learn`, run as people run it."""

import contextlib
import datetime as dt
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from reticent.console.program import main
from reticent_client import MarkovChain
from reticent_client.habits.learning import learn
from reticent_client.habits.sampling import Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.mask.days_file import read_days

HOUR = dt.timedelta(hours=1)
DAYS = 42

Run = Callable[..., tuple[int, str, str]]


def context(user: str, date: dt.date, hour: int) -> str:
    """Where somebody is."""
    if date.weekday() >= 5:
        return "lake" if 12 <= hour < 15 + (date.day % 3 == 0) else "home"
    if user == "bob":
        return "work" if hour >= 20 else "home"
    return "clinic" if hour == 10 and date.day % 4 == 0 else "work" if 9 <= hour < 17 else "home"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the traces of two people, and of one of them."""
    dates = [dt.date(2027, 5, 3) + k * dt.timedelta(days=1) for k in range(DAYS)]
    rows = {
        user: [f"{user},{date}T{hour:02}:00,{context(user, date, hour)}" for date, hour in product(dates, range(24))]
        for user in ("ada", "bob")
    }
    for name, lines in {"both": rows["ada"] + rows["bob"], "ada": rows["ada"], "few": rows["ada"][: 24 * 5]}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,time,context", *lines, ""]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in that folder: its exit code, what it said, and its errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with contextlib.chdir(folder):
            code = main(["mask", "learn", *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_chain_is_learned_and_what_was_learned_is_said(run: Run) -> None:
    code, output, errors = run("ada.csv", "-o", "chain.json", "--lead", "0s")
    assert (code, errors) == (0, "")
    days = Sampling(lead=dt.timedelta()).days(read_traces("ada.csv")).days
    assert MarkovChain.load("chain.json").to_json() == learn(days).chain.to_json()
    assert [" ".join(line.split()) for line in output.splitlines()] == [
        "days 42, 0 more left out",
        "learned from 21 days",
        "contexts 4: clinic, home, lake, work",
        "steps 24 a day",
        "tested on 21 days",
        "off-model 0 of 504 steps (0%)",
        "log-likelihood " + output.split("log-likelihood")[1].strip(),
    ]


def test_the_same_for_machines(run: Run) -> None:
    code, output, _ = run(
        "both.csv", "--user", "bob", "-o", "chain.json", "--json", "--smoothing", "0", "--train", "0.75", "--lead", "0s"
    )
    assert code == 0
    facts = json.loads(output)
    assert (facts["users"], facts["days"], facts["trained"], facts["few"]) == (1, 42, 31, False)
    assert facts["chains"]["day"] == {
        "steps": 24,
        "contexts": ["home", "lake", "work"],
        "days": 31,
        "few": False,
    }
    assert facts["evaluation"]["days"] == 11
    assert facts["evaluation"]["off_model_share"] == facts["evaluation"]["off_model"] / (11 * 24)


def test_weekdays_and_weekends_go_to_files_of_their_own_and_so_do_their_judged_days(run: Run, folder: Path) -> None:
    outputs = ["-o", "weekday.json", "--weekend", "weekend.json", "--days", "d.csv", "--weekend-days", "e.csv"]
    code, output, _ = run("ada.csv", *outputs)
    assert code == 0
    assert "21 days: 15 weekdays, 6 weekends" in output
    weekday, weekend = MarkovChain.load("weekday.json"), MarkovChain.load("weekend.json")
    noon = 12
    assert weekday.prior[noon, weekday.index("work")] > 0.8
    assert weekend.prior[noon, weekend.index("work")] < 0.2
    for name, kind in (("d.csv", range(5)), ("e.csv", (5, 6))):
        with (folder / name).open(newline="") as file:
            days = read_days(file, name, 24)
        assert len(days) == 3 * len(kind)
        assert all(dt.date.fromisoformat(day.name).weekday() in kind for day in days)


def test_what_was_learned_goes_through_policy_and_audit(run: Run) -> None:
    """The judged days are days for the other commands."""
    assert run("ada.csv", "-o", "chain.json", "--days", "days.csv", "--step", "2h", "--lead", "0s")[0] == 0
    options = ["--sensitive", "clinic", "--delta", "0.1", "-o", "policy.npz"]
    assert main(["mask", "policy", "chain.json", *options]) == 0
    assert main(["mask", "audit", "policy.npz", "days.csv"]) == 0


def test_everybody_s_days_make_a_population_s_chain_from_which_a_user_may_start(run: Run) -> None:
    code, output, errors = run("both.csv", "--all", "-o", "population.json", "--days", "days.csv", "--lead", "0s")
    assert (code, errors) == (0, "")
    assert "84 of 2 users" in output
    with Path("days.csv").open(newline="") as file:
        assert len(read_days(file, "days.csv", 24)) == 42
    code, output, errors = run("few.csv", "-o", "chain.json", "--population", "population.json", "--lead", "0s")
    assert code == 0
    assert errors == "warning: 2 days to learn from, fewer than 14: expect fewer releases than the policy states\n"
    assert "lake" in MarkovChain.load("chain.json").contexts  # where ada was not, on these days


def test_few_contexts_steps_and_zones_are_chosen(run: Run) -> None:
    days = ["--step", "30min", "--hold", "1h", "--lead", "0s", "--zone", "Asia/Tokyo"]
    code, _, _ = run("ada.csv", "-o", "c.json", "--top", "2", *days)
    assert code == 0
    chain = MarkovChain.load("c.json")
    assert (chain.contexts, chain.horizon) == (("home", "other", "work"), 48)


BAD: dict[str, tuple[str, str]] = {
    "no such file": ("none.csv -o out", "none.csv: No such file or directory"),
    "several users": ("both.csv -o out", "both.csv holds 2 users: choose one with --user, or pool them with --all"),
    "an unknown user": ("both.csv -o out --user eve", "the traces have no user 'eve': they have 'ada', 'bob'"),
    "a user and all": ("both.csv -o out --user ada --all", "--all pools all users and --user selects one"),
    "too few days": ("few.csv -o out --weekend w", "2 days are too few to learn from, 14 are needed: collect more"),
    "a bad trace": ("bad.csv -o out", "bad.csv:3: a time is written as "),
    "a bad step": ("ada.csv -o out --step hour", "--step is a duration such as 1d, 90min or 30s: got 'hour'"),
    "an odd step": ("ada.csv -o out --step 7h", "a step must divide 24 hours"),
    "a bad hold": ("ada.csv -o out --hold 5", "--hold is a duration such as"),
    "a bad zone": ("ada.csv -o out --zone Mars", "unknown time zone 'Mars'"),
    "a bad share": ("ada.csv -o out --train 0", "train is the share of the days to learn from"),
    "no chain": ("ada.csv -o out --population ada.csv", "ada.csv: this is not a chain written by Reticent"),
    "another population": ("ada.csv -o out --population small.json", "chains of different numbers of steps"),
    "one file for two": ("ada.csv -o out --weekend ./out", "each output needs a file of its own"),
    "days of no weekend": ("ada.csv -o out --weekend-days w", "--weekend-days needs --weekend"),
    "one file for two, by a link": ("ada.csv -o out --weekend link", "each output needs a file of its own"),
    "the traces themselves": ("ada.csv -o ./ada.csv", "ada.csv would overwrite the input ada.csv"),
    "the population itself": (
        "ada.csv -o out --days ../{folder}/small.json --population small.json",
        "../{folder}/small.json would overwrite the input small.json",
    ),
    "a folder that is not there": ("ada.csv -o out --weekend none/w", "none/w: No such file or directory"),
    "a folder for a file": ("ada.csv -o out --days folder", "folder: Is a directory"),
    "a lead of a whole step": ("ada.csv -o out --lead 1h", "the lead must be shorter than a step of 1:00:00: got"),
    "a bad lead": ("ada.csv -o out --lead soon", "--lead is a duration such as"),
    "no output": ("ada.csv", 'Command "mask learn" parameter --output requires'),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(run: Run, folder: Path, kind: str) -> None:
    arguments, sentence = BAD[kind]
    (folder / "bad.csv").write_text("user,time,context\nada,2027-03-01T08:00,home\nada,noon,home\n")
    MarkovChain.fit([["a", "b"]]).save(folder / "small.json")
    (folder / "link").symlink_to("out")
    (folder / "folder").mkdir()
    before = everything(folder)
    code, out, errors = run(*arguments.format(folder=folder.name).split())
    assert (code, out) == (2, "")
    *notes, error = errors.splitlines()
    assert error.startswith(f"reticent: {sentence.format(folder=folder.name)}")
    assert all(
        note.startswith("note: 1008 of 1008 readings at the beginning of a step") for note in notes if "few" not in kind
    )
    assert everything(folder) == before


def everything(folder: Path) -> dict[Path, bytes | None]:
    """What is in a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("train", "warnings"),
    [
        ("0.12", {"weekend day": 0}),
        ("0.17", {"weekend day": 2}),
        ("0.5", {}),
    ],
)
def test_few_days_of_a_kind_are_warned_of(run: Run, train: str, warnings: dict[str, int]) -> None:
    """Of fewer than four; the traces begin on a Monday."""
    options = ["ada.csv", "-o", "d.json", "--weekend", "e.json", "--train", train, "--min-days", "1"]
    code, _, errors = run(*options)
    assert code == 0
    warned = [line for line in errors.splitlines() if "fewer than 4" in line]
    assert [line.split(" to learn")[0] for line in warned] == [
        f"warning: {count} {kind}{'' if count == 1 else 's'}" for kind, count in warnings.items()
    ]
    assert ("use the chain of all days" in errors) == (0 in warnings.values())
    code, output, _ = run(*options, "--json")
    few = {kind: each["few"] for kind, each in json.loads(output)["chains"].items()}
    assert few == {"weekday": False, "weekend": bool(warnings)}
    if warnings.get("weekend day") == 0:  # nothing is known of weekends, then, but what all days have in common
        assert MarkovChain.load("e.json").prior[12, MarkovChain.load("e.json").index("work")] > 0.5


def test_hourly_tables_are_read_as_they_stand_without_a_lead(run: Run) -> None:
    """Work begins at nine; a phone that decides a second before hears of it an hour later."""
    for lead, begins in (("0s", 9), ("1s", 10)):
        assert run("ada.csv", "-o", "c.json", "--lead", lead, "--smoothing", "0")[0] == 0
        chain = MarkovChain.load("c.json")
        at_work = chain.prior[:, chain.index("work")]
        assert at_work[begins] > 0.5 > at_work[begins - 1]


def test_an_output_that_was_there_stays_whole_when_nothing_is_learned(run: Run, folder: Path) -> None:
    (folder / "chain.json").write_text("what was there")
    assert run("few.csv", "-o", "chain.json")[0] == 2
    assert (folder / "chain.json").read_text() == "what was there"
