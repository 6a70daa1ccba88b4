"""`reticent rates` and the analyst's estimate over the wire, with simulated phones behind a server."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from reticent.console import program
from reticent.errors import ExitCode
from reticent.privacy import Query
from reticent.randomness import seeded
from reticent.rates import RateTable
from reticent_sim.local_counts import LocalCounts
from tests.analyst.command import PROGRAM
from tests.analyst.rates.logs import hierarchy, log_of
from tests.parties.counting_server import DEADLINE, CountingServer

PLACES = hierarchy()
LOG = log_of(PLACES, users=200, size=700, ads=2, rng=seeded(1, "cli"))

Run = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def server(certificates: Path) -> Iterator[CountingServer]:
    with CountingServer(certificates) as server:
        server.population = LOG.users
        phones = LocalCounts(seeded(2, "phones"), absent=0.05)
        server.phones = lambda query: phones._collected(query, LOG.counters(query))
        yield server


@pytest.fixture
def folder(tmp_path: Path, server: CountingServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    PLACES.save(tmp_path / "hierarchy.json")
    (tmp_path / "ads.csv").write_text("ad,contexts\nad0,\nad1,1|a;1|b\n")
    (tmp_path / "identity.pub").write_text(server.signer.public.hex() + "\n")
    return tmp_path


def arguments(server: CountingServer, *others: str) -> list[str]:
    options = "--hierarchy hierarchy.json --ads ads.csv --id ctr --epsilon 4 --delta 1e-6 --entries 4 --min-support 9"
    where = ["--address", server.address, "--certs", str(server.folder)]
    where += ["--analyst", "ann", "--identity", "identity.pub"]
    return ["rates", "estimate", "rates.npz", *options.split(), "--absent", "0.3", *where, *others]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_an_estimate_over_the_wire(server: CountingServer, capsys: pytest.CaptureFixture[str]) -> None:
    """From real queries to a table, which is shown and compared; a second run asks nothing."""
    assert program.main(arguments(server, "--yes", "--json")) == ExitCode.DONE
    written = capsys.readouterr()
    content = json.loads(written.out)
    table = RateTable.load("rates.npz")
    assert content["source"] == table.source == "ctr"
    assert len(content["rates"]) == len(table.rate) > 3
    assert content["frequency"]["3"] == 1.0
    assert re.search(r"^level 0 of up to 3: nodes 1, counters 5, phones 1[89]\d$", written.err, re.MULTILINE)
    assert list(server.statuses) == [f"ctr-level-{depth}" for depth in range(len(server.statuses))]
    calls = server.calls.count("announce")
    assert program.main(arguments(server, "--yes")) == ExitCode.DONE
    assert server.calls.count("announce") == calls
    shown = capsys.readouterr().out
    assert "cost    (4, 1e-06) for each phone" in shown
    again = RateTable.load("rates.npz")
    np.testing.assert_array_equal(again.rate, table.rate)
    LOG.rates("log").save("exact.npz")
    assert program.main(["rates", "compare", "rates.npz", "exact.npz", "--hierarchy", "hierarchy.json"]) == 0
    assert "within the intervals" in capsys.readouterr().out
    assert program.main(["rates", "compare", "rates.npz", "exact.npz", "--hierarchy", "hierarchy.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["common"] == len(table.rate)
    options = ["--hierarchy", "hierarchy.json", "--ad", "ad0", "--limit", "1", "--entries", "4"]
    assert program.main(["rates", "show", "rates.npz", *options]) == 0
    shown = capsys.readouterr().out
    assert "ad0" in shown
    assert "ad1" not in shown
    assert "flat histogram" in shown


@pytest.mark.slow
def test_after_kill_9_a_level_is_announced_once(server: CountingServer, folder: Path) -> None:
    """The query collects while the analyst is killed; the next run waits for it."""
    phones, server.phones = server.phones, None
    assert phones is not None
    process = subprocess.Popen(
        [PROGRAM, *arguments(server, "--yes")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + DEADLINE
    while not server.statuses and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE)
    assert not (folder / "rates.npz").exists()
    query = Query.from_bytes(server.statuses["ctr-level-0"].query)
    server.decided(query, phones(query))
    server.phones = phones
    announced = server.calls.count("announce")
    assert program.main(arguments(server, "--yes")) == ExitCode.DONE
    assert server.calls.count("announce") - announced == len(server.statuses) - 1
    assert server.statuses["ctr-level-0"].query == query.to_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_what_an_analyst_would_regret_is_refused_before_it_is_announced(
    server: CountingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments(server)) == ExitCode.BAD_INPUT
    assert "confirmation needs a terminal" in capsys.readouterr().err
    assert program.main(arguments(server, "--yes", "--max-ciphertexts", "0")) == ExitCode.BAD_INPUT
    assert "in 1 ciphertexts of a phone and 4" in (said := capsys.readouterr().err)
    assert "; 0 and 1,047,552 are allowed: raise --min-support" in said
    assert program.main(arguments(server, "--yes", "--state", "ads.csv")) == ExitCode.BAD_INPUT
    assert "ads.csv would overwrite the input ads.csv" in capsys.readouterr().err
    server.phones = lambda query: LocalCounts(absent=1.0)._collected(query, LOG.counters(query))
    assert list(server.statuses) == []
    assert program.main(arguments(server, "--yes")) == ExitCode.BAD_ANSWER
    assert "level 0 has no release: 'ctr-level-0' is burnt" in capsys.readouterr().err


def test_a_table_is_shown_in_part_and_only_with_its_hierarchy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, tree = tmp_path / "rates.npz", tmp_path / "hierarchy.json"
    LOG.rates("shown").save(table)
    PLACES.save(tree)
    show = ["rates", "show", str(table), "--hierarchy", str(tree)]
    assert program.main([*show, "--json", "--limit", "2", "--node", "1|a"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {each["node"] for each in content["rates"]} == {"1|a"}
    assert content["rates"][0]["views"] >= content["rates"][1]["views"]
    assert (content["source"], content["epsilon"]) == ("shown", None)
    assert program.main([*show, "--ad", "unknown"]) == 2
    assert "the rates are of no ad 'unknown'" in capsys.readouterr().err
    assert program.main([*show, "--entries", "4"]) == 2
    assert "has exact rates, without noise: leave out --entries" in capsys.readouterr().err
    hierarchy(("a1", "b1")).save(tree)
    assert program.main(show) == 2
    assert "these are rates of another hierarchy" in capsys.readouterr().err
