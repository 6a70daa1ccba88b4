"""The house itself: who may import whom, what is installed, and how the Makefile finds Python."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
SHIPPED: list[str] = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PACKAGES = [package for package in SHIPPED if package != "protos/reticent"]
FOLDERS = [str(Path(package).parent) for package in PACKAGES]


# Who may import whom


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources, free to be broken."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(house: Path) -> subprocess.CompletedProcess[str]:
    sources = os.pathsep.join(str(house / folder) for folder in FOLDERS)
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=house,
        env={**os.environ, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_import_contract_holds(copy: Path) -> None:
    run = lint_imports(copy)
    assert run.returncode == 0, run.stdout
    assert "0 broken" in run.stdout


OFFENCES = [
    ("core/reticent", "reticent_client"),
    ("core/reticent", "reticent_sim"),
    ("client/reticent_client", "reticent_sim"),
    ("client/reticent_client", "reticent_keys"),
    ("server_keys/reticent_keys", "reticent_client"),
    ("server_keys/reticent_keys", "reticent_sim"),
    ("analyst/reticent_analyst", "reticent_agg"),
    ("core/reticent/privacy", "reticent.paillier"),
    ("client/reticent_client/mask", "reticent_client.habits"),
    ("server_agg/reticent_agg/counting", "reticent_agg.sql_store"),
    ("simulation/reticent_sim/world", "reticent_sim.experiments"),
    ("simulation/reticent_sim/rivals", "reticent_sim.experiments"),
    ("simulation/reticent_sim/experiments", "reticent_sim.report"),
    ("simulation/reticent_sim/report", "reticent_sim.cli"),
]


def test_the_import_contract_breaks(copy: Path) -> None:
    """An import against the rule is seen, wherever it hides."""
    for number, (importer, imported) in enumerate(OFFENCES):
        (copy / importer / f"offender{number}.py").write_text(f"def hide():\n    import {imported}\n")
    run = lint_imports(copy)
    assert run.returncode == 1, run.stdout
    for number, (importer, imported) in enumerate(OFFENCES):
        package = ".".join(Path(importer).parts[1:])
        assert f"{package}.offender{number} -> {imported}" in run.stdout


CIRCLES = {
    "reticent_client.mask": ("client/reticent_client/mask/planning/solver.py", "reticent_client.mask.checks.registry"),
    "reticent_client.counting": ("client/reticent_client/counting/records.py", "reticent_client.counting.session"),
    "reticent_client.apps": ("client/reticent_client/apps/tokens.py", "reticent_client.apps.broker"),
    "reticent_agg.counting": ("server_agg/reticent_agg/counting/queries.py", "reticent_agg.counting.closing"),
    "reticent.rpc": ("core/reticent/rpc/_rate_limits.py", "reticent.rpc.listener"),
}
FORBIDDEN = [
    ("simulation/reticent_sim/experiments/statistics.py", "reticent_sim.experiments.runner"),
    ("client/reticent_client/mask/maskit.py", "phe"),
    ("analyst/reticent_analyst/plan.py", "phe"),
    ("server_agg/reticent_agg/counting/replies.py", "sqlite3"),
    ("server_agg/reticent_agg/driver.py", "reticent.storage.database"),
    ("server_keys/reticent_keys/dealing.py", "reticent.storage.database"),
]


def test_a_circle_within_a_package_and_a_forbidden_library_are_found(copy: Path) -> None:
    for importer, imported in [*CIRCLES.values(), *FORBIDDEN]:
        with (copy / importer).open("a") as module:
            module.write(f"\n\ndef hide():\n    import {imported}\n")
    run = lint_imports(copy)
    assert run.returncode == 1, run.stdout
    for package in CIRCLES:
        assert f"No cycles are allowed in {package}." in run.stdout
    for importer, imported in FORBIDDEN:
        assert f"{'.'.join(Path(importer).with_suffix('').parts[1:])} -> {imported} (l." in run.stdout


def test_a_new_module_needs_a_layer(copy: Path) -> None:
    for package in PACKAGES:
        (copy / package / "newcomer.py").write_text("")
    run = lint_imports(copy)
    assert run.returncode == 1, run.stdout
    assert run.stdout.count("newcomer") == len(PACKAGES), run.stdout


# What is packaged


def test_every_role_is_packaged_typed_checked_and_under_the_contract() -> None:
    """A folder that was added in one place only would go unchecked or unshipped."""
    found = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/reticent*/__init__.py"))
    tool = SETTINGS["tool"]
    assert sorted(PACKAGES) == found
    assert tool["hatch"]["build"]["dev-mode-dirs"] == FOLDERS
    assert tool["mypy"]["mypy_path"] == [*FOLDERS, "typings"]
    assert set(FOLDERS) <= set(tool["mypy"]["files"])
    assert set(FOLDERS) <= set(tool["pytest"]["ini_options"]["testpaths"])
    names = {Path(package).name for package in PACKAGES}
    assert set(tool["importlinter"]["root_packages"]) == names
    layers = tool["importlinter"]["contracts"][0]["layers"]
    assert set(re.findall(r"\w+", " ".join(layers))) == names
    assert names <= set(tool["ruff"]["lint"]["isort"]["known-first-party"])
    assert all((ROOT / package / "py.typed").exists() for package in PACKAGES)


def test_the_lock_answers_every_requirement_with_hashes() -> None:
    """Each declared requirement is met by the locked version, and each lock line has a hash."""
    locked = dict(re.findall(r"^([a-z0-9.-]+)==([^ ;\\]+)", LOCK, re.MULTILINE))
    project = SETTINGS["project"]
    declared = [
        *SETTINGS["build-system"]["requires"],
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for requirement in map(Requirement, declared):
        if requirement.name != "reticent":
            assert requirement.specifier.contains(locked[requirement.name]), requirement
    assert len(re.findall(r"^[a-z0-9.-]+==[^\n]*\\\n    --hash=sha256:", LOCK, re.MULTILINE)) == len(locked)


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "Makefile"])
def test_no_address_and_no_absolute_path_is_written_down(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links|(?<![\w.])/(home|root|work|opt)/", text)


# How the Makefile finds Python

ANSWERS = """#!/bin/sh
case "$*" in
    *version_info*) echo {version} ;;
    *ensurepip*) exit {venv} ;;
esac
"""
SHIM = """#!/bin/sh
echo "pyenv: $0: command not found" >&2
exit 127
"""


class Machine:
    """A machine with a Makefile and nothing but the programs it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copy(ROOT / "Makefile", folder)
        for tool in ("cksum", "cut", "expand", "sed", "sh", "uname"):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def has(self, name: str, script: str) -> None:
        program = self.bin / name
        program.unlink(missing_ok=True)
        program.write_text(script)
        program.chmod(0o755)

    def has_python(self, name: str, version: str, *, venv: bool = True) -> None:
        self.has(name, ANSWERS.format(version=version, venv=0 if venv else 1))

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(shutil.which("make")), "--no-print-directory", *arguments],
            cwd=self.folder,
            env={"PATH": str(self.bin)},
            capture_output=True,
            text=True,
            check=False,
        )

    def finds(self, *arguments: str) -> str:
        run = self.make("python", *arguments)
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    def says(self, *arguments: str) -> str:
        """The one sentence of a search that fails; make adds a line of its own."""
        run = self.make("python", *arguments)
        assert run.returncode != 0
        assert run.stdout == ""
        sentence, *rest = run.stderr.splitlines()
        assert all(line.startswith("make: ***") for line in rest)
        return sentence


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_newest_python_that_answers_is_taken(machine: Machine) -> None:
    machine.has_python("python3", "3.11")
    assert machine.finds() == "python3"
    machine.has_python("python3.11", "3.11")
    machine.has_python("python3.13", "3.13")
    assert machine.finds() == "python3.13"


def test_a_shim_that_lies_is_passed_over(machine: Machine) -> None:
    machine.has("python3.14", SHIM)
    machine.has("python3.13", SHIM)
    machine.has_python("python3.12", "3.12")
    assert machine.finds() == "python3.12"


def test_a_python_without_venv_is_passed_over(machine: Machine) -> None:
    machine.has_python("python3.12", "3.12", venv=False)
    machine.has_python("python3.11", "3.11")
    assert machine.finds() == "python3.11"


def test_where_no_python_has_venv_the_command_that_mends_it_is_said(machine: Machine) -> None:
    machine.has("python3.14", SHIM)
    machine.has_python("python3.12", "3.12", venv=False)
    machine.has_python("python3.11", "3.11", venv=False)
    assert "'sudo apt-get install python3.12-venv'" in machine.says()


@pytest.mark.parametrize("version", ["3.10", "3.15", "2.7", "4.0"])
def test_other_versions_get_one_sentence(machine: Machine, version: str) -> None:
    machine.has_python("python3", version)
    assert machine.says().startswith("Reticent needs Python 3.11, 3.12, 3.13 or 3.14")


def test_no_python_gets_one_sentence(machine: Machine) -> None:
    assert machine.says().startswith("Reticent needs Python 3.11, 3.12, 3.13 or 3.14")


def test_the_python_that_is_asked_for_is_taken(machine: Machine) -> None:
    machine.has_python("python3.13", "3.13")
    machine.has_python("mine", "3.11")
    assert machine.finds("PYTHON=mine") == "mine"


@pytest.mark.parametrize("version", ["3.10", None])
def test_a_python_that_is_asked_for_and_will_not_do_is_refused(machine: Machine, version: str | None) -> None:
    """Even where another would do: the user named this one."""
    machine.has_python("python3.13", "3.13")
    if version is not None:
        machine.has_python("mine", version)
    assert machine.says("PYTHON=mine").startswith("PYTHON=mine is not Python")


@pytest.mark.parametrize("platform", ["Darwin x86_64", "Linux riscv64", "FreeBSD amd64"])
def test_other_platforms_get_one_sentence(machine: Machine, platform: str) -> None:
    system, kind = platform.split()
    machine.has("uname", f'#!/bin/sh\n[ "$1" = -m ] && echo {kind} || echo {system}\n')
    machine.has_python("python3.13", "3.13")
    assert machine.says().endswith(f"this is {platform}.")


def test_a_second_run_reuses_the_environment_until_the_lock_changes(machine: Machine) -> None:
    lock, settings = machine.folder / "requirements.lock", machine.folder / "pyproject.toml"
    for file in (lock, settings):
        file.touch()
        os.utime(file, (1, 1))
    assert "--require-hashes" in machine.make("--dry-run", "test").stdout
    (machine.folder / ".venv").mkdir()
    machine.make("--touch", "test")
    [stamp] = (machine.folder / ".venv").glob(".installed-*")
    assert stamp.exists()
    assert "--require-hashes" not in machine.make("--dry-run", "test").stdout
    for file in (lock, settings):
        os.utime(file)
        os.utime(stamp, (2, 2))
        assert "--require-hashes" in machine.make("--dry-run", "test").stdout


def test_help_names_every_target(machine: Machine) -> None:
    makefile = (ROOT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = re.findall(r"^  make ([a-z-]+)\s", machine.make("help").stdout, re.MULTILINE)
    assert sorted(shown) == sorted(phony.split())
