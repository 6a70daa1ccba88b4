"""`reticent ads`: the service as a process, and what its operator does."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from reticent.console.program import main
from reticent.protocol.channels import AD_SERVICE, channel_credentials, role_option
from reticent.tls.certificates import create
from reticent.v1 import ads_pb2 as wire
from reticent_agg.ads import cli
from reticent_agg.ads.explanation import LOW_GAIN, NO_GAIN, NO_RATE, ReplyExplanation
from reticent_agg.ads.folder import AdFolder, ServiceReport
from tests.agg.ads.test_service import SELECT, request
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, World

DEADLINE = 60.0
LOAD = ["ads", "load", "--catalogue", "catalogue.csv", "--rates", "rates.npz", "--hierarchy", "hierarchy.json"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files of a version, where the program runs."""
    EXAMPLE.write(tmp_path)
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Either output of a command; the other one must be empty."""
    assert main(["ads", *arguments]) == code
    output = capsys.readouterr()
    assert not (output.out and output.err)
    return output.out + output.err


def test_the_operator_loads_looks_and_understands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing is loaded into ads" in printed(capsys, "status", code=2)
    text = printed(capsys, *LOAD[1:], "--max-ads", "4", "--least-support", "8")
    assert re.match(r"version 000001, loaded ....-..-.. ..:..:.. UTC\nads {8}4, 3 of them with rates\n", text)
    assert "rates      4 from a test, at (1, 1e-06), not private: the noise is seeded\n" in text
    assert text.endswith("at most 4 ads with 16 rates each; rates from 0, from 8 views\n")
    assert printed(capsys, "status") == text + "service    has never run\n"
    document = json.loads(printed(capsys, "status", "--json"))
    assert document["version"]["hierarchy"] == HIERARCHY.fingerprint
    assert document["service"] is None
    lines = printed(capsys, "explain", "3", "--ads", "2", "--ad", "sushi", "--ad", "unknown").splitlines()
    assert lines[:4] == [
        "3: estimates for 3 contexts at or below it",
        "  1  roast  adds 0.5",
        "       2|40.7,-73.9|cafe  frequency 0.5, rate 0.5 (0.25 to 0.75) from 3 with 100 views, pays 2",
        "  2  coffee  adds 0.125",
    ]
    assert f"  -  sushi  adds 0; not sent: {NO_GAIN}" in lines
    assert lines[-1] == f"  -  unknown  adds 0; not sent: {NO_RATE}"
    document = json.loads(printed(capsys, "explain", "3", "--ads", "1", "--ad", "coffee", "--json"))
    assert [each["ad"] for each in document["chosen"]] == ["roast"]
    assert document["others"][0]["reason"] == LOW_GAIN
    assert "no ad 'tea'" in printed(capsys, "explain", "3", "--ad", "tea", code=2)
    Path("rates.npz").write_text("rates")
    assert printed(capsys, *LOAD[1:], code=2) == "reticent: rates.npz: this is not a rate table written by Reticent\n"
    long_ago = dt.datetime(2025, 2, 1, tzinfo=dt.UTC)
    AdFolder(Path("ads")).write_report(ServiceReport("000001", None, None, long_ago, long_ago, False, 12_345, 6))
    assert printed(capsys, "status").endswith(
        "service    is not running, last seen 2025-02-01 00:00:00 UTC\n"
        "requests   12,345 served, 6 refused since 2025-02-01 00:00:00 UTC\n"
    )
    assert "no ad would be sent" in printed(capsys, "load", "--least-support", "1e9", code=2)
    nothing = ReplyExplanation("3", 2, (), ())
    assert [*cli._lines(nothing)][1:] == ["  no ad is sent: none has a rate here that counts, and a bid"]
    monkeypatch.setattr(cli, "WAIT", 0.0)
    assert "no service serves it yet: is one running?" in printed(capsys, "load", "--wait", code=4)
    AdFolder(Path("ads")).write_report(ServiceReport("000001", "000003", "no room", long_ago, long_ago, False, 0, 0))
    assert "the service cannot serve version 000003: no room" in printed(capsys, "load", "--wait", code=4)
    version = json.loads(printed(capsys, "load", "--least-rate", "0.25", "--json"))
    assert (version["name"], version["settings"]["least_rate"], version["settings"]["max_ads"]) == ("000004", 0.25, 4)


# Real processes


@contextlib.contextmanager
def serving(*options: str) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    """A service's process, and the method that phones call. It ends well when it is told to."""
    if not Path("certs").exists():
        create("certs", hosts=["127.0.0.1"], analysts=[], days=2)
    with Path("log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "reticent", "ads", "serve", "--phones", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        *words, address = process.stdout.readline().split()
        assert words == ["listening", "for", "phones", "at"], Path("log").read_text()
        credentials = channel_credentials(Path("certs/ca.crt").read_bytes())
        with grpc.secure_channel(address, credentials, options=[role_option(AD_SERVICE)]) as way:
            yield way.unary_unary(SELECT), process
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.communicate()


def code_of(select: Any) -> grpc.StatusCode:
    """The status of a call that fails."""
    with pytest.raises(grpc.RpcError) as caught:
        select(request(0), timeout=DEADLINE)
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


def other_world(number: int) -> World:
    """A version whose replies differ from those of all others."""
    lines = [dataclasses.replace(each, text=f"{each.text}, {number}") for each in EXAMPLE.lines]
    rates = {key: (rate / 2 ** (number % 3), views) for key, (rate, views) in EXAMPLE.rates.items()}
    return dataclasses.replace(EXAMPLE, lines=lines, rates=rates)


@pytest.mark.slow
def test_no_request_fails_while_versions_change_and_each_reply_is_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    expected, replies, done = set[bytes](), list[bytes](), threading.Event()
    with serving("--log-level", "debug") as (select, process), ThreadPoolExecutor(4) as pool:
        assert code_of(select) is grpc.StatusCode.UNAVAILABLE

        def call() -> None:
            while not done.is_set():
                replies.append(select(request(0), timeout=DEADLINE))

        calls = list[Future[None]]()
        try:
            for number in range(4):
                other_world(number).write(Path())
                printed(capsys, *LOAD[1:], "--wait")
                index = AdFolder(Path("ads")).index(AdFolder(Path("ads")).current() or pytest.fail("not loaded"))
                expected.add(index.format.reply(index.encoded(0), 2))
                calls = calls or [pool.submit(call) for _ in range(4)]
                count = len(replies)
                while len(replies) < count + 20:
                    time.sleep(0.001)
            Path("ads/current.json").write_text("damaged")
            process.send_signal(signal.SIGHUP)
            while "the old one stays" not in Path("log").read_text():
                time.sleep(0.01)
            count = len(replies)
            while len(replies) < count + 20:
                time.sleep(0.001)
        finally:
            done.set()
        for each in calls:
            each.result()
    assert set(replies) == expected
    assert len(expected) == 4
    assert {len(each) for each in replies} == {len(replies[0])}
    report = AdFolder(Path("ads")).report()
    assert report is not None
    assert (report.serving, report.served, report.refused, report.stopped) == ("000004", len(replies), 1, True)
    log = Path("log").read_text()
    messages = [line.split(": ", 1)[1] for line in log.splitlines() if " reticent" in line]
    known = ("serving version", "stopped listening", "the new version cannot be loaded")
    assert [each for each in messages if not each.startswith(known)] == []  # at the lowest level: nothing of requests


@pytest.mark.slow
def test_a_load_that_is_killed_leaves_the_old_version_or_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, *LOAD[1:])
    folder, names = AdFolder(Path("ads")), ["000001"]
    with serving() as (select, _):
        for attempt in range(12):
            other_world(attempt).write(Path())
            process = subprocess.Popen([sys.executable, "-m", "reticent", *LOAD], stdout=subprocess.DEVNULL)
            time.sleep(0.2 + 0.025 * attempt)
            process.kill()
            process.wait(DEADLINE)
            version = folder.current()
            assert version is not None
            folder.index(version)
            folder.files(version)
            names.append(version.name)
            assert wire.SelectReply.FromString(select(request(0), timeout=DEADLINE)).ads
    assert names == sorted(names)


@pytest.mark.slow
def test_one_service_serves_and_what_it_does_not_understand_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(capsys, *LOAD[1:])
    Path("reticent.toml").write_text("[ads.serve]\ncall-rate = 0.01\n")
    with serving() as (select, _):
        assert "another process serves from" in printed(capsys, "serve", "--phones", "127.0.0.1:0", code=5)
        assert "service    serves this version\n" in printed(capsys, "status")
        select(request(0), timeout=DEADLINE)
        assert code_of(select) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "service    is not running, last seen" in printed(capsys, "status")
    monkeypatch.setenv("RETICENT_ADS_SERVE_CALL_RATE", "0")
    assert "--call-rate must be positive and finite: got 0.0" in printed(capsys, "serve", code=2)
    monkeypatch.delenv("RETICENT_ADS_SERVE_CALL_RATE")
    (Path("ads") / "000001" / "index.npz").write_bytes(b"")
    assert "index.npz: this is not an index of ads" in printed(capsys, "serve", "--phones", "127.0.0.1:0", code=2)
    assert "certs2/ca.crt: No such file" in printed(capsys, "serve", "--certs", "certs2", code=2)
