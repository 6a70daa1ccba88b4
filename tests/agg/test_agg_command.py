"""`reticent agg`: the server as a process, and what its operator does."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from reticent.console.program import main
from reticent.protocol import Refusal, Refused, SigningKey
from reticent.tls.certificates import Certificate, create
from reticent.v1 import counting_pb2 as wire
from reticent.v1 import counting_pb2_grpc
from reticent_agg.store import Lease, WorkItem
from tests.parties import aggregation
from tests.parties.aggregation import KeyServer, Phone, Time

pytestmark = pytest.mark.slow  # real processes and connections, some seconds in all

DEADLINE = 60.0
IDENTITY = KeyServer.identity.public.hex()
FREE = ["--phones", "127.0.0.1:0", "--analysts", "127.0.0.1:0", "--key-server", "127.0.0.1:1", "--metrics", ""]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with certificates, where the program runs."""
    create(tmp_path / "certs", hosts=["127.0.0.1"], analysts=["ann"], days=2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def serving(options: Sequence[str]) -> Iterator[dict[str, str]]:
    """A server's process: where it listens, for whom. It ends well when it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reticent", "agg", "serve", *FREE, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().split() for _ in range(2)]
        assert [line[:3] for line in lines] == [["listening", "for", "phones"], ["listening", "for", "analysts"]]
        yield {line[2]: line[-1] for line in lines}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str, code: int = 2) -> str:
    """What the program says when it does not do it."""
    found = subprocess.run(
        [sys.executable, "-m", "reticent", "agg", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr
    return found.stderr


def test_a_server_is_served_again_without_being_told_the_identity(home: Path) -> None:
    assert "--identity is required at the first start" in refused("serve", *FREE)
    for options in (["--identity", IDENTITY], ["--log-json"], ["--identity", IDENTITY]):
        with (
            serving(options) as where,
            grpc.secure_channel(where["analysts"], Certificate.load("certs", "ann").channel_credentials()) as way,
        ):
            reply: wire.ListReply = counting_pb2_grpc.CountingStub(way).List(wire.ListRequest(), timeout=DEADLINE)
            assert not reply.queries
    assert (home / "aggregation").stat().st_mode & 0o777 == 0o700
    assert (home / "aggregation" / "aggregation.db").stat().st_mode & 0o777 == 0o600
    other = SigningKey().public.hex()
    assert "names another key server" in refused("serve", *FREE, "--identity", other)
    assert "64 hexadecimal digits, or a file with them: got 'abc'" in refused("serve", *FREE, "--identity", "abc")


@pytest.mark.usefixtures("home")
def test_one_process_serves_from_a_folder() -> None:
    with serving(["--identity", IDENTITY]):
        assert "another process serves" in refused("serve", *FREE, code=5)


def test_options_may_stand_in_a_file_or_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "reticent.toml").write_text(f'[agg.serve]\nidentity = "{IDENTITY}"\nfolder = "from file"\n')
    monkeypatch.setenv("RETICENT_AGG_SERVE_FOLDER", "from environment")
    with serving([]):
        assert (home / "from environment" / "aggregation.db").exists()
    assert not (home / "from file").exists()


@pytest.mark.usefixtures("home")
def test_a_simulated_clock_is_moved_from_this_machine() -> None:
    with serving(["--identity", IDENTITY, "--simulated-clock", "2027-02-01T00:00:00Z"]) as where:
        credentials = Certificate.load("certs", "ann").channel_credentials()
        with grpc.secure_channel(where["analysts"], credentials) as way:
            stub = counting_pb2_grpc.SimulatedClockStub(way)
            later = int(aggregation.START.timestamp() * 1000) + 5
            moved: wire.Instant = stub.Move(wire.Instant(milliseconds=later), timeout=DEADLINE)
            assert moved.milliseconds == later
    assert "a simulated clock needs local addresses" in refused(
        "serve", "--phones", "0.0.0.0:0", "--simulated-clock", "2027-02-01"
    )
    assert "an instant looks like" in refused("serve", *FREE, "--simulated-clock", "noon")
    assert "--poll-interval" in refused("serve", *FREE, "--poll-interval", "0")


@pytest.mark.usefixtures("home")
def test_the_operator_sees_queries_and_prunes_what_is_old(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agg", "status"]) == 2
    assert "there is no aggregation server in aggregation" in capsys.readouterr().err
    Path("aggregation").mkdir()
    time = Time()
    time.now = dt.datetime.now(dt.UTC) - dt.timedelta(days=40)
    server = aggregation.opened(Path("aggregation/aggregation.db"), time)
    query = aggregation.collecting(server, aggregation.make_query())
    server.collection.contribute([Phone(number).contribution(query) for number in range(2)])
    (head,) = aggregation.closed(server, time, query)
    server.closing.decide(KeyServer().decision(head))
    time.now = dt.datetime(2027, 2, 1, tzinfo=dt.UTC)
    collecting = aggregation.collecting(server, aggregation.make_query())
    waiting, unwanted = aggregation.make_query(), aggregation.make_query()
    for each in (waiting, unwanted):
        aggregation.announce(server, each)
    server.store.reject(unwanted.digest, Refused(Refusal.BAD_QUERY, "too dear"))
    for _ in range(17):
        assert server.store.claim(WorkItem(waiting.digest), Lease("one", 0, 1)) is not None
    server.close()
    assert main(["agg", "prune"]) == 0
    assert main(["agg", "status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{query.id}  pruned",
        f"{unwanted.id}  refused  BAD_QUERY: too dear",
        f"{waiting.id}  announced  waits for the key server, attempt 17",
        f"{collecting.id}  collecting  0 of 6 phones, until 2027-02-01 01:00:00 UTC",
        f"{query.id}  released  2 of 6 phones, pruned",
    ]
    assert main(["agg", "prune"]) == 0
    assert capsys.readouterr().out.startswith("nothing to prune: no query was decided or refused before 20")
    assert main(["agg", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["contributors"], each["outcomes"]) for each in found][-1] == (query.id, [2], ["released"])
    assert [each["attempts"] for each in found] == [0, 17, 0, 0]
    for days in ("-1", "1e12", "nan", "inf"):
        assert main(["agg", "prune", "--days", days]) == 2
        assert "--days must lie between 0 and 36,500" in capsys.readouterr().err


def test_help_says_what_each_command_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agg", "--help"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for words in (
        "Run an aggregation server until SIGINT or SIGTERM.",
        "Close a query and burn its undecided cohorts.",
        "Delete the participation records of old queries",
        "List all queries, the latest first",
    ):
        assert words in output.replace("│ ", "").replace(" │", "")
