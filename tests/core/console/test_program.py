"""The program `reticent`: its help, its exit codes, and what it says where an extra is missing."""

import importlib
import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import cyclopts
import pytest
from packaging.requirements import Requirement

import reticent
from reticent.console import program
from reticent.errors import ExitCode, MissingExtra, ReticentError

PROGRAM = Path(sys.executable).with_name("reticent")
ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> cyclopts.App:
    """The app of a subcommand `stage`, which each test gives something to do."""
    app = cyclopts.App(name="stage")
    monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
    command = program.Command(name="stage", app=f"{__name__}:app", help="Plays.", extra="sim")
    monkeypatch.setattr(program, "COMMANDS", (*program.COMMANDS, command))
    return app


@pytest.mark.parametrize("arguments", [[], ["-h"]])
def test_without_arguments_the_program_prints_its_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert program.main(["--help"]) == 0
    help_text = capsys.readouterr().out
    assert program.main(arguments) == 0
    assert capsys.readouterr().out == help_text


def test_help_imports_no_role_and_no_mathematics() -> None:
    heavy = _python(
        "from reticent.console.program import main; main(['--help'])",
        "import sys; roles = {'numpy', 'reticent_client', 'reticent_sim'} & sys.modules.keys()",
        "print(sorted(roles), file=sys.stderr)",
    )
    assert heavy.stderr == "[]\n"


@pytest.mark.parametrize("command", program.COMMANDS, ids=lambda command: command.name)
def test_every_subcommand_is_where_the_table_says(command: program.Command) -> None:
    module, attribute = command.app.split(":")
    app = getattr(importlib.import_module(module), attribute)
    assert isinstance(app, cyclopts.App)
    assert app.name == (command.name,)
    assert command.extra in PROJECT["optional-dependencies"]


def test_version() -> None:
    run = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"reticent {reticent.__version__}\n"


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (1, 1), (2, 2)])
def test_the_exit_code_is_what_the_subcommand_returns(stage: cyclopts.App, returned: int | None, code: int) -> None:
    stage.default(lambda: returned)
    assert program.main(["stage"]) == code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("delta must lie in (0, 1): got 1.5"), 2, "delta must lie in (0, 1): got 1.5"),
        (FileNotFoundError(2, "No such file", "days.csv"), 2, "days.csv: No such file"),
        (OSError("no space"), 7, "no space"),
        (ReticentError("the budget is spent"), 3, "the budget is spent"),
        (ReticentError("refused: x\x1b[2K\r\nall is well\u202e"), 3, r"refused: x\x1b[2K\r\nall is well\u202e"),
        (
            MissingExtra("optimal", "plan", "scipy"),
            2,
            "optimal needs scipy: pip install 'reticent[plan]'",
        ),
        (
            ModuleNotFoundError("No module named 'scipy'", name="scipy.sparse"),
            2,
            "reticent stage needs scipy: pip install 'reticent[plan]'",
        ),
    ],
)
def test_an_error_is_one_sentence(
    stage: cyclopts.App,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    sentence: str,
) -> None:
    def fail() -> None:
        raise error

    stage.default(fail)
    assert program.main(["stage"]) == code
    assert capsys.readouterr() == ("", f"reticent: {sentence}\n")


@pytest.mark.parametrize("error", [ModuleNotFoundError(name="reticent_sim.lost"), KeyError("lost")])
def test_a_mistake_of_our_own_is_not_hidden(
    stage: cyclopts.App, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail() -> None:
        raise error

    stage.default(fail)
    assert program.main(["stage"]) == ExitCode.DEFECT
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert type(error).__name__ in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["flee"], "reticent --help"),
        (["--flee"], "reticent --help"),
        (["stage", "--flee", "1"], "reticent stage --help"),
        (["stage", "--size", "many"], "reticent stage --help"),
    ],
)
def test_wrong_usage_says_where_the_help_is(
    stage: cyclopts.App,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    def play(size: int = 1) -> None:
        del size

    stage.default(play)
    assert program.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("reticent: ")
    assert err.count("\n") == 1
    assert f"See `{sentence}`." in err


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_a_reader_that_has_enough_ends_the_run_quietly(argument: str) -> None:
    """As `reticent ... | head -n 1` does."""
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([PROGRAM, argument], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert run.returncode != 0
    assert run.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "hidden", "sentence"),
    [
        ([], "cyclopts", "the command line needs cyclopts: pip install 'reticent[cli]'"),
        (["--help"], "rich", "the command line needs rich: pip install 'reticent[cli]'"),
        (["mask"], "cyclopts", "reticent mask needs cyclopts: pip install 'reticent[cli]'"),
        (["demo"], "cyclopts", "reticent demo needs cyclopts: pip install 'reticent[sim]'"),
        (["demo"], "matplotlib", "reticent demo needs matplotlib: pip install 'reticent[sim]'"),
        (["experiment"], "scipy", "reticent experiment needs scipy: pip install 'reticent[sim]'"),
    ],
)
def test_a_missing_extra_is_named(arguments: list[str], hidden: str, sentence: str) -> None:
    run = _python(
        f"import sys; sys.modules[{hidden!r}] = None",
        f"from reticent.console.program import main; sys.exit(main({arguments!r}))",
    )
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"reticent: {sentence}\n")


def test_the_version_needs_no_extra() -> None:
    run = _python(
        "import sys; sys.modules['cyclopts'] = sys.modules['rich'] = None",
        "from reticent.console.program import main; sys.exit(main(['--version']))",
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_the_extra_named_for_a_library_brings_it() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, libraries in program.EXTRAS.items():
        assert set(libraries) == set(_brought(extra, extras))


MODULES = {"grpcio-health-checking": "grpc_health", "prometheus-client": "prometheus_client"}
"""Libraries that are imported by another name."""


def _brought(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    for requirement in map(Requirement, extras[extra]):
        if requirement.name == "reticent":
            for inner in requirement.extras:
                yield from _brought(inner, extras)
        else:
            yield MODULES.get(requirement.name, requirement.name)


def _python(*lines: str) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent("\n".join(lines))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_interrupt_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control-C says one word, and the code that shells expect of it."""

    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "_run", interrupted)
    assert program.main(["demo"]) == ExitCode.STOPPED
    assert capsys.readouterr().err == "reticent: stopped\n"
