"""An estimate that was stopped anywhere continues from its state: it asks nothing twice, and ends the same."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.privacy import AlreadyDecided, Contributions, Query, QueryBurnt, Release
from reticent.protocol import Refusal, Refused
from reticent.randomness import seeded
from reticent.storage import files
from reticent_analyst import Analyst, NeverDecided
from reticent_analyst.rates import LevelBurnt, LevelProgress
from reticent_analyst.rates.state import FORMAT
from tests.analyst.rates.logs import hierarchy, log_of, rates_of, released, rows_of

LOG = log_of(hierarchy(), users=60, size=150, ads=2, rng=seeded(1, "resuming"))


class Killed(BaseException):
    """Stands for a kill."""


class Servers(Analyst):
    """Decides each query once, as servers do, and keeps its bytes. It can be killed, or burn, at any query."""

    def __init__(self) -> None:
        self.decided: dict[str, tuple[bytes, Release | Exception]] = {}
        self.asked: list[bytes] = []
        self.kill_before: set[str] = set()
        self.kill_after: set[str] = set()
        self.failing: dict[str, Exception] = {}

    def count(self, query: Query, counters: Contributions | None = None) -> Release:
        if query.id in self.decided:
            raise AlreadyDecided(query.id)
        if query.id in self.kill_before:
            self.kill_before.remove(query.id)
            raise Killed
        assert counters is not None
        self.asked.append(query.to_bytes())
        value = rows_of(query, counters).sum(axis=0) + seeded(2, query.id).normal(0, 2, query.size)
        release = released(query, value, variance=(4.0,) * query.size)
        self.decided[query.id] = query.to_bytes(), self.failing.get(query.id, release)
        if query.id in self.kill_after:
            self.kill_after.remove(query.id)
            raise Killed
        return self._result(query.id)

    def find(self, name: str) -> Any:
        servers = self

        class Found:
            query = Query.from_bytes(servers.decided[name][0])

            def result(self) -> Release:
                return servers._result(name)

        return Found()

    def _result(self, name: str) -> Release:
        result = self.decided[name][1]
        if isinstance(result, Exception):
            raise result
        return result


@pytest.mark.parametrize("moment", ["before", "asked", "unrecorded", "recorded"])
@pytest.mark.parametrize("depth", [0, 2])
def test_a_killed_estimate_asks_the_same_bytes_once(
    moment: str, depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Servers()
    expected = rates_of(whole, LOG)
    servers, state = Servers(), tmp_path / "state.json"
    name = f"ctr-level-{depth}"
    if moment in {"before", "asked"}:
        (servers.kill_before if moment == "before" else servers.kill_after).add(name)
    else:
        monkeypatch.setattr(files, "replace", Writer(2 * depth + 2, written=moment == "recorded"))
    with pytest.raises(Killed):
        rates_of(servers, LOG, state=state)
    monkeypatch.undo()
    content = FORMAT.parse(state.read_text())
    assert len(content["attempts"]) == depth + 1
    resumed = rates_of(servers, LOG, state=state)
    assert servers.asked == whole.asked
    for field in ("frequency", "ad", "node", "rate", "low", "high", "views"):
        np.testing.assert_array_equal(getattr(resumed, field), getattr(expected, field))
    rates_of(servers, LOG, state=state)
    assert servers.asked == whole.asked


class Writer:
    """Writes files, and is killed at one of them."""

    def __init__(self, last: int, *, written: bool) -> None:
        self.left, self.written, self.replace = last, written, files.replace

    def __call__(self, path: Path, content: bytes) -> None:
        self.left -= 1
        if self.left or self.written:
            self.replace(path, content)
        if not self.left:
            raise Killed


def test_without_the_state_an_estimate_finds_its_queries_by_name(tmp_path: Path) -> None:
    servers = Servers()
    rates_of(servers, LOG, state=tmp_path / "lost")
    asked = list(servers.asked)
    rates_of(servers, LOG)
    assert servers.asked == asked
    with pytest.raises(ValueError, match="there was another query 'ctr-level-0': choose another name"):
        rates_of(servers, LOG, ads={"ad0": ()})


BURNT = QueryBurnt("ctr-level-1", [0], 1)
HALF_BURNT = QueryBurnt("ctr-level-1", [0, 1], 3, [2])
LOST = NeverDecided("the key server was restored")


@pytest.mark.parametrize("failure", [BURNT, HALF_BURNT, LOST, Refused(Refusal.KEY_RETIRED)], ids=repr)
def test_a_burnt_level_gets_a_new_query_and_the_bounds_hold(failure: Exception, tmp_path: Path) -> None:
    """Phones that contributed to a query without a release have used a part of their bounds: one level is lost."""
    servers, state = Servers(), tmp_path / "state.json"
    servers.failing["ctr-level-1"] = failure
    is_spent = failure in {HALF_BURNT, LOST}
    with pytest.raises(Refused if isinstance(failure, Refused) else LevelBurnt) as raised:
        rates_of(servers, LOG, state=state)
    if not isinstance(failure, Refused):
        said = str(raised.value)
        assert said.startswith("level 1 has no release: ")
        assert "1 of 4 levels are released, and the estimate has cost (1, 1e-06) for each phone so far" in said
        assert ("one level less is counted" in said) == is_spent
    levels: list[LevelProgress] = []
    rates_of(servers, LOG, state=state, on_level=levels.append)
    released = [each.query.id for each in levels if each.release is not None]
    names = ["ctr-level-0", "ctr-level-1-attempt-2", "ctr-level-2", "ctr-level-3"]
    assert released == (names[:-1] if is_spent else names)
    attempts = [Query.from_bytes(asked) for asked in servers.asked]
    spent = [each for each in attempts if each.id != "ctr-level-1" or is_spent]
    assert sum(2 * 4 for _ in spent) <= attempts[0].l1


def test_a_first_level_that_is_burnt_has_cost_nothing(tmp_path: Path) -> None:
    servers, state = Servers(), tmp_path / "state.json"
    servers.failing["ctr-level-0"] = QueryBurnt("ctr-level-0", [0], 1)
    with pytest.raises(LevelBurnt, match="the estimate has cost nothing so far"):
        rates_of(servers, LOG, state=state, depth=0)
    rates_of(servers, LOG, state=state, depth=0)
    spent, state = Servers(), tmp_path / "spent.json"
    spent.failing["ctr-level-0"] = QueryBurnt("ctr-level-0", [0, 1], 3, [2])
    with pytest.raises(LevelBurnt, match="has cost"):
        rates_of(spent, LOG, state=state, depth=0)
    with pytest.raises(ValueError, match="burnt queries have used the whole budget: begin a new estimate"):
        rates_of(spent, LOG, state=state, depth=0)


def test_a_smaller_depth_ends_an_estimate_earlier(tmp_path: Path) -> None:
    servers, state = Servers(), tmp_path / "state.json"
    servers.failing["ctr-level-2"] = QueryBurnt("ctr-level-2", [0], 1)
    with pytest.raises(LevelBurnt, match="to end with the levels above, set the depth to 1"):
        rates_of(servers, LOG, state=state)
    asked = len(servers.asked)
    table = rates_of(servers, LOG, state=state, depth=1)
    assert len(servers.asked) == asked
    assert np.isfinite(table.frequency).sum() == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 2.0}, "epsilon = 2.0 instead of 1.0"),
        ({"entries": 3}, "entries = 3 instead of 4"),
        ({"min_support": 7.0}, "min_support = 7.0 instead of 0.0"),
        ({"depth": 3}, "depth = 3 instead of 2"),
        ({"ads": {"ad0": ()}}, "ads = "),
    ],
    ids=str,
)
def test_the_state_of_another_estimate_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    rates_of(Servers(), LOG, state=state, depth=2)
    before = state.read_bytes()
    with pytest.raises(ValueError, match=f"is the state of an estimate with other terms: got {said}"):
        rates_of(Servers(), LOG, **{"state": state, "depth": 2, **changes})
    assert state.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": "reticent-rates-state", "version": 1}', b"\xff"])
def test_a_damaged_state_is_refused_before_anything_is_asked(content: bytes, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_bytes(content)
    servers = Servers()
    with pytest.raises(ValueError, match=r"state\.json: "):
        rates_of(servers, LOG, state=state)
    assert servers.asked == []
    with pytest.raises(FileNotFoundError):
        rates_of(servers, LOG, state=tmp_path / "no folder" / "state.json")


SCRIPT = """
import os, signal, sys
from pathlib import Path
from reticent.randomness import secure
from reticent_sim.local_counts import LocalCounts
from tests.analyst.rates.logs import rates_of
from tests.analyst.rates.test_resuming import LOG

def on_level(progress):
    print(progress.depth, progress.release is not None, progress.query.digest.hex(), flush=True)
    if (progress.depth, progress.release is not None) == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)

rates_of(LocalCounts(secure()), LOG, state=Path(sys.argv[1]), on_level=on_level)
"""


@pytest.mark.slow
def test_after_kill_9_another_process_asks_the_same_bytes(tmp_path: Path) -> None:
    state = tmp_path / "state.json"

    def run(killed: tuple[int, bool] | None) -> tuple[int, list[list[str]]]:
        code = f"KILLED = {killed}\n{SCRIPT}"
        ended = subprocess.run([sys.executable, "-c", code, state], capture_output=True, text=True, check=False)
        return ended.returncode, [line.split() for line in ended.stdout.splitlines()]

    code, first = run((1, False))
    assert code == -signal.SIGKILL
    code, second = run((2, True))
    assert code == -signal.SIGKILL
    code, third = run(None)
    assert code == 0
    assert [line[:2] for line in first] == [["0", "False"], ["0", "True"], ["1", "False"]]
    assert second[0] == first[1]  # the recorded release
    assert second[1] == first[2]  # the same bytes
    assert third[:3] == [line for line in second if line[1] == "True"]
    assert state.stat().st_mode & 0o777 == files.OWNER_ONLY
