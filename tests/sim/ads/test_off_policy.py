"""Off-policy estimates: right on average, and with intervals that contain the truth as often as they promise."""

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import off_policy
from benchmarks.off_policy import BanditLog, Interval, bootstrap, doubly_robust, effective_views, snipw

CONTEXTS, ACTIONS, VIEWS = 3, 4, 2_000
RATES = np.array([[0.3, 0.1, 0.05, 0.2], [0.02, 0.4, 0.1, 0.1], [0.1, 0.1, 0.3, 0.05]])
LOGGED = np.array([[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]])
POLICY = np.array([[0.7, 0.1, 0.1, 0.1], [0.0, 1.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
TRUTH = float((POLICY * RATES).sum() / CONTEXTS)
RUNS = 150

Policy = npt.NDArray[np.float64]


def simulated(seed: int) -> tuple[BanditLog, Policy]:
    """A log of a known policy, and the other policy's probabilities of its views."""
    rng = np.random.default_rng(seed)
    context = rng.integers(CONTEXTS, size=VIEWS)
    action = (rng.random((VIEWS, 1)) > LOGGED[context].cumsum(axis=1)).sum(axis=1)
    reward = (rng.random(VIEWS) < RATES[context, action]).astype(float)
    log = BanditLog(context, action, reward, LOGGED[context, action], ACTIONS)
    return log, POLICY[context]


def model(log: BanditLog) -> Policy:
    """Predictions that are wrong by a half."""
    return 0.5 * RATES[log.context]


@pytest.mark.parametrize("estimator", ["snipw", "doubly robust"])
def test_estimates_are_right_on_average_and_intervals_contain_the_truth(estimator: str) -> None:
    found = []
    for seed in range(RUNS):
        log, policy = simulated(seed)
        found.append(snipw(log, policy) if estimator == "snipw" else doubly_robust(log, policy, model(log)))
    values = np.array([each.value for each in found])
    assert abs(values.mean() - TRUTH) < 4 * values.std(ddof=1) / RUNS**0.5
    covered = np.mean([each.low <= TRUTH <= each.high for each in found])
    assert 0.95 - 4 * (0.05 * 0.95 / RUNS) ** 0.5 <= covered <= 0.995
    widths = np.array([each.high - each.low for each in found])
    assert widths.mean() == pytest.approx(2 * 1.96 * values.std(ddof=1), rel=0.2)


def test_the_bootstrap_agrees_with_the_asymptotic_interval() -> None:
    log, policy = simulated(1)
    one, other = snipw(log, policy), bootstrap(log, policy, np.random.default_rng(1))
    assert other.value == one.value
    assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=0.004)


def test_the_logged_policy_itself_gets_the_mean_of_its_log() -> None:
    log, _ = simulated(2)
    policy = LOGGED[log.context]
    assert snipw(log, policy).value == pytest.approx(log.reward.mean())
    assert effective_views(log, policy) == pytest.approx(VIEWS)
    assert effective_views(log, POLICY[log.context]) < 0.8 * VIEWS


def test_a_policy_without_any_click_is_not_certain_to_have_none() -> None:
    log, _ = simulated(3)
    nothing = BanditLog(log.context, log.action, np.zeros(VIEWS), log.propensity, ACTIONS)
    found = snipw(nothing, POLICY[log.context])
    assert (found.value, found.low) == (0, 0)
    assert 0.001 < found.high < 0.01


def test_the_tables_of_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by hand in the format of the Open Bandit Dataset: one item is clicked more than the others."""
    rng = np.random.default_rng(1)
    for policy, shares in (("random", [0.25] * 4), ("bts", [0.7, 0.1, 0.1, 0.1])):
        for campaign in off_policy.CAMPAIGNS:
            folder = tmp_path / policy / campaign
            folder.mkdir(parents=True)
            lines = ["timestamp,item_id,position,click,propensity_score," + ",".join(off_policy.FEATURES)]
            for number in range(120):
                item = int(rng.choice(4, p=shares))
                click = int(rng.random() < (0.3 if item == 0 else 0.05))
                features = f"a{number % 2},b,c{number % 3},d"
                lines.append(f"2019,{item},{number % 3 + 1},{click},{shares[item]},{features}")
            (folder / f"{campaign}.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("RETICENT_OBD", str(tmp_path))
    monkeypatch.setattr(off_policy, "RESAMPLES", 20)
    monkeypatch.setattr(off_policy, "SUPPORT", 5.0)
    tables = list(off_policy.run())
    assert len(tables) == 3
    assert all("doubly robust" in each and "ours, by the random log" in each for each in tables)


def test_without_the_data_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETICENT_OBD", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    [text] = off_policy.run()
    assert "pip install --no-deps --target obd obp" in text


def test_an_interval_is_shown_in_percent() -> None:
    assert str(Interval(0.0123, 0.01, 0.0156)) == "1.23% (1.00% to 1.56%)"
