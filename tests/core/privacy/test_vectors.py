"""The calibrations of `tests/vectors/calibration.json`, made with 40 digits, to be run in any language."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reticent import privacy

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "calibration.json").read_text())
OPERATIONS = {"gaussian_delta", "gaussian_sigma", "share_variance", "skellam_delta", "skellam_variance", "thesis_sigma"}
CLOSE = 2e-9  # a calibrated Skellam variance is a part in 10^9 on the safe side


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['operation']} {each['arguments']}")
def test_every_vector_gives_its_result_or_its_error(vector: dict[str, Any]) -> None:
    operation = getattr(privacy, vector["operation"])
    if "error" in vector:
        with pytest.raises(ValueError, match=re.escape(vector["error"])):
            operation(**vector["arguments"])
    else:
        found = operation(**vector["arguments"])
        assert found == pytest.approx(vector["result"], rel=CLOSE, abs=0)
        assert found >= vector["result"] * (1 - 1e-15)


def test_the_file_has_successes_and_failures_of_every_operation() -> None:
    assert {each["operation"] for each in VECTORS if "result" in each} == OPERATIONS
    assert {each["operation"] for each in VECTORS if "error" in each} == OPERATIONS
