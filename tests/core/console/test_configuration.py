"""Where a command takes its options from: flags before the environment before a file."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import cyclopts
import pytest

from reticent.console import program
from reticent.console.configuration import configured
from reticent_agg.cli import app as agg
from reticent_keys.cli import app as keys

ROOT = Path(__file__).parents[3]

Run = Callable[..., int]


@pytest.fixture
def seen() -> dict[str, object]:
    """What the commands were called with."""
    return {}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: dict[str, object]) -> Run:
    """Run `reticent stage ...` in an empty folder."""
    app = cyclopts.App(name="stage", config=configured("stage"))

    @app.command
    def serve(
        journal: Path = Path("journal.db"),
        /,
        *,
        address: str = "localhost:1",
        in_flight: int = 10,
        host: list[str] | None = None,
        json: Annotated[bool, cyclopts.Parameter(name="--json")] = False,
    ) -> None:
        seen.update(journal=journal, address=address, in_flight=in_flight, host=host, json=json)

    @app.command(name="take-back")
    def take_back(*, phone: str = "nobody") -> None:
        seen.update(phone=phone)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETICENT_CONFIG", raising=False)
    monkeypatch.setattr(sys.modules[__name__], "app", app, raising=False)
    command = program.Command(name="stage", app=f"{__name__}:app", help="Plays.", extra="cli")
    monkeypatch.setattr(program, "COMMANDS", (*program.COMMANDS, command))
    return lambda *arguments: program.main(["stage", *arguments])


def test_flags_are_stronger_than_the_environment_and_that_than_a_file(
    run: Run, seen: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("serve") == 0
    assert (seen["address"], seen["in_flight"]) == ("localhost:1", 10)
    Path("reticent.toml").write_text(
        '[stage.serve]\naddress = "file:1"\nin-flight = 20\nhost = ["a", "b"]\njson = true\n'
    )
    assert run("serve") == 0
    assert (seen["address"], seen["in_flight"], seen["host"], seen["json"]) == ("file:1", 20, ["a", "b"], True)
    monkeypatch.setenv("RETICENT_STAGE_SERVE_ADDRESS", "environment:1")
    monkeypatch.setenv("RETICENT_STAGE_SERVE_IN_FLIGHT", "30")
    assert run("serve") == 0
    assert (seen["address"], seen["in_flight"], seen["host"]) == ("environment:1", 30, ["a", "b"])
    assert run("serve", "--address", "flag:1") == 0
    assert (seen["address"], seen["in_flight"]) == ("flag:1", 30)


def test_a_command_of_two_words_has_its_options_too(
    run: Run, seen: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("reticent.toml").write_text('[stage.take-back]\nphone = "one"\n')
    assert run("take-back") == 0
    assert seen == {"phone": "one"}
    monkeypatch.setenv("RETICENT_STAGE_TAKE_BACK_PHONE", "two")
    assert run("take-back") == 0
    assert seen == {"phone": "two"}


def test_other_commands_options_are_not_ours(
    run: Run, seen: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("reticent.toml").write_text('[stage.serve]\naddress = "file:1"\n[phone]\nphone = "three"\n')
    monkeypatch.setenv("RETICENT_OTHER_TAKE_BACK_PHONE", "four")
    assert run("take-back") == 0
    assert seen == {"phone": "nobody"}


def test_the_environment_names_another_file(
    run: Run, seen: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("reticent.toml").write_text('[stage.serve]\naddress = "file:1"\n')
    Path("other.toml").write_text('[stage.serve]\naddress = "other:1"\n')
    monkeypatch.setenv("RETICENT_CONFIG", "other.toml")
    assert run("serve") == 0
    assert seen["address"] == "other:1"
    monkeypatch.setenv("RETICENT_CONFIG", "nowhere.toml")
    assert run("serve") == 2
    assert capsys.readouterr().err == "reticent: nowhere.toml: No such file or directory\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"[stage.serve\n", "reticent.toml cannot be read as TOML"),
        (b"a = '\xff'\n", "reticent.toml cannot be read as TOML"),
        (b"a = " + b"[" * 10_000, "reticent.toml cannot be read as TOML"),
        (b"[stage.serve]\nadress = 'a:1'\n", "adress"),
        (b"[stage.serve]\nin-flight = 'many'\n", "many"),
        (b"[stage]\nserve = 1\n", "must be a mapping"),
        (b"[stagf.serve]\naddress = 'a:1'\n", "reticent.toml has a table of no command: [stagf]"),
        (b"[stage.server]\naddress = 'a:1'\n", "reticent.toml has a table of no command: [stage.server]"),
        (b"address = 'a:1'\n", "reticent.toml has a table of no command: [address]"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_of_one_sentence(
    run: Run, seen: dict[str, object], capsys: pytest.CaptureFixture[str], content: bytes, sentence: str
) -> None:
    Path("reticent.toml").write_bytes(content)
    assert run("serve") == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not seen


def test_the_tables_of_others_and_of_other_commands_are_theirs(run: Run, seen: dict[str, object]) -> None:
    Path("reticent.toml").write_text(
        "[keys.serve]\nx = 1\n[agg.zzz]\nx = 1\n[count]\n[phone.watch]\n[stage.take-back]\nphone = 'a'\n"
    )
    assert run("serve") == 0
    assert seen["address"] == "localhost:1"
    assert run("take-back") == 0
    assert seen == seen | {"phone": "a"}


def test_an_option_of_the_environment_that_is_wrong_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETICENT_STAGE_SERVE_IN_FLIGHT", "many")
    assert run("serve") == 2
    err = capsys.readouterr().err
    assert "RETICENT_STAGE_SERVE_IN_FLIGHT" in err
    assert err.count("\n") == 1


def test_a_file_that_may_not_be_read_is_an_error(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    Path("reticent.toml").mkdir()
    assert run("serve") == 2
    assert capsys.readouterr().err == "reticent: reticent.toml: Is a directory\n"


@pytest.mark.usefixtures("run")
def test_an_app_that_is_called_by_itself_has_the_same_options(
    seen: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETICENT_STAGE_SERVE_ADDRESS", "environment:1")
    Path("reticent.toml").write_text("[stage.serve]\nin-flight = 20\n")
    sys.modules[__name__].app(["serve"], result_action="return_value")
    assert (seen["address"], seen["in_flight"]) == ("environment:1", 20)


def test_the_sample_of_the_documents_fits_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option in it is one, and arrives."""
    [sample] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "deployment.md").read_text(), re.DOTALL)
    (tmp_path / "sample.toml").write_text(sample)
    monkeypatch.setenv("RETICENT_CONFIG", str(tmp_path / "sample.toml"))
    for name, command_line in (("keys", keys), ("agg", agg)):
        _, bound, _ = command_line.parse_args(["serve"], exit_on_error=False, print_error=False)
        wanted = tomllib.loads(sample)[name]["serve"]
        assert wanted
        arrived = dict(bound.arguments)
        if "limits" in arrived:
            arrived |= asdict(arrived["limits"])
        assert {option: str(arrived[option.replace("-", "_")]) for option in wanted} == {
            option: str(value) for option, value in wanted.items()
        }
