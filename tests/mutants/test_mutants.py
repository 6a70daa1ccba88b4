"""The list of mutants fits the sources, and those of what has changed do not survive."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.mutants.mutants import ROOT, Mutant, ProjectCopy, all_mutants, changed_files

MUTANTS = all_mutants()
SAMPLE = 3
SINCE = os.environ.get("RETICENT_SINCE", "HEAD~1")
"""The revision that a change begins with."""


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(MUTANTS) >= 100
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_fits_the_sources(mutant: Mutant) -> None:
    compile(mutant.applied(), mutant.file, "exec")
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def touched() -> list[Mutant]:
    """The mutants of the files that a change touches; a few, where it touches none."""
    try:
        changed = changed_files(SINCE)
    except (OSError, subprocess.CalledProcessError):  # no repository, or its first commit
        changed = set()
    return [each for each in MUTANTS if each.file in changed] or MUTANTS[:: len(MUTANTS) // SAMPLE][:SAMPLE]


@pytest.fixture(scope="module")
def project_copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    made = ProjectCopy(tmp_path_factory.mktemp("mutants"))
    made.check(test for each in touched() for test in each.tests)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mutant", touched(), ids=lambda each: each.name)
def test_no_mutant_of_what_has_changed_survives(mutant: Mutant, project_copy: ProjectCopy) -> None:
    assert project_copy.verdict(mutant) != "survived"


def test_tests_that_do_not_run_kill_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the tests fail without any mutant"):
        ProjectCopy(tmp_path).check(["tests/no_such_test.py"])


def test_a_mutant_that_fits_no_longer_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "source.py").write_text("a = 1\nb = 1\n")
    for old, expected_text in [("c = 1", "found 0"), (" = 1", "found 2")]:
        with pytest.raises(ValueError, match=expected_text):
            Mutant("room/name", "source.py", old, "", ()).applied(tmp_path)
