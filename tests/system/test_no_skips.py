"""Where nothing may be skipped, a skip is a failure."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SKIPS = {
    "marked": "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n",
    "called": "import pytest\ndef test_it(): pytest.skip('no')\n",
    "in a fixture": ("import pytest\n@pytest.fixture\ndef it(): pytest.skip('no')\ndef test_it(it): pass\n"),
    "module": "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
}
EXPECTED_FAILURE = "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"


def run(folder: Path, source: str, no_skips: str) -> int:
    """The exit code of pytest on one file under our conftest."""
    shutil.copy(CONFTEST, folder)
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", folder, folder],
        cwd=folder,
        env={**os.environ, "RETICENT_NO_SKIPS": no_skips},
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skip_fails_where_nothing_may_be_skipped(tmp_path: Path, source: str) -> None:
    assert run(tmp_path, source, no_skips="1") in {
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.INTERRUPTED,
    }


def test_a_skip_passes_elsewhere(tmp_path: Path) -> None:
    assert run(tmp_path, SKIPS["called"], no_skips="") == pytest.ExitCode.OK


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    assert run(tmp_path, EXPECTED_FAILURE, no_skips="1") == pytest.ExitCode.OK
