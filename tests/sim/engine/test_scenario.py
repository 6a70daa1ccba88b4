"""Scenarios: a bad one is refused with one sentence before anything starts."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import reticent.storage
import reticent_sim
from reticent.console import program
from reticent.errors import ExitCode, MissingExtra
from reticent_sim import Scenario, simulate
from reticent_sim.engine.questions import check_questions, count_question, rates_options
from reticent_sim.engine.scenario import NO_CHECK

BAD: list[tuple[dict[str, Any], str]] = [
    ({"phones": 9}, "phones must be a whole number from 10 to 1,000,000: got 9"),
    ({"phones": 1e3}, "phones must be a whole number .*: got 1000.0"),
    ({"days": 0}, "days must be a whole number from 1 to 366: got 0"),
    ({"days": True}, "days must be a whole number .*: got True"),
    ({"seed": -1}, "seed must be a whole number .*: got -1"),
    ({"routines": 0}, "routines must be a whole number from 1 .*: got 0"),
    ({"entries": 101}, "entries must be a whole number from 1 to 100: got 101"),
    ({"rates_cohorts": 0}, "rates_cohorts must be a whole number .*: got 0"),
    ({"counts": -1}, "counts must be a whole number .*: got -1"),
    ({"counters": 65}, "counters must be a whole number from 1 to 64: got 65"),
    ({"check": "magic"}, "a check is one of .*adaptive.*, none: got 'magic'"),
    ({"compare": ("optimal", "magic")}, "a check is one of .*: got 'magic'"),
    ({"delta": 0.0}, r"delta must lie in \(0, 1\]: got 0.0"),
    ({"delta": math.nan}, r"delta must lie in \(0, 1\]: got nan"),
    ({"ad_delta": 1.5}, r"ad_delta must lie in \(0, 1\]: got 1.5"),
    ({"rates_epsilon": 0.0}, "rates_epsilon must lie in .*: got 0.0"),
    ({"rates_delta": 1.0}, "rates_delta must lie in .*: got 1.0"),
    ({"epsilon": math.inf}, "epsilon must lie in .*: got inf"),
    ({"count_delta": 0.0}, "count_delta must lie in .*: got 0.0"),
    ({"cohorts": 101}, "cohorts must lie between 1 and the number of phones: got 101"),
    ({"absent": 1.0}, r"absent must lie in \[0, 1\), .*: got 1.0"),
    ({"malicious": -0.1}, r"malicious must lie in \[0, 1\), .*: got -0.1"),
    ({"malicious": 0.6}, "at most half of the 100 phones may be malicious: got 60"),
    ({"malicious": 0.1, "attacks": {"wild": 1}}, "state either the share .* or their numbers by kind, not both"),
    ({"attacks": {"lazy": 1}}, "a malicious phone is one of .*: got 'lazy'"),
    ({"attacks": {"wild": -1}}, "the number of wild phones must .*: got -1"),
    ({"fault_rate": 1e9}, r"fault_rate must lie in \[0, 1,000\]: got 1000000000.0"),
    ({"fault_rate": math.nan}, r"fault_rate must lie in \[0, 1,000\]: got nan"),
    ({"fault_rate": -1.0}, r"fault_rate must lie in \[0, 1,000\]: got -1.0"),
    ({"fault_rate": True}, "fault_rate must be a number: got True"),
    ({"delta": "0.1"}, "delta must be a number: got '0.1'"),
    ({"cohorts": "2"}, "cohorts must lie between 1 and the number of phones: got '2'"),
    ({"ads": "no"}, "ads must be true or false: got 'no'"),
    ({"check": "none"}, "phones without a mask know no contexts and show no ads: state a check, or no ads"),
    ({"key_bits": 512}, "key_bits must be one of 1024, 2048, 3072: got 512"),
    ({"aggregation_servers": 0}, "aggregation_servers must be a whole number from 1 to 16: got 0"),
    ({"aggregation_servers": 2}, "2 aggregation servers need a PostgreSQL database"),
    ({"database": "mysql://ann:secret@db/x"}, "database is no address of PostgreSQL, such as postgresql://[^:]*"),
    ({"counts": 3}, "there is at most one count a day: got counts = 3, days = 2"),
    ({"faults": 3}, "faults must be the path of a file: got 3"),
    ({"intervals": b"on.csv"}, "intervals must be the path of a file: got b'on.csv'"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=lambda each: str(each)[:40])
def test_a_bad_scenario_is_refused_with_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        Scenario(**changes)


def test_a_bad_value_of_every_field_is_tried() -> None:
    tried = {name for changes, _ in BAD for name in changes}
    assert {each.name for each in dataclasses.fields(Scenario)} == tried


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"database": "postgresql://ann:secret@localhost/x"},
            "the address of the database holds a password: put it into a password file or PGPASSWORD",
        ),
        ({"database": "postgresql://[::1"}, "this is no address of a PostgreSQL database, such as .*"),
        ({"phones": 10, "cohorts": 5}, "a count is not possible with 10 phones: .*"),
        ({"phones": 10, "rates_cohorts": 8}, "an estimate of rates is not possible with 10 phones: .*"),
        ({"faults": Path("faults.jsonl")}, r".*faults.jsonl:1: the run has phones 0 to 99: got 'phone 700'"),
        ({"intervals": Path("on.csv")}, r".*on.csv:2: a phone is on before it is off: .*"),
    ],
)
def test_a_scenario_that_cannot_run_starts_nothing(
    changes: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("faults.jsonl").write_text('{"day": 0, "step": 9, "kind": "absent", "target": "phone 700"}\n')
    Path("on.csv").write_text("phone,on,off\n3,2027-01-04T09:00,2027-01-04T08:00\n")
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        simulate(Scenario(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_database_needs_psycopg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("psycopg", "reticent.storage._postgres"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr(reticent.storage, "_postgres", raising=False)
    with pytest.raises(
        MissingExtra, match=r"^a PostgreSQL database needs psycopg: pip install 'reticent\[postgres\]'$"
    ):
        simulate(Scenario(database="postgresql://ann@localhost/x"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_files_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty: a simulation needs a folder of its own"):
        simulate(Scenario(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("workers", [0, 2.5, True])
def test_the_number_of_workers_is_a_whole_one(workers: Any) -> None:
    with pytest.raises(ValueError, match=f"workers must be a whole number from 1: got {workers}"):
        simulate(Scenario(), workers=workers)


def test_paths_may_be_strings(tmp_path: Path) -> None:
    scenario = Scenario(faults=str(tmp_path / "faults.jsonl"), intervals=str(tmp_path / "on.csv"))  # type: ignore[arg-type]
    assert (scenario.faults, scenario.intervals) == (tmp_path / "faults.jsonl", tmp_path / "on.csv")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        simulate(Scenario(), str(tmp_path))


FULL = Scenario(
    phones=321,
    days=3,
    seed=7,
    check=NO_CHECK,
    compare=("hybrid", "optimal"),
    ads=False,
    counts=2,
    cohorts=4,
    attacks={"wild": 2, "garbage": 1},
    faults=Path("faults.jsonl"),
    key_bits=2048,
    database="postgresql://ann@localhost/run",
    aggregation_servers=3,
)


def test_a_scenario_is_the_same_from_its_json() -> None:
    assert Scenario.of(json.loads(json.dumps(FULL.to_json()))) == FULL
    assert FULL.changed(phones=400) == dataclasses.replace(FULL, phones=400)


TOML = """
phones = 321
days = 3
seed = 7
check = "none"
compare = ["hybrid", "optimal"]
ads = false
counts = 2
cohorts = 4
faults = "faults.jsonl"
key_bits = 2048
database = "postgresql://ann@localhost/run"
aggregation_servers = 3

[attacks]
wild = 2
garbage = 1
"""


def test_paths_of_a_scenario_file_begin_in_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "busy.toml"
    path.write_text(TOML)
    assert Scenario.load(path) == FULL.changed(faults=tmp_path / "faults.jsonl")


BAD_FILES = {
    "phones = [": r"bad\.toml is no scenario: Invalid value.*",
    "workers = 3": r"bad\.toml: a scenario has the keys absent, .*: got '?workers'?",
    "phones = 3": "phones must be a whole number from 10 to 1,000,000: got 3",
    "absent = 7.5": r"absent must lie in \[0, 1\), as a share of the phones: got 7.5",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_bad_scenario_file_is_refused_with_one_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the library, and by the command."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{BAD_FILES[text]}$"):
        Scenario.load(str(path))
    assert program.main(["simulate", "--scenario", str(path)]) == ExitCode.BAD_INPUT
    assert re.fullmatch(f"reticent: .*{BAD_FILES[text]}\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("changes", "cohorts"),
    [
        ({"phones": 1000}, (1, 1)),
        ({"phones": 1000, "attacks": {"garbage": 9, "colluder": 9}}, (1, 1)),
        ({"phones": 1000, "malicious": 0.02}, (5, 5)),
        ({"phones": 1000, "attacks": {"wild": 20}}, (41, 41)),
        ({"phones": 1000, "attacks": {"wild": 2}, "cohorts": 15}, (15, 5)),
        ({"phones": 1000, "attacks": {"wild": 2}, "rates_cohorts": 1}, (5, 1)),
        ({"phones": 60, "attacks": {"wild": 2}}, (3, 3)),
    ],
)
def test_unless_given_there_are_enough_cohorts_for_the_wild_phones(
    changes: dict[str, Any], cohorts: tuple[int, int]
) -> None:
    """As many as the phones suffice for."""
    scenario = Scenario(**changes)
    check_questions(scenario)
    query = count_question(scenario, 0).to_query(scenario.phones, "key")
    assert (query.cohorts, rates_options(scenario)["cohorts"]) == cohorts
    assert query.min_contributions - query.liars >= scenario.min_honest


@pytest.mark.parametrize("changes", [{"phones": 20, "attacks": {"wild": 3}}, {"phones": 30, "attacks": {"wild": 8}}])
def test_with_too_few_phones_there_is_one_cohort_that_tolerates_no_wild_phone(changes: dict[str, Any]) -> None:
    scenario = Scenario(**changes)
    check_questions(scenario)
    query = count_question(scenario, 0).to_query(scenario.phones, "key")
    honest = count_question(scenario.changed(attacks={}), 0).to_query(scenario.phones, "key")
    assert (query.cohorts, query.liars) == (1, honest.liars)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The scenarios that the command would simulate."""
    found: list[Scenario] = []

    def start(options: Scenario, *_: object, **__: object) -> None:
        found.append(options)
        raise ValueError("started")

    monkeypatch.setattr("reticent_sim.simulator.simulate_live", start)
    return found


def test_options_win_over_a_scenario_file(tmp_path: Path, started: list[Scenario]) -> None:
    """Also those that are named as commands of `reticent`, such as ads."""
    path = tmp_path / "busy.toml"
    path.write_text(TOML)
    from_file = FULL.changed(faults=tmp_path / "faults.jsonl")
    cases: list[tuple[list[str], dict[str, Any]]] = [
        ([], {}),
        (["--ads", "--check", "hybrid", "--phones", "500"], {"ads": True, "check": "hybrid", "phones": 500}),
        (["--compare", "adaptive"], {"compare": ("adaptive",)}),
    ]
    for arguments, changes in cases:
        program.main(["simulate", "--scenario", str(path), *arguments])
        assert started.pop() == from_file.changed(**changes)
    program.main(["simulate", "--no-ads", "--attacks.wild", "1"])
    assert started.pop() == Scenario(ads=False, attacks={"wild": 1})


def test_the_package_exports_names_of_the_engine_on_use() -> None:
    assert [name for name in reticent_sim.__all__ if not hasattr(reticent_sim, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        reticent_sim.simulat  # type: ignore[attr-defined]  # noqa: B018
