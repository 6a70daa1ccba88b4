"""The ad service of a simulation: a new version is served when `serve` returns, whatever the machine does meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent.tls import certificates
from reticent_agg.ads.folder import AdFolder, AdVersion, ServiceReport
from reticent_agg.ads.index import IndexSettings
from reticent_agg.errors import NotServed
from reticent_sim.engine import ad_server
from reticent_sim.engine.ad_server import AdServerProcess

NOW = dt.datetime(2025, 2, 1, tzinfo=dt.UTC)
VERSION = AdVersion("000002", NOW, IndexSettings(), 1, 0, 1, 1, "", None, 0.0, False, "a test")


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdServerProcess]:
    """A service in the place of this process, which serves another version."""
    certificates.create(tmp_path / "certs", hosts=["127.0.0.1"], analysts=[], days=1)
    process = AdServerProcess(tmp_path, tmp_path / "certs")
    process.files.mkdir()
    report(process, "000001")
    monkeypatch.setattr(AdServerProcess, "is_running", True)
    monkeypatch.setattr(AdServerProcess, "pid", os.getpid())
    monkeypatch.setattr(ad_server, "TIMEOUT", 0.0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield process
    signal.signal(signal.SIGHUP, before)


def report(process: AdServerProcess, serving: str) -> None:
    AdFolder(process.files).write_report(ServiceReport(serving, None, None, NOW, NOW, False, 0, 0))


def test_a_running_service_looks_at_its_folder_at_once(process: AdServerProcess) -> None:
    signal.signal(signal.SIGHUP, lambda *_: report(process, VERSION.name))
    process.serve(VERSION)


def test_the_version_before_is_not_enough(process: AdServerProcess) -> None:
    with pytest.raises(NotServed, match="version 000002 is loaded, and no service serves it yet"):
        process.serve(VERSION)


def test_nobody_waits_for_a_service_that_is_down(process: AdServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdServerProcess, "is_running", False)
    process.serve(VERSION)
