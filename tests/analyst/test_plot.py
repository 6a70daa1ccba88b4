"""A plot of a release's statistics, and what is written where matplotlib is missing."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from reticent_analyst.intervals import Statistic
from reticent_analyst.plot import save_plot
from tests.analyst.command import QUESTION

MIXED = [
    Statistic("total", "kilometres", 12034.0, 11700.0, 12368.0),
    Statistic("total", "$x_{1}$ [red]\x1b[31m " + "long " * 20, 2801.0, 2790.0, 2812.0),
    Statistic("share", "kilometres[0,2)", 0.42, 0.38, 0.46),
    Statistic("share", "kilometres[2,inf)", -0.01, -0.05, 0.03),
    Statistic("share", "age[0,120)", 0.8, 0.76, 0.84),
    Statistic("mean", "キロ", 3.01, 2.93, 3.09),
    Statistic("ratio", "unbounded", math.nan, -math.inf, math.inf),
]


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_plot_shows_statistics_of_all_kinds(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"walk{ending}"
    save_plot(MIXED, path, title="walk")
    assert path.stat().st_size > 5000


def test_a_plot_has_a_panel_for_each_unit_and_each_value_in_it(tmp_path: Path) -> None:
    path = tmp_path / "walk.svg"
    save_plot(MIXED, path, title="walk")
    text = path.read_text(encoding="utf-8")
    for words in (
        "<!-- Totals -->",
        "<!-- Means over the contributors -->",
        "<!-- Ratios -->",
        "<!-- kilometres: share of the contributors -->",
        "<!-- age: share of the contributors -->",
        "12,034 (11,700 to 12,368)",
        "unbounded: the denominator may be 0",
        "[2,inf)",
    ):
        assert words in text, words
    assert "\x1b" not in text


def test_a_plot_needs_no_library_of_another_extra(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('scipy', 'cyclopts', 'rich', 'pandas', 'phe', 'grpc_health')))\n"
        "from pathlib import Path\n"
        "from reticent_analyst import Statistic\n"
        "from reticent_analyst.plot import save_plot\n"
        "save_plot([Statistic('total', 'visits', 12.0, 11.0, 13.0)], Path('gym.png'), title='gym')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "gym.png").stat().st_size > 5000


@pytest.mark.parametrize("statistic", MIXED)
def test_each_statistic_has_a_plot_of_its_own(tmp_path: Path, statistic: Statistic) -> None:
    save_plot([statistic], tmp_path / "one.png", title="one")


PROGRAM = """
import sys
sys.modules["matplotlib"] = None  # importing it raises ImportError
from reticent.console.program import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["new gym.toml", "result gym"])
def test_without_matplotlib_a_plot_is_one_sentence_before_anything_is_announced(tmp_path: Path, command: str) -> None:
    (tmp_path / "gym.toml").write_text(QUESTION)
    options = ["--identity", "ab" * 32, "--analyst", "ann", "--plot", "gym.png"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "count", *command.split(), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "reticent: reticent count needs matplotlib: pip install 'reticent[plot]'\n"
