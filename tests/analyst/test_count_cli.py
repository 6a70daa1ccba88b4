"""`reticent count`, run as people run it: tables, JSON for machines, exit codes, one sentence where it fails."""

import contextlib
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reticent.console import program
from reticent.privacy import CohortSum, Query
from reticent.v1 import counting_pb2 as wire
from tests.analyst.command import KNOWN, PROGRAM, QUESTION, rows
from tests.parties.counting_server import DEADLINE, CountingServer

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(
    server: CountingServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a subcommand against the server, and gives what it wrote."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    identity = tmp_path / "identity.pub"
    identity.write_text(server.signer.public.hex() + "\n")

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        where = ["--address", server.address, "--certs", str(server.folder), "--analyst", "ann"]
        assert program.main(["count", *arguments, *where, "--identity", str(identity)]) == code
        return tuple(capsys.readouterr())  # type: ignore[return-value]

    return run


# Asking.


def test_a_new_query_is_planned_announced_and_shown(server: CountingServer, run: Run, file: str) -> None:
    server.phones = lambda _: [KNOWN[0], CohortSum(3, None), KNOWN[2]]
    out, err = run("new", file, "--yes")
    assert err == ""
    assert "gym: 60 phones, 20.0% of them absent" in out
    assert rows(out)["visits"][0] == "41.9"  # (20 + 18) * 32/29
    words = " ".join(out.split())
    assert "contributors 32" in words
    assert "cohorts burnt 1: too few contributions; their phones keep the budget" in words
    query = Query.from_bytes(server.statuses["gym"].query)
    assert (query.population, query.key_id, query.min_contributions) == (60, server.key.key_id.hex(), 12)


def test_a_query_that_phones_have_no_budget_for_is_announced_with_a_warning(
    server: CountingServer, run: Run, file: str
) -> None:
    Path(file).write_text(QUESTION.replace("epsilon = 1.0", "epsilon = 2.5"))
    server.phones = lambda _: KNOWN
    out, _ = run("new", file, "--yes")
    assert "warning" not in out
    assert "suffices for one such query" in " ".join(out.split())
    out, _ = run("new", file, "--yes", "--id", "second")
    assert "has spent up to (2.5, 1e-06) and declines this query" in " ".join(out.split())
    out, err = run("new", file, "--yes", "--id", "third", "--json")
    assert err.startswith("warning: a phone with the default budget (4, 1e-05)")
    assert json.loads(out)["contributors"] == 45


def test_json_is_one_document(server: CountingServer, run: Run, file: str) -> None:
    server.phones = lambda _: KNOWN
    out, _ = run("new", file, "--yes", "--json")
    content = json.loads(out)
    assert (content["value"], content["contributors"]) == ([63.0], 45)
    [[low, high]] = content["interval_95"]
    assert low < 63 < high
    again, _ = run("result", "gym", "--json")
    assert json.loads(again) == content


def test_statistics_are_shown_and_written(server: CountingServer, run: Run, file: str, tmp_path: Path) -> None:
    extra = (
        'means = ["visits"]\n'
        + QUESTION
        + '[ratios]\n"per swim" = ["visits", "swims"]\n[histograms]\nage = [0, 18, 65]\n'
    )
    Path(file).write_text(extra.replace("[expected]", "swims = [0, 2]\n[expected]"))
    server.phones = lambda _: [
        CohortSum(15, (20, 10, 5, 9)),
        CohortSum(16, (25, 11, 6, 9)),
        CohortSum(14, (18, 9, 7, 8)),
    ]
    out, err = run("new", file, "--yes", "--csv", "gym.csv", "--plot", "gym.png")
    assert err == ""
    table = " ".join(out.split())
    for shown in ("mean of visits 1.4 ", "per swim 2.1 - -", "age[0,18) 40.0% ", "age[18,65) 57.8% "):
        assert shown in table, table
    rows = (tmp_path / "gym.csv").read_text().splitlines()
    assert rows[0] == "kind,name,value,low,high"
    assert [row.split(",")[0] for row in rows[1:]] == ["total", "total", "share", "share", "mean", "ratio"]
    assert (tmp_path / "gym.png").read_bytes().startswith(b"\x89PNG")
    out, _ = run("result", "gym", "--question", file, "--csv", "again.csv", "--json")
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "gym.csv").read_text()
    [*_, ratio] = json.loads(out)["statistics"]
    assert ratio == {"kind": "ratio", "name": "per swim", "value": 63 / 30, "low": None, "high": None}
    out, _ = run("result", "gym", "--json")
    assert [each["kind"] for each in json.loads(out)["statistics"]] == ["total", "total", "share", "share"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--csv", "nowhere/gym.csv"], "nowhere/gym.csv: "),
        (["--plot", "nowhere/gym.png"], "nowhere/gym.png: "),
        (["--csv", "gym.png", "--plot", "gym.png"], "each output needs a file of its own: "),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_announced(
    server: CountingServer, run: Run, file: str, options: list[str], sentence: str
) -> None:
    _, err = run("new", file, "--yes", *options, code=2)
    assert err.startswith(f"reticent: {sentence}")
    assert server.calls == []


def test_a_plot_of_an_unknown_format_is_refused_before_anything_is_announced(
    server: CountingServer, run: Run, file: str
) -> None:
    _, err = run("new", file, "--yes", "--plot", "gym.doc", code=2)
    assert err == "reticent: a plot ends with .png, .svg, .pdf: got 'gym.doc'\n"
    assert server.calls == []


def test_without_a_terminal_yes_is_required(
    server: CountingServer, run: Run, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    _, err = run("new", file, code=2)
    assert err == "reticent: confirmation needs a terminal: use --yes to announce without it\n"
    assert "announce" not in server.calls


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 3), ("\n", 3), ("", 3)])
def test_a_terminal_asks_for_confirmation(
    run: Run, file: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    _, err = run("new", file, "--no-wait", code=code)
    assert "Announce to 60 phones, at (1, 1e-06) each? [y/N]" in err
    assert ("'gym' was not announced, and nothing is spent" in err) == (code == 3)
    out, _ = run("status", "--json")
    assert [each["id"] for each in json.loads(out)] == ([] if code else ["gym"])


def test_the_population_is_at_most_the_enrolled_phones(server: CountingServer, run: Run, file: str) -> None:
    Path(file).write_text("population = 61\n" + QUESTION)
    _, err = run("new", file, "--yes", code=2)
    assert err == "reticent: population must be at most the number of enrolled phones, 60: got 61\n"
    assert "announce" not in server.calls


def test_without_waiting_the_result_comes_later(server: CountingServer, run: Run, file: str) -> None:
    out, _ = run("new", file, "--yes", "--no-wait", "--id", "second")
    assert rows(out)["second"] == ["collecting", "0", "60", "0", "of", "3", "5", "s"]
    query = Query.from_bytes(server.statuses["second"].query)
    server.collecting(query, 9)
    out, _ = run("status", "second", "--json")
    [status] = json.loads(out)
    assert (status["phase"], status["contributors"], status["outcomes"]) == ("collecting", [9] * 3, [None] * 3)
    _, err = run("result", "second", "--timeout", "2", code=4)
    assert err.splitlines()[-1].startswith(
        "reticent: 'second' is not decided after 2 s: 0 of 3 cohorts are decided, collecting"
    )
    threading.Timer(0.5, server.decided, [query, KNOWN]).start()
    out, _ = run("result", "second")
    assert rows(out)["visits"][0] == "63.0"


@pytest.mark.parametrize("is_unavailable", [False, True])
def test_a_query_that_waits_for_a_dead_key_server_says_so(
    server: CountingServer, run: Run, file: str, is_unavailable: bool
) -> None:
    run("new", file, "--yes", "--no-wait")
    server.closing(Query.from_bytes(server.statuses["gym"].query), key_server_unavailable=is_unavailable)
    out, _ = run("status")
    assert ("gym: the key server cannot be reached\n" in out) == is_unavailable
    out, _ = run("status", "--json")
    assert json.loads(out)[0]["key_server_unavailable"] == is_unavailable
    _, err = run("result", "gym", "--timeout", "3", code=4)
    away = "; the key server cannot be reached" if is_unavailable else ""
    assert err.splitlines()[0] == f"closing: 0 of 3 cohorts decided{away}"
    assert ("collecting has ended, the key server cannot be reached; the query" in err) == is_unavailable


def test_all_queries_are_listed(server: CountingServer, run: Run, file: str) -> None:
    for name in ("one", "two"):
        run("new", file, "--yes", "--no-wait", "--id", name)
    server.decided(Query.from_bytes(server.statuses["one"].query), KNOWN)
    out, _ = run("status")
    assert list(rows(out)) == ["query", "two", "one"]
    assert rows(out)["one"] == ["released", "45", "60", "3", "of", "3", "-"]


# What goes wrong.


def test_a_burnt_query_exits_with_1(server: CountingServer, run: Run, file: str) -> None:
    server.phones = lambda query: [CohortSum(2, None)] * query.cohorts
    _, err = run("new", file, "--yes", code=1)
    assert err == "reticent: 'gym' is burnt: 3 of its 3 cohorts are left out, and nothing was spent\n"
    out, err = run("result", "gym", "--json", code=1)
    assert (json.loads(out)["burnt"], json.loads(out)["cohorts_spent"], err) == (True, [], "")


def test_a_query_to_which_no_phone_contributed_says_so(server: CountingServer, run: Run, file: str) -> None:
    server.phones = lambda query: [CohortSum(0, None)] * query.cohorts
    _, err = run("new", file, "--yes", code=1)
    note = "no phone contributed: phones that decline look like absent ones, see `reticent count plan`\n"
    assert err == f"{note}reticent: 'gym' is burnt: 3 of its 3 cohorts are left out, and nothing was spent\n"
    out, err = run("result", "gym", "--json", code=1)
    assert (json.loads(out)["burnt"], err) == (True, note)


def test_the_cost_of_a_void_cohort_is_shown(server: CountingServer, run: Run, file: str) -> None:
    run("new", file, "--yes", "--no-wait")
    query = Query.from_bytes(server.statuses["gym"].query)
    status = server.decided(query, [CohortSum(2, None), KNOWN[1], CohortSum(1, None)])
    _, err = run("result", "gym", code=1)
    assert err == (
        "reticent: 'gym' is burnt: 2 of its 3 cohorts are left out, and 1 was decrypted, and its phones have spent "
        "their budget\n"
    )
    assert status.cohorts[1].decision.outcome == wire.RELEASED
    out, _ = run("result", "gym", "--json", code=1)
    assert json.loads(out)["cohorts_spent"] == [1]


def test_an_abort_burns_the_query(run: Run, file: str) -> None:
    run("new", file, "--yes", "--no-wait")
    out, _ = run("abort", "gym")
    assert rows(out)["gym"][:1] == ["burnt"]
    run("result", "gym", code=1)
    out, err = run("abort", "gym")
    assert rows(out)["gym"][:1] == ["burnt"]
    assert err == "'gym' was decided before: nothing changed\n"


def test_a_query_is_announced_once(server: CountingServer, run: Run, file: str) -> None:
    server.phones = lambda _: KNOWN
    run("new", file, "--yes")
    _, err = run("new", file, "--yes", code=3)
    assert err == "reticent: 'gym' was decided before: a second attempt is another query\n"


def test_an_unknown_query_is_one_sentence(run: Run) -> None:
    for command in ("status", "result", "abort"):
        _, err = run(command, "nothing", code=3)
        assert err == "reticent: UNKNOWN_QUERY: there is no such query\n"


def test_forged_decisions_are_one_sentence(server: CountingServer, run: Run, file: str) -> None:
    run("new", file, "--yes", "--no-wait")
    status = server.decided(Query.from_bytes(server.statuses["gym"].query), KNOWN)
    status.cohorts[0].decision.contributors += 1
    _, err = run("result", "gym", code=3)
    assert err == "reticent: the decision about cohort 0 of 'gym' is not signed by the key server\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--certs", "nowhere"], "nowhere"),
        (["--analyst", "bob"], "bob"),
        (["--identity", "ab" * 31], "ab" * 31),
        (["--max-outage", "0"], "timeouts must be positive"),
    ],
)
def test_an_invalid_connection_option_is_one_sentence(
    server: CountingServer, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = {
        "--address": server.address,
        "--certs": str(server.folder),
        "--analyst": "ann",
        "--identity": server.signer.public.hex(),
    }
    given |= dict([arguments])
    assert program.main(["count", "status", *[word for pair in given.items() for word in pair]]) in {1, 2}
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_connection_options_come_from_a_file_or_the_environment(
    server: CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reticent.toml").write_text(
        f'[count.status]\naddress = "nowhere:1"\nidentity = "{server.signer.public.hex()}"\nanalyst = "ann"\n'
    )
    monkeypatch.setenv("RETICENT_COUNT_STATUS_ADDRESS", server.address)
    assert program.main(["count", "status", "--certs", str(server.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_terminal_shows_a_bar(server: CountingServer, tmp_path: Path, file: str) -> None:
    """On a terminal of its own; what is piped gets none."""
    import os  # noqa: PLC0415
    import pty  # noqa: PLC0415  # there is none on Windows

    ours, theirs = pty.openpty()
    server.phones = None
    query_file = Path(file)
    arguments: list[Any] = [PROGRAM, "count", "new", query_file, "--yes", "--address", server.address]
    arguments += ["--certs", server.folder, "--analyst", "ann", "--identity", server.signer.public.hex()]
    shown, is_decided = b"", False
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=tmp_path) as process:
        os.close(theirs)
        guard = threading.Timer(DEADLINE, process.kill)
        guard.start()
        with contextlib.suppress(OSError):  # at its end
            while more := os.read(ours, 1 << 16):
                shown += more
                if b"closes in" in more and "gym" in server.statuses and not is_decided:
                    server.collecting(Query.from_bytes(server.statuses["gym"].query), 7)
                if b"21 phones; closes in" in shown and not is_decided:
                    is_decided = True
                    server.decided(Query.from_bytes(server.statuses["gym"].query), KNOWN)
        out, _ = process.communicate(timeout=DEADLINE)
        guard.cancel()
    os.close(ours)
    assert process.returncode == 0
    assert b"21 phones; closes in" in shown
    assert "63.0" in out
    assert "phones; closes in" not in out
