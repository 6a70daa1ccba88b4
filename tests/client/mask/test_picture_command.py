"""`reticent mask picture`: days under a policy, what was silent when, and why."""

import sys
from pathlib import Path

import numpy as np
import pytest

from reticent.randomness import seeded
from reticent_client import Adversary, MarkovChain, MaskIt, adaptive, audit, mask_sensitive
from reticent_client.mask.day_view import view_days
from reticent_client.mask.explanation import explain
from tests.client.commands import Run, days, furnish, runner
from tests.client.mask import chains

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program in a folder with files, in this process."""
    furnish(tmp_path)
    return runner(tmp_path, monkeypatch, capsys)


def test_silence_has_the_reason_that_explain_gives() -> None:
    """After the last release of the day; what is released and believed is what the phone and the adversary have."""
    policy = adaptive(chains.two_paths(), sensitive={"s"}, delta=0.1)
    real = [(day.name, day.labels) for day in days(20)]
    seen = set()
    for (_, labels), view in zip(real, view_days(policy, real, seeded(1)), strict=True):
        last: tuple[int, str] | None = None
        for t, (label, output, reason) in enumerate(zip(labels, view.outputs, view.reasons, strict=True)):
            if output is None:
                assert label is not None
                (found,) = explain(policy, t, "start" if last is None else last, contexts=[label]).contexts
                assert reason == found.reason
                seen.add(reason)
            else:
                assert reason == "released"
                last = t, output
        (belief,) = view.beliefs
        exact = Adversary(policy).beliefs(view.outputs)[:, policy.index("s")]
        assert belief.belief == pytest.approx(exact)
        assert belief.bound == pytest.approx(np.minimum(belief.prior + 0.1, 1))
        assert view.worst.rise <= 0.1 + 1e-9
        assert view.on_model
    assert seen == {"reveals", "cover"}


def test_other_silence_has_a_reason_too() -> None:
    """Contexts that the chain does not know, gaps, and what a mask hides."""
    policy = mask_sensitive(chains.two_paths(), sensitive={"s"})
    (day,) = view_days(policy, [("mon", ["a", "s", None])])
    assert (day.reasons, day.on_model) == (("released", "mask", "gap"), False)
    (day,) = view_days(policy, [("mon", ["gym", "z", "k"])])
    assert day.reasons[0] == "off_model"
    assert day.contexts == ("gym", "z", "k")


def test_silence_after_a_step_off_the_model() -> None:
    """The policy would have released the step before; the chain allows the context that follows."""
    rows = np.array([[[1, 0, 0]] * 3, [[0.5, 0, 0.5]] * 3])
    chain = MarkovChain(["x", "y", "s"], [1, 0, 0], rows)
    policy = mask_sensitive(chain, sensitive={"s"})
    assert MaskIt(policy).filter_day(["x", "y", "s"]) == ["x", None, None]
    (day,) = view_days(policy, [("mon", ["x", "y", "s"])])
    assert day.reasons == ("released", "off_model", "after_off_model")


@pytest.mark.parametrize("chosen", [["--day", "day 3"], ["--day", "day 3", "--day", "day 5"], ["--last", "2"], []])
def test_days_become_a_picture(run: Run, tmp_path: Path, chosen: list[str]) -> None:
    run("picture", "private.npz", "days.csv", "-o", "p.png", "--seed", "1", *chosen)
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)


def test_a_picture_of_anything_real(run: Run, tmp_path: Path) -> None:
    """Gaps, contexts that the chain does not know, and labels that look like formulas."""
    chain = chains.layered({"$a$": 0.5, "s": 0.5})
    mask_sensitive(chain, sensitive={"s"}).save("odd.npz")
    text = "day,step,context\nmon,0,$a$\ntue,0,s\nwed,0,gym\nthu,0,\nfri,0,$a$\n"
    run("picture", "odd.npz", "-o", "p.png", stdin=text)
    run("picture", "odd.npz", "-o", "q.png", "--day", "mon", stdin=text)
    assert (tmp_path / "p.png").read_bytes() != (tmp_path / "q.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("days.csv -o p.png --day monday", "days.csv: there is no day 'monday'"),
        ("days.csv -o p.png --last 0", "--last must be at least 1: got 0"),
        ("empty.csv -o p.png", "empty.csv: there are no days to draw"),
        ("many.csv -o p.png --last 99", "a picture shows at most 60 days: got 61"),
        ("days.csv -o days.csv", "days.csv would overwrite the input days.csv: name another output"),
    ],
)
def test_bad_input(run: Run, tmp_path: Path, arguments: str, said: str) -> None:
    """Exits with 2 and one sentence, and writes nothing."""
    (tmp_path / "empty.csv").write_text("day,step,context\n")
    (tmp_path / "many.csv").write_text("day,step,context\n" + "".join(f"{k},2,j\n" for k in range(61)))
    before = sorted(tmp_path.iterdir())
    assert run("picture", "private.npz", *arguments.split(), code=2).stderr == f"reticent: {said}\n"
    assert sorted(tmp_path.iterdir()) == before


def test_without_matplotlib(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named."""
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "reticent_client.pictures."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = run("picture", "private.npz", "days.csv", "-o", "p.png", code=2)
    assert "pip install 'reticent[plot]'" in said.stderr


def test_a_policy_of_several_adversaries(run: Run, tmp_path: Path) -> None:
    """The belief is that of the adversary who learns most, as in an audit, wherever they stand in the list."""
    chain = chains.two_paths()
    real = [(day.name, day.labels) for day in days(20)]
    for number, against in enumerate([[chain, chain.frequencies()], [chain.frequencies(), chain]]):
        policy = adaptive(chain, sensitive={"s"}, delta=0.1, against=against)
        worst = max((view.worst for view in view_days(policy, real, seeded(1))), key=lambda belief: belief.rise)
        audited = audit(policy, [labels for _, labels in real], rng=seeded(1)).on_model.largest
        assert audited is not None
        assert worst.rise == pytest.approx(audited.rise)
        assert worst.adversary == number
        policy.save("both.npz")
    run("picture", "both.npz", "days.csv", "--day", "day 1", "-o", "p.png")
    assert (tmp_path / "p.png").exists()


def test_only_sensitive_steps_count() -> None:
    """The belief may rise at will where the context is not sensitive."""
    chain = chains.layered({"s": 0.5, "x": 0.5}, {"s": {"s": 0.5, "x": 0.5}, "x": {"s": 0.5, "x": 0.5}})
    policy = adaptive(chain, sensitive={(1, "s")}, delta=0.1)
    (view,) = view_days(policy, [("mon", ["s", "x"])], seeded(1))
    audited = audit(policy, [["s", "x"]], rng=seeded(1)).on_model.largest
    assert audited is not None
    assert view.outputs[0] == "s"
    assert view.worst.rise == pytest.approx(audited.rise)
    assert view.worst.rise <= 0.1 + 1e-9
