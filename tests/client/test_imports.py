"""What the client brings along when it is imported: a phone starts quickly, and has few things installed."""

import subprocess
import sys

import pytest

HEAVY = ("grpc", "google.protobuf", "scipy", "pandas", "pyarrow", "cyclopts", "matplotlib", "asyncio", "sqlite3")


def brought(code: str) -> set[str]:
    """Those of the heavy modules that a program has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(HEAVY) & set(done.stdout.split())


def test_the_client_brings_nothing_that_computing_and_running_a_policy_can_do_without() -> None:
    assert not brought("import reticent_client")
    assert not brought("from reticent_client import *") - {"grpc", "google.protobuf", "asyncio", "sqlite3"}


@pytest.mark.parametrize(("name", "module"), [("Broker", "grpc"), ("connect", "grpc"), ("PhoneStore", "sqlite3")])
def test_what_speaks_over_the_wire_is_imported_when_it_is_used(name: str, module: str) -> None:
    assert module in brought(f"from reticent_client import {name}")


def test_a_mask_without_a_broker_needs_no_grpc() -> None:
    assert "grpc" not in brought("from reticent_client.apps.mask_runner import MaskRunner")
