"""A phone that takes part needs the base libraries only, and little of them before it speaks."""

import subprocess
import sys

import pytest

# grpc itself looks whether there is a grpc_health, but for its service.
EXTRAS = ("cyclopts", "rich", "scipy", "phe", "grpc_health.v1", "matplotlib", "tzdata")


def _brought(code: str, modules: tuple[str, ...]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(modules) & set(done.stdout.split())


@pytest.mark.parametrize("module", ["participant", "session", "servers", "status_view"])
def test_no_extra_is_needed(module: str) -> None:
    assert not _brought(f"import reticent_client.counting.{module}", EXTRAS)


def test_the_core_needs_no_network() -> None:
    assert not _brought(
        "from reticent_client import Participant, Participation, Situation, Declined", ("grpc", "asyncio")
    )


def test_importing_the_client_brings_none_of_it() -> None:
    assert not _brought("import reticent_client", ("reticent_client.counting", "reticent.paillier", "sqlite3", "gmpy2"))
