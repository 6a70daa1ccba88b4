"""`reticent mask`, run as people run it: its help, its streams and its exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reticent_client import MarkovChain
from reticent_client.mask.days_file import read_days
from tests.client.commands import days, furnish, lines

PROGRAM = Path(sys.executable).with_name("reticent")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files."""
    furnish(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs the program in that folder."""

    def run(*arguments: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAM, "mask", *arguments],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


# Help

HELP = {
    (): """\
Usage: reticent mask COMMAND

Compute, run, explain and audit what a phone releases or suppresses.

╭─ Commands ───────────────────────────────────────────────────────────────────╮
│ audit    Run a policy over days, and show what an adversary learned.         │
│ explain  Explain why a policy suppresses or releases each context at a step. │
│ filter   Run a policy over days. The output has the same form; a suppressed  │
│          step has an empty context.                                          │
│ fit      Learn a user's chain from days.                                     │
│ learn    Learn a user's chain from traces, and test it on the other days.    │
│ policy   Compute a policy, and show what it will release.                    │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("fit",): """\
Usage: reticent mask fit --output PATH [OPTIONS] [ARGS]

Learn a user's chain from days.

The days are not protected: policies made from the chain are public.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ DAYS  CSV with the header day,step,context; an empty context is a gap. The   │
│       default is standard input.                                             │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ *  --output -o PATH   The file for the chain. [required]                     │
│    --smoothing FLOAT  A number that is added to every count. [default: 0.0]  │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("learn",): """\
Usage: reticent mask learn --output PATH [OPTIONS] TRACES

Learn a user's chain from traces, and test it on the other days.

The traces are not protected: policies made from the chain are public.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  TRACES  CSV (also .csv.gz) or Parquet with the columns user, time and     │
│            context; times are ISO 8601. [required]                           │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ *  --output -o PATH     The file for the chain. [required]                   │
│    --weekend PATH       A file for a chain of weekends; output then gets the │
│                         chain of weekdays.                                   │
│    --user STR           The user to learn, if the traces hold several.       │
│    --all                Pool the days of all users into the chain of a       │
│                         population. [default: False]                         │
│    --zone STR           The user's time zone, such as Europe/Paris.          │
│    --step STR           The length of a step: 1h, 30min, 1h30min, 90s.       │
│                         [default: 1h]                                        │
│    --hold STR           How long a reading stays valid. The default is one   │
│                         step.                                                │
│    --lead STR           The phone decides a step this long before it begins. │
│                         Use 0s if readings are at the beginnings of steps,   │
│                         as in a table of hours. [default: 1s]                │
│    --min-filled FLOAT   The share of the steps that a day must have a        │
│                         context at, or it is left out. [default: 0.25]       │
│    --train FLOAT        The share of the days, from the first on, to learn   │
│                         from. The other days are test days. [default: 0.5]   │
│    --min-days INT       How many days must be learned from where there is no │
│                         population's chain. [default: 14]                    │
│    --top INT            Keep the labels of this many contexts, the most      │
│                         visited ones. The others become "other".             │
│    --smoothing FLOAT    The number of unseen days to add, of the population  │
│                         or of the user an hour earlier or later. [default:   │
│                         2.0]                                                 │
│    --population PATH    The chain of other people, which completes that of   │
│                         the user.                                            │
│    --days PATH          A file for the test days, as CSV for audit; with     │
│                         --weekend, for those on weekdays.                    │
│    --weekend-days PATH  With --weekend, a file for the test days on          │
│                         weekends.                                            │
│    --json               Write JSON. [default: False]                         │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("policy",): """\
Usage: reticent mask policy --sensitive STR... --output PATH [OPTIONS] CHAIN

Compute a policy, and show what it will release.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  CHAIN  The user's chain, from fit or learn. [required]                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ *  --sensitive STR...  A sensitive context: LABEL, or STEP:LABEL for one     │
│                        step. May be repeated. [required]                     │
│ *  --output -o PATH    The file for the policy. [required]                   │
│    --check CHOICE      The algorithm that computes the policy. [choices:     │
│                        mask_sensitive, simulatable, probabilistic, hybrid,   │
│                        adaptive, optimal] [default: hybrid]                  │
│    --delta FLOAT       The most by which the belief in a sensitive context   │
│                        may rise.                                             │
│    --plan CHOICE       Where simulatable releases: at the first safe step,   │
│                        or at the safe steps that release most. [choices:     │
│                        greedy, best]                                         │
│    --search CHOICE     How probabilistic searches. [choices: greedy, exact]  │
│    --grid INT          The number of parts into which probabilistic divides  │
│                        a probability.                                        │
│    --effort INT        The number of rounds that a check searches.           │
│    --time-limit FLOAT  The number of seconds after which a search stops.     │
│    --against PATH...   The chains that adversaries may know for certain, in  │
│                        place of the user's own.                              │
│    --json              Write JSON. [default: False]                          │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("filter",): """\
Usage: reticent mask filter [OPTIONS] POLICY [ARGS]

Run a policy over days. The output has the same form; a suppressed step has an
empty context.

A report goes to standard error.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  POLICY  The policy. [required]                                            │
│    DAYS    CSV with the header day,step,context; an empty context is a gap.  │
│            The default is standard input.                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --seed INT        A seed for the coins. For simulation only: anyone who      │
│                   knows the seed can undo suppressions.                      │
│ --output -o PATH  The file for the released days. The default is standard    │
│                   output.                                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("explain",): """\
Usage: reticent mask explain --at STR [OPTIONS] POLICY

Explain why a policy suppresses or releases each context at a step.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  POLICY  The policy. [required]                                            │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ *  --at STR          A local time of day such as 08:30, or the number of a   │
│                      step. [required]                                        │
│    --context STR...  Explain this context only. May be repeated.             │
│    --released STR    The last release before the step, as 08:00=home or      │
│                      16=home, or start for none since the day began. The     │
│                      default is the most likely one.                         │
│    --json            Write JSON. [default: False]                            │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
    ("audit",): """\
Usage: reticent mask audit [OPTIONS] POLICY [ARGS]

Run a policy over days, and show what an adversary learned.

Exits with 1 if, at a visit to a sensitive context, the belief in it rose by
more than delta.

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *  POLICY  The policy. [required]                                            │
│    DAYS    CSV with the header day,step,context; an empty context is a gap.  │
│            The default is standard input.                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Parameters ─────────────────────────────────────────────────────────────────╮
│ --delta FLOAT  A rise above this is a breach. The default is the policy's    │
│                own delta.                                                    │
│ --ceiling      Also compute the most that any private policy can release,    │
│                unless the policy holds it. [default: False]                  │
│ --seed INT     A seed for the coins. For simulation only.                    │
│ --json         Write JSON. [default: False]                                  │
╰──────────────────────────────────────────────────────────────────────────────╯
""",
}


@pytest.mark.parametrize("command", HELP, ids=lambda command: " ".join(command) or "mask")
def test_help(run: Run, command: tuple[str, ...]) -> None:
    """What each command does, and all it can be told."""
    assert lines(run(*command, "--help").stdout) == lines(HELP[command])


def test_no_command_is_a_question_for_help(run: Run) -> None:
    """As for the program as a whole."""
    assert lines(run().stdout) == lines(HELP[()])


# A whole walk


def test_from_days_to_an_audit(run: Run, folder: Path) -> None:
    """Learn, compute, filter, explain, audit: each from the files of the one before."""
    run("fit", "days.csv", "-o", "learned.json")
    learned = MarkovChain.load(folder / "learned.json")
    assert learned.to_json() == MarkovChain.fit([day.labels for day in days(20)]).to_json()
    run("policy", "learned.json", "--sensitive", "s", "--delta", "0.1", "--check", "adaptive", "-o", "policy.npz")
    run("filter", "policy.npz", "days.csv", "-o", "released.csv")
    with (folder / "released.csv").open(newline="") as file:
        released = read_days(file, "released.csv", 3)
    real = {day.name: day.labels for day in days(20)}
    assert [day.name for day in released] == list(real)
    for day in released:
        assert all(label in {None, real[day.name][t]} for t, label in enumerate(day.labels))
    assert any(label for day in released for label in day.labels)
    assert "At 00:00 (step 0), when nothing was released before" in run("explain", "policy.npz", "--at", "0").stdout
    assert "breaches" in run("audit", "policy.npz", "days.csv").stdout


# Streams and exit codes


def test_filter_reads_and_writes_streams(run: Run, folder: Path) -> None:
    """The report goes to standard error."""
    text = (folder / "days.csv").read_text()
    done = run("filter", "private.npz", stdin=text)
    assert done.stdout.startswith("day,step,context\n")
    assert done.stdout.count("\n") == 61
    assert done.stderr.startswith("20 days: released ")
    assert done.stderr.count("\n") == 1
    assert "seeded" not in done.stdout + done.stderr


def test_an_audit_with_breaches(run: Run) -> None:
    """Exits with 1, and says where."""
    said = run("audit", "leaky.npz", "days.csv", "--delta", "0.1", "--json", code=1)
    facts = json.loads(said.stdout)
    visits = sum(label == "s" for day in days(20) for label in day.labels)
    assert facts["breaches"] == facts["visits"] == visits > 0
    assert facts["largest"]["rise"] == pytest.approx(0.53)
    assert facts["seeded"] is False
    assert said.stderr == ""


def test_a_damaged_policy_is_bad_input(run: Run, folder: Path) -> None:
    """Not a bad answer."""
    whole = (folder / "private.npz").read_bytes()
    (folder / "private.npz").write_bytes(whole[:1000] + b"?" + whole[1001:])
    done = run("audit", "private.npz", "days.csv", code=2)
    assert done.stderr == "reticent: private.npz: the policy is damaged: its digest does not fit its content\n"


def test_too_large_is_refused(run: Run, folder: Path) -> None:
    """Exits with 1: it was asked properly, and cannot be done."""
    MarkovChain.uniform([str(i) for i in range(4)], 6).save(folder / "large.json")
    options = ["--check", "probabilistic", "--search", "exact", "-o", "p.npz"]
    done = run("policy", "large.json", "--sensitive", "1", "--delta", "0.1", *options, code=1)
    assert done.stderr.startswith("reticent: ")
    assert done.stderr.count("\n") == 1


def test_the_optimal_check_without_scipy(folder: Path) -> None:
    """The extra that brings it is named."""
    code = "import sys; sys.modules['scipy'] = None; from reticent.__main__ import main; sys.exit(main())"
    asked = ["mask", "policy", "chain.json", "--sensitive", "s", "--delta", ".1", "--check", "optimal", "-o", "p.npz"]
    done = subprocess.run([sys.executable, "-c", code, *asked], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'reticent[plan]'" in done.stderr
    assert done.stderr.count("\n") == 1
