"""An aggregation server as analysts see it, and an analyst who asks there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from reticent_analyst.analyst import Analyst
from tests.analyst.command import QUESTION
from tests.parties.counting_server import CountingServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def server(certificates: Path) -> Iterator[CountingServer]:
    with CountingServer(certificates) as server:
        yield server


@pytest.fixture
def analyst(server: CountingServer) -> Iterator[Analyst]:
    with server.analyst() as analyst:
        yield analyst


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with the question of `command`."""
    path = tmp_path / "gym.toml"
    path.write_text(QUESTION)
    return str(path)
