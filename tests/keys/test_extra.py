"""Only the key server needs phe, which is under the GPL."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules['phe'] = None; "
PROGRAM = "from reticent.console.program import main; sys.exit(main())"


def run_without_phe(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("package", ["reticent_analyst", "reticent_agg", "reticent_client"])
def test_the_other_roles_are_imported_without_phe(package: str) -> None:
    done = run_without_phe(f"import {package}; assert 'reticent_keys' not in sys.modules")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["certs", "agg", "count", "phone"])
def test_the_other_commands_run_without_phe(command: str) -> None:
    done = run_without_phe(PROGRAM, command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: reticent {command}" in done.stdout


def test_the_key_server_without_phe_names_its_extra() -> None:
    done = run_without_phe(PROGRAM, "keys", "--help")
    assert done.returncode == 2
    assert "pip install 'reticent[keys]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
