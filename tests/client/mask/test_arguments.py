"""Arguments that make no sense are refused with one sentence that names the place."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from reticent_client import (
    MaskIt,
    Policy,
    ceiling,
    mask_sensitive,
    probabilistic,
    split_delta,
)
from tests.client.checks import QUICK, SEARCHING
from tests.client.mask import chains

COIN = chains.coin()  # over x and s


@pytest.mark.parametrize("check", QUICK)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"sensitive": [["s"]]}, "sensitive holds contexts or (step, context) pairs: got ['s']"),
        ({"sensitive": [(0, ["s"])]}, "unknown context ['s']: this chain has "),
        ({"sensitive": 5}, "sensitive must be a set of contexts: got 5"),
        ({"sensitive": {"s": None}, "delta": None}, "delta of 's' must be a number in (0, 1): got None"),
        ({"sensitive": {"s": 0.2}}, "sensitive gives deltas of its own, and delta is given too: give one of the two"),
        ({"delta": "x"}, "delta must be a number in (0, 1): got 'x'"),
        ({"delta": [0.1]}, "delta must be a number in (0, 1): got [0.1]"),
        ({"against": COIN}, "against must be a list of chains: got one chain"),
        ({"against": "x"}, "against must be a list of chains: got 'x'"),
        ({"against": ["x"]}, "against[0] must be a chain: got 'x'"),
    ],
)
def test_what_no_check_can_be_asked(check: Callable[..., Policy], arguments: dict[str, Any], sentence: str) -> None:
    """Whichever check it is."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        check(COIN, **{"sensitive": {"s"}, "delta": 0.1} | arguments)


def test_mask_sensitive_refuses_them_too() -> None:
    """It takes no delta."""
    sensitive: Any = [["s"]]
    with pytest.raises(ValueError, match="sensitive holds contexts"):
        mask_sensitive(COIN, sensitive=sensitive)


@pytest.mark.parametrize("check", [*SEARCHING, ceiling])
@pytest.mark.parametrize("effort", [1.5, "2"])
def test_effort_is_a_whole_number(check: Callable[..., Any], effort: Any) -> None:
    """Nothing is rounded."""
    with pytest.raises(ValueError, match=f"^effort is a whole number of rounds, at least 0: got {effort!r}$"):
        check(COIN, sensitive={"s"}, delta=0.1, effort=effort)


@pytest.mark.parametrize("among", ["hospital", True, 1.5, None])
def test_delta_is_split_among_several(among: Any) -> None:
    """The letters of a label are not several contexts."""
    sentence = f"^delta is split among a number of contexts or a set of them: got {among!r}$"
    with pytest.raises(ValueError, match=sentence):
        split_delta(0.2, among)


@pytest.mark.parametrize("rng", [42, "seed"])
def test_coins_come_from_a_generator(rng: Any) -> None:
    """A seed is none."""
    with pytest.raises(ValueError, match=f"^rng must be a NumPy Generator, .*: got {rng!r}$"):
        MaskIt(mask_sensitive(COIN, sensitive={"s"}), rng)


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [(2.5, "grid must be a whole number of at least 1: got 2.5"), (0, "grid must be at least 1: got 0")],
)
def test_a_grid_is_a_whole_number_of_parts(grid: Any, sentence: str) -> None:
    """Half a part is no part."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        probabilistic(COIN, sensitive={"s"}, delta=0.1, grid=grid)
