"""What `reticent mask learn` and `reticent mask inspect` leave out of traces, or read in another way, they say."""

import contextlib
import datetime as dt
import io
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.console.program import main
from reticent_client import MarkovChain
from reticent_client.habits.inspection import inspect
from reticent_client.habits.sampling import Sampling
from reticent_client.habits.trace_files import read_traces
from reticent_client.habits.traces import PLACEHOLDERS, Traces
from reticent_client.mask.days_file import read_days
from tests.client.habits.trace_files import matches, refused, written

FIRST = dt.date(2027, 5, 3)
DAYS = 30

Run = Callable[..., tuple[int, str, list[str]]]


def place(hour: int) -> str:
    """Where everybody is."""
    return "work" if 9 <= hour < 17 else "home"


def rows(*users: str, minute: int = 5, days: int = DAYS) -> list[str]:
    """A reading in each hour of some days."""
    dates = [FIRST + dt.timedelta(days=k) for k in range(days)]
    return [f"{user},{d}T{hour:02}:{minute:02},{place(hour)}" for user, d, hour in product(users, dates, range(24))]


def text(lines: list[str], header: str = "user,time,context") -> str:
    """A file of these lines."""
    return "\n".join([header, *lines, ""])


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder with a file: its exit code, what it writes, and the lines of its errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(content: str | None, *arguments: str, stdin: str = "") -> tuple[int, str, list[str]]:
        command, *rest = arguments
        source = [] if content is None else ["traces.csv"]
        written(tmp_path, content or "", "traces.csv")
        output = ["-o", "chain.json"] if command == "learn" else []
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with contextlib.chdir(tmp_path):
            code = main(["mask", command, *source, *output, *rest])
        said = capfd.readouterr()
        return code, said.out, said.err.splitlines()

    return run


def test_a_day_that_is_shifted_by_a_step_is_a_word_worth(run: Run) -> None:
    """A reading on the hour is too late for the hour; whoever reads a table of hours learns it."""
    code, _, errors = run(text(rows("ada", minute=0)), "learn")
    assert code == 0
    (note,) = errors
    assert note == (
        "note: 720 of 720 readings at the beginning of a step: with a lead of 1s each counts for the step after it. "
        "If a row holds from its time on, as in a table of hours, use --lead 0s"
    )
    assert run(text(rows("ada", minute=0)), "learn", "--lead", "0s")[2] == []
    assert run(text(rows("ada", minute=5)), "learn")[2] == []


def test_a_day_in_a_zone_with_half_hours_is_shifted_too(run: Run) -> None:
    """The hours are the user's, not those of UTC."""
    lines = [line.replace(",home", "+05:30,home").replace(",work", "+05:30,work") for line in rows("ada", minute=0)]
    assert len(run(text(lines), "learn", "--zone", "Asia/Kolkata")[2]) == 1
    assert not any("beginning of a step" in note for note in run(text(lines), "learn", "--zone", "UTC")[2])


def test_days_left_out_are_named_with_their_reason_before_anything_is_learned(run: Run) -> None:
    days = rows("ada")
    lines = [
        *days[: 24 * 3],
        *days[24 * 4 : 24 * 4 + 2],
        *days[24 * 5 :],
    ]  # the fourth is missing, two hours of the fifth
    notes = [
        "note: 1 day left out as too empty (a context at fewer than 25% of the steps): 2027-05-07",
        "note: 1 day without any reading between a user's first and last day: 2027-05-06",
    ]
    code, said, errors = run(text(lines), "learn")
    assert (code, errors) == (0, notes)
    assert "28, 2 more left out (1 too empty, 1 without readings)" in said
    code, said, errors = run(text(lines), "learn", "--min-days", "99")
    assert code == 2
    assert errors[:-1] == notes  # though nothing was learned
    found = json.loads(run(text(lines), "learn", "--json")[1])
    assert (found["left_out"], found["too_empty"], found["without_readings"]) == (2, 1, 1)
    assert [f"note: {note}" for note in found["notes"]] == notes


def test_a_conflict_is_a_gap_of_its_user_and_of_nobody_else(run: Run, tmp_path: Path) -> None:
    conflict = f"bob,{FIRST}T10:05,gym"
    content = text([*rows("ada", "bob"), conflict])
    assert run(content, "learn", "--user", "ada")[2] == []
    code, _, errors = run(content, "learn", "--all")
    (note,) = errors
    assert code == 0
    assert note == (
        "note: 1 time with two contexts of one user, read as nothing: first traces.csv:1442: "
        f"user 'bob' is in 'work' and in 'gym' at {FIRST}T10:05:00"
    )
    traces = read_traces(tmp_path / "traces.csv")
    labels = Sampling().days(traces, "bob").days[0].labels
    assert (labels[10], labels[11], labels[12]) == ("work", None, "work")
    assert Sampling().days(traces, "ada").days[0].labels[11] == "work"


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_the_order_of_clashing_rows_means_nothing(contexts: list[str]) -> None:
    """Nor their number: what differs is a reading of nothing."""
    traces = Traces.of([("a", "2027-03-01T08:00", each) for each in contexts])
    (reading,) = traces.readings["a"]
    assert reading.context == (contexts[0] if len(set(contexts)) == 1 else None)
    assert len(traces.ignored.conflicts) == (len(set(contexts)) > 1)


@pytest.mark.parametrize("missing", sorted(PLACEHOLDERS | {"NaN", "None", " NULL "}))
def test_a_missing_value_is_no_place(run: Run, tmp_path: Path, missing: str) -> None:
    content = text([*rows("ada"), f"ada,{FIRST}T10:30,{missing}", f"ada,{FIRST}T11:30,"])
    code, _, errors = run(content, "learn")
    assert code == 0
    assert MarkovChain.load(tmp_path / "chain.json").contexts == ("home", "work", "unknown")
    assert errors == [f"note: 1 context read as nothing, because they stand for missing values: {missing.strip()!r} 1"]


EPOCHS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@given(
    st.datetimes(dt.datetime(1985, 2, 1), dt.datetime(2286, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001  # hypothesis adds the zone
    st.sampled_from(sorted(EPOCHS)),
)
def test_a_number_is_the_instant_that_it_counts_to(at: dt.datetime, unit: str) -> None:
    at = at.replace(microsecond=0)
    number = int(at.timestamp()) * EPOCHS[unit]
    for time in (str(number), number, f"{number}.0"):
        ((reading,),) = Traces.of([("a", time, "x")], zone="Europe/Paris").readings.values()
        assert reading.time == at


def test_a_trace_of_epochs_is_learned_as_one_of_instants(run: Run) -> None:
    """With a fraction or without; the zone says when days begin, and without one nobody knows."""
    instants, epochs = [], []
    for line in rows("ada"):
        user, time, context = line.split(",")
        at = dt.datetime.fromisoformat(time).replace(tzinfo=dt.UTC)
        instants.append(f"{user},{at.isoformat()},{context}")
        epochs.append(f"{user},{at.timestamp()},{context}")
    zone = ("--zone", "Europe/Paris")
    assert run(text(instants), "inspect", "--json", *zone) == run(text(epochs), "inspect", "--json", *zone)
    code, _, (error,) = run(text(epochs), "inspect")
    assert code == 2
    assert "is an instant, which does not say when the user's days begin" in error


def table(header: str, *, slots: int = 24, day: Callable[[int], str] | None = None) -> str:
    """A table of slots, in columns of the header's order."""
    lines = []
    for number, slot in product(range(DAYS), range(slots)):
        name = str(FIRST + dt.timedelta(days=number)) if day is None else day(number)
        field = {"user": "ada", "day": name, "slot": str(slot), "step": str(slot), "note": "-"}
        label = place(slot * 24 // slots)
        lines.append(",".join(field.get(column, label) for column in header.split(",")))
    return text(lines, header)


@pytest.mark.parametrize("header", ["user,day,slot,place", "day,slot,note,context,user", "day,step,context"])
def test_a_table_of_slots_is_learned_as_it_stands(run: Run, tmp_path: Path, header: str) -> None:
    """Nine o'clock is nine o'clock, without any word about leads; a file of days is such a table."""
    code, said, errors = run(table(header), "learn")
    assert (code, errors) == (0, [])
    assert "24 a day" in said
    chain = MarkovChain.load(tmp_path / "chain.json")
    work = chain.prior[:, chain.index("work")]
    assert work[8] < 0.1
    assert work[9] > 0.9
    assert run(text(rows("ada", minute=0)), "learn", "--lead", "0s")[0] == 0
    assert MarkovChain.load(tmp_path / "chain.json").to_json() == chain.to_json()


def test_slots_of_half_an_hour_are_found_and_may_be_cut_into_hours(run: Run, tmp_path: Path) -> None:
    assert "48 a day" in run(table("user,day,slot,place", slots=48), "learn")[1]
    assert MarkovChain.load(tmp_path / "chain.json").horizon == 48
    assert "24 a day" in run(table("user,day,slot,place", slots=48), "learn", "--step", "1h")[1]
    chain = MarkovChain.load(tmp_path / "chain.json")
    assert chain.prior[9, chain.index("work")] > 0.9 > chain.prior[8, chain.index("work")]


def test_numbered_days_keep_their_numbers_and_have_no_weekends(run: Run) -> None:
    content = table("user,day,slot,place", day=str)
    lines = [line for line in content.splitlines() if not line.startswith("ada,7,") or line.startswith("ada,7,1,")]
    errors = run("\n".join(lines), "learn")[2]
    assert errors == ["note: 1 day left out as too empty (a context at fewer than 25% of the steps): day 7"]
    assert "by numbered days" in run(content, "inspect")[1]
    code, _, (error,) = run(content, "learn", "--weekend", "weekend.json")
    assert (code, error) == (2, "reticent: the days of traces.csv are numbered: nobody knows which are weekends")


def test_numbered_days_are_nowhere_dates(run: Run, tmp_path: Path) -> None:
    """Neither in the test days, nor in what machines read of days that are left out."""
    lines = table("user,day,slot,place", day=str).splitlines()
    content = "\n".join(
        line for line in lines if not line.startswith(("ada,5,", "ada,7,")) or line.startswith("ada,7,1,")
    )
    content += "\nada,9,10,gym"
    code, _, errors = run(content, "learn", "--days", "days.csv")
    assert code == 0
    assert errors[-1].endswith("user 'ada' is in 'work' and in 'gym' at 10:00 of day 9")
    names = [day.name for day in read_days((tmp_path / "days.csv").read_text().splitlines(), "days.csv")]
    assert names[-1] == "29"
    assert all(name.isdigit() for name in names)
    found = json.loads(run(content, "inspect", "--json")[1])
    ada = found["users"]["ada"]
    assert [day["day"] for day in ada["too_empty"]] == ["7"]
    assert (ada["without_readings"], ada["first"], ada["last"]) == (["5"], "day 0 00:00", "day 29 23:00")
    assert "2001" not in json.dumps(found)


HEAD = "user,day,slot,place\n"


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("user,day,place\na,1,x\n", {}, "t.csv:1: the first line must name the columns * it has no column 'step'"),
        ("day,slot,place\n1,0,x\n", {}, "t.csv:1: * it has no column 'user'"),
        (f"{HEAD}a,1,0\n", {}, "t.csv:2: the header names 4 columns: this line has 3"),
        (f"{HEAD}a,1,0,x\na,noon,1,x\n", {}, "t.csv:3: a day is a date such as 2027-03-01, or a number: got 'noon'"),
        (f"{HEAD}a,1,0,x\na,2027-03-01,1,x\n", {}, "t.csv:3: some days are dates and others are numbers"),
        (f"{HEAD}a,1,one,x\n", {}, "t.csv:2: a slot is a whole number, from 0 to 1439: got 'one'"),
        (f"{HEAD}a,1,1440,x\n", {}, "t.csv:2: a slot is a whole number, from 0 to 1439: got '1440'"),
        (f"{HEAD}a,1,0,x\na,1,6,x\n", {}, "t.csv: the slots are 0 to 6, counted from 0: state how many * --slots"),
        (f"{HEAD}a,1,1,x\na,1,8,x\n", {}, "t.csv: the slots are 1 to 8, counted from 0: state how many * --slots"),
        (f"{HEAD}a,1,8,x\n", {"slots": 8}, "t.csv: slot 8 lies outside a day of 8 slots, 0 to 7"),
        (f"{HEAD}a,1,0,x\n", {"slots": 7}, "--slots must divide a day into whole minutes: got 7"),
        (f"{HEAD}a,1,0,x\n", {"zone": "UTC"}, "t.csv is a table of slots, which are local times: a time zone *"),
        (HEAD, {}, "t.csv: there are no readings"),
        ("user,time,context\na,2027-03-01T08:00,x\n", {"slots": 24}, "t.csv is not a table of slots: --slots means *"),
    ],
)
def test_a_bad_table_is_one_error(tmp_path: Path, content: str, options: dict[str, object], said: str) -> None:
    path = written(tmp_path, content, "t.csv")
    error = refused(lambda: read_traces(path, **options))  # type: ignore[arg-type]
    assert matches(error.removeprefix(f"{tmp_path}/"), said), error


def test_the_number_of_slots_may_be_stated(run: Run) -> None:
    """Where the last slots of the day never occur."""
    lines = [line for line in table("user,day,slot,place").splitlines() if ",23," not in line]
    assert run("\n".join(lines), "inspect")[0] == 2
    assert "24 slots a day" in run("\n".join(lines), "inspect", "--slots", "24")[1]
    code, _, (error,) = run("\n".join(lines), "learn", "--slots", "24", "--lead", "0s")
    assert (code, "--hold and --lead mean nothing to it" in error) == (2, True)


def test_standard_input_is_read(run: Run, tmp_path: Path) -> None:
    assert run(None, "learn", stdin=text(rows("ada")))[0] == 0
    chain = MarkovChain.load(tmp_path / "chain.json").to_json()
    assert run(text(rows("ada")), "learn")[0] == 0
    assert MarkovChain.load(tmp_path / "chain.json").to_json() == chain
    code, _, errors = run(None, "inspect", stdin="user,time,context\nada,noon,home\n")
    assert code == 2
    assert errors[0].startswith("reticent: standard input:2: a time is")


def test_traces_are_shown_before_anything_is_learned(run: Run, tmp_path: Path) -> None:
    code, said, errors = run(text([*rows("ada", minute=0, days=2), *rows("bob")]), "inspect")
    assert (code, errors) == (0, [])
    assert [" ".join(line.split()) for line in said.splitlines()] == [
        "users 2",
        "readings 768, 2027-05-03 00:00 to 2027-06-01 23:05",
        "times local, of a clock that never jumps",
        "contexts 2: home 512, work 256",
        "of nothing 0 readings",
        "days 32 of 24 steps, on average 99.7% filled",
        "user readings days too empty without readings filled",
        "ada 48 2 0 0 97.9%",
        "bob 720 30 0 0 99.9%",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["traces.csv"]
    said = run(text(rows("ada", minute=0)), "inspect", "--user", "ada")[1]
    assert said.splitlines()[-1].startswith("note: 720 of 720 readings at the beginning of a step")
    assert "1:00:00 between two readings" in said


def test_machines_read_the_same(run: Run) -> None:
    found = json.loads(run(text(rows("ada", "bob")), "inspect", "--json")[1])
    assert (found["readings"], found["steps"], found["shifted"], found["conflicts"]) == (1440, 24, False, [])
    ada = found["users"]["ada"]
    assert (ada["readings"], ada["days"], ada["interval_seconds"]) == (720, DAYS, 3600)
    assert ada["contexts"] == {"home": 480, "work": 240}


def test_an_inspection_samples_as_learning_does() -> None:
    traces = Traces.of([("a", f"2027-03-0{day}T08:00", "x") for day in (1, 2, 4)])
    sampling = Sampling(dt.timedelta(hours=8), min_filled=0)
    assert inspect(traces, sampling, "a").users["a"].sampled == sampling.days(traces, "a")
