"""An aggregation server of a test's own, on a file, and its clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent_agg import AggregationServer
from tests.agg.network import certified
from tests.parties import aggregation
from tests.parties.aggregation import Time


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of everybody's certificates."""
    return certified(tmp_path_factory.mktemp("certs") / "certs")


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "aggregation.db"


@pytest.fixture
def server(path: Path, time: Time) -> Iterator[AggregationServer]:
    server = aggregation.opened(path, time)
    yield server
    server.close()
