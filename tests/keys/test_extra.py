"""Only the key server needs phe, which is under the GPL."""

import subprocess
import sys

import pytest

from reticent.console.program import main

WITHOUT = "import sys; sys.modules['phe'] = None; "
PROGRAM = "from reticent.console.program import main; "


def run_without_phe(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_other_roles_are_imported_without_phe() -> None:
    roles = "reticent_analyst, reticent_agg, reticent_client"
    done = run_without_phe(f"import {roles}; assert 'reticent_keys' not in sys.modules")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_other_commands_run_without_phe() -> None:
    commands = ["certs", "agg", "count", "phone"]
    all_of_them = "sys.exit(any([main([command, '--help']) for command in sys.argv[1:]]))"
    done = run_without_phe(PROGRAM + all_of_them, *commands)
    assert (done.returncode, done.stderr) == (0, "")
    for command in commands:
        assert f"Usage: reticent {command}" in done.stdout


def test_the_key_server_without_phe_names_its_extra() -> None:
    done = run_without_phe(PROGRAM + "sys.exit(main())", "keys", "--help")
    assert done.returncode == 2
    assert "pip install 'reticent[keys]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_seed_needs_a_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "serve", "--seed", "1"]) == 2
    assert "--seed needs --simulation: whoever knows the seed" in capsys.readouterr().err
