"""The list of mutants fits the sources, and those of what has changed do not survive."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import main
from tests.mutants.mutants import ROOT, Mutant, ProjectCopy, all_mutants, changed_files

MUTANTS = all_mutants()
SAMPLE = 3
SINCE = os.environ.get("RETICENT_SINCE", "HEAD~1")
"""The revision that a change begins with."""
MOST, MOST_SLOW = 16, 2
"""The most mutants that fast and that slow tests try here: some minutes on one core. `make mutants` tries all."""


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(MUTANTS) >= 100
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_fits_the_sources(mutant: Mutant) -> None:
    compile(mutant.applied(), mutant.file, "exec")
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def touched() -> list[Mutant]:
    """The mutants of the files that a change touches; some of all, where it touches none."""
    try:
        changed = changed_files(SINCE)
    except (OSError, subprocess.CalledProcessError):  # no repository, or its first commit
        changed = set()
    return [each for each in MUTANTS if each.file in changed] or at_most(SAMPLE, MUTANTS)


def at_most(number: int, mutants: list[Mutant]) -> list[Mutant]:
    """So many mutants, of files all over the list."""
    return mutants[:: -(-len(mutants) // number)] if mutants else []


TOUCHED = touched()
TRIED = at_most(MOST, [each for each in TOUCHED if not each.slow])
TRIED += at_most(MOST_SLOW, [each for each in TOUCHED if each.slow])
LEFT = len(TOUCHED) - len(TRIED)
"""How many mutants of the change are not tried here: the summary of the tests says so."""


@pytest.fixture(scope="module")
def project_copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    return ProjectCopy(tmp_path_factory.mktemp("mutants"))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", TRIED, ids=lambda each: each.name)
def test_no_mutant_of_what_has_changed_survives(mutant: Mutant, project_copy: ProjectCopy) -> None:
    project_copy.check([mutant])
    assert project_copy.verdict(mutant) != "survived"


@pytest.mark.parametrize("number", [0, 1, 23, 24, 25, 47, 49, 343])
def test_no_more_mutants_are_tried_than_the_most(number: int) -> None:
    found = at_most(MOST, MUTANTS[:number])
    assert len(found) <= MOST
    assert len(found) == number or len(found) >= MOST / 2
    assert len(set(found)) == len(found)


def test_a_name_without_a_mutant_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.mutants", MUTANTS[0].name, "no-such-mutant"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: no mutant has this in its name: no-such-mutant\n")


def test_tests_that_do_not_run_kill_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the tests fail without any mutant"):
        ProjectCopy(tmp_path).check([Mutant("room/name", "source.py", "old", "new", ("tests/no_such_test.py",))])


def test_a_mutant_that_fits_no_longer_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text("a = 1\nb = 1\n")
    for old, expected_text in [("c = 1", "found 0"), (" = 1", "found 2")]:
        with pytest.raises(ValueError, match=expected_text):
            Mutant("room/name", "source.py", old, "", ()).applied(tmp_path)
