"""The numbers that a phone is given on the command line of `reticent phone`, or in a file."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reticent.console import program
from reticent_client import Declined
from reticent_client.counting.inputs import Counted
from reticent_client.errors import Reason
from tests.client.counting.command import joined, started, told, within
from tests.client.counting.world import query

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all


def test_numbers_that_count_otherwise_than_given_are_named(tmp_path: Path) -> None:
    """The phone contributes all the same: the servers see whether it does."""

    async def live() -> None:
        async with joined(tmp_path) as network:
            for number, (given, notes) in enumerate(
                [
                    (["visits=2"], []),
                    (
                        ["swims=3"],
                        [
                            "'q1' asks for 'visits', which was not given: it counts as 0",
                            "no new contribution uses 'swims'",
                        ],
                    ),
                    (["visits=1e9"], ["'q2' takes 'visits' as 3, not 1e+09: its bounds are 0 and 3"]),
                    (["visits=nan"], ["'q3' takes 'visits' as 0, not nan: its bounds are 0 and 3"]),
                ]
            ):
                network.queries = [query(id=f"q{number}", epsilon=0.5, counters=[("visits", 0, 3)], l1=3, l2_squared=9)]
                out, complained = await told(tmp_path, "contribute", *given, "--simulation")
                assert f"q{number}: contributed at (0.5, 1e-06)" in out
                assert complained.splitlines() == [f"reticent: {note}" for note in notes]
            _, complained = await told(tmp_path, "contribute", "visits=1", "--simulation")
            assert complained == "reticent: no new contribution uses 'visits'\n"
            network.queries = []
            path = tmp_path / "counters.csv"
            path.write_text("name,value\nvisits,1\nwalks,2\n", encoding="utf-8")
            for source in (["visits=1", "walks=2"], ["--counters", "counters.csv"]):
                _, complained = await told(tmp_path, "contribute", *source, "--simulation")
                assert complained == "reticent: no new contribution uses 'visits', 'walks'\n"
            network.queries = [query(id="q4", epsilon=0.5, counters=[("visits", 0, 3)], l1=3, l2_squared=9)]
            _, complained = await told(tmp_path, "contribute", *source, "--simulation")
            assert complained == "reticent: no new contribution uses 'walks'\n"

    within(live())


def test_a_running_phone_names_numbers_that_it_changes_once(tmp_path: Path) -> None:
    async def live() -> None:
        async with joined(tmp_path) as network:
            network.queries = [query(id="q", epsilon=0.5, counters=[("visits", 0, 3)], l1=3, l2_squared=9)]
            (tmp_path / "counters.csv").write_text("name,value\nvisits,9\nwalks,2\n", encoding="utf-8")
            process = await started(tmp_path, "run", "--counters", "counters.csv", "--simulation")
            assert process.stdout is not None
            lines = [(await process.stdout.readline()).decode() for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            rest, complained = await process.communicate()
            assert "q: contributed" in lines[1]
            assert lines[2] == "'q' takes 'visits' as 3, not 9: its bounds are 0 and 3\n"
            assert (rest, complained) == (b"", b"")

    within(live())


BAD_COUNTERS = [
    ("a.json", '{"visits": "many"}', "a.json: 'visits' must be a number: got 'many'"),
    ("a.json", '{"visits": 1', "a.json is no JSON: "),
    ("a.json", '{"visits": ' * 100_000, "a.json is no JSON: it is nested too deeply"),
    ("a.csv", "visits,1\n", "a.csv must be a JSON object, or CSV with the header name,value"),
    ("a.csv", "", "a.csv must be a JSON object, or CSV with the header name,value"),
    ("a.csv", "name,value\nvisits,one\n", "a.csv, line 2 must be a number: got 'one'"),
    ("a.csv", "name,value\nvisits,1\nvisits,2\n", "a.csv, line 3: a line has a new name and a value"),
    ("a.csv", "name,value\nvisits\n", "a.csv, line 2: a line has a new name and a value"),
]


@pytest.mark.parametrize("case", BAD_COUNTERS)
def test_counters_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: tuple[str, str, str]
) -> None:
    name, content, sentence = case
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    assert program.main(["phone", "contribute", "--counters", name]) == 2
    assert capsys.readouterr().err.startswith(f"reticent: {sentence}")


def test_counters_that_are_being_written_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    path.write_text('{"visits": 1}')
    counted = Counted(path, ["swims=2"])
    fitting = query(counters=[("visits", 0, 3)], l1=3, l2_squared=9)
    assert counted.among(query()) == {"visits": 1, "swims": 2}
    assert counted.among(query(counters=[("else", 0, 1)], l1=1, l2_squared=1)) is not None  # or it tells who has some
    assert Counted(path, []).among(query()) == {"visits": 1}
    assert Counted(None, []).among(query()) is None
    noting = Counted(path, ["visits=9"])
    noting.among(fitting)
    path.write_text('{"visits"')
    (note,) = noting.notes({fitting.digest}, with_unused=True)
    assert "takes 'visits' as 3, not 9" in note
    assert not noting._taken  # a phone that runs for years remembers no queries
    assert [*noting.notes(set(), with_unused=True)] == ["no new contribution uses 'visits'"]
    assert [*noting.notes({fitting.digest}, with_unused=False)] == []
    with pytest.raises(Declined, match="is no JSON") as declined:
        counted.among(query())
    assert declined.value.reason is Reason.BAD_COUNTERS
