"""The pictures of experiments: what is written on them can be read."""

from pathlib import Path

import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text

from reticent_sim.experiments.results import Result, Row
from reticent_sim.experiments.statistics import Estimate
from reticent_sim.report import bars
from reticent_sim.report.bars import draw_checks


@pytest.mark.parametrize("low", [-2.1, 0.05, 0.3])
def test_no_error_bar_crosses_the_number_in_its_bar(
    low: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few people there are, and however wide their interval is."""
    part = Estimate(0.2, 0.1, 0.3, 6)
    row: Row = {"system": "hybrid", "breaches": 0, "utility": Estimate(0.4, low, 0.8 - low, 6)}
    row |= dict.fromkeys(bars.PARTS, part)
    settings = {"sensitive": "3", "delta": 0.1, "quick": True, "seed": 1, "sample": "6 people", "intervals": "people"}
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    draw_checks(Result("maskit-checks", "", settings, [row], []), tmp_path / "checks.png")

    [axes] = figures[0].axes
    [number] = [text for text in axes.texts if text.get_text() == "40.0 %"]
    [error_bar] = [each for each in axes.collections if isinstance(each, LineCollection)]
    [[start, _], _] = error_bar.get_segments()[0]
    assert start == pytest.approx(low)
    end = axes.transData.inverted().transform(number.get_window_extent())[1, 0]
    assert 0.05 < end < 0.1
    assert start > end or is_in_front(number, error_bar)


def is_in_front(text: Text, line: LineCollection) -> bool:
    """Whether a text hides a line behind it."""
    box = text.get_bbox_patch()
    return box is not None and to_rgba(box.get_facecolor())[3] == 1 and text.get_zorder() > line.get_zorder()
