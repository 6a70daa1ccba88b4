"""An aggregation server of a test's own, on a file and on PostgreSQL, and its clock."""

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


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, path: Path) -> Path | str:
    """Where the server's store is."""
    if request.param == "SQLite":
        return path
    url: str = request.getfixturevalue("postgres")
    return url


@pytest.fixture
def server(place: Path | str, time: Time) -> Iterator[AggregationServer]:
    server = aggregation.opened(place, time)
    yield server
    server.close()
