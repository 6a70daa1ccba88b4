"""The picture of a schedule of faults."""

from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.text import Text

from reticent_sim.engine.faults import Fault, FaultSchedule, sample
from reticent_sim.report.style import STYLE
from reticent_sim.report.timeline import draw_timeline, timeline

LONGEST = Fault(6, 23, "partition", "phones 999990-999999", server="aggregation", steps=100, phase=5)


@pytest.mark.parametrize("faults", [1, 9, 40])
def test_every_fault_has_its_row_and_no_text_covers_another_or_is_cut_off(faults: int) -> None:
    schedule = sample(3, phones=1000, days=7, faults=faults - 1, counts=[(5, 23), (6, 23)]).joined([LONGEST])
    with mpl.rc_context(STYLE):
        figure = timeline(schedule, "The faults of a run", "reticent simulate --seed 3")
        figure.draw_without_rendering()
        texts = [each for each in figure.findobj(Text, include_self=False) if each.get_visible()]
        boxes = {each: each.get_window_extent() for each in texts if each.get_text()}
    for one, other in combinations(boxes, 2):
        overlap = boxes[one].shrunk(0.99, 0.9).overlaps(boxes[other].shrunk(0.99, 0.9))
        assert not overlap, (one.get_text(), other.get_text())
    for text, box in boxes.items():
        assert figure.bbox.x0 <= box.x0, text
        assert box.x1 <= figure.bbox.x1, text
    shown = [each.get_text() for each in boxes]
    for fault in schedule.faults:
        assert fault.target in shown
    assert "partition from aggregation, 100 rounds" in shown
    assert "day 6, 23:00, round 5" in shown


def test_a_schedule_without_faults_has_a_picture_too(tmp_path: Path) -> None:
    draw_timeline(FaultSchedule(), tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")
