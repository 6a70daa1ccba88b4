"""Certificates for the tests, and the credentials of a phone."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from reticent.protocol.channels import channel_credentials
from tests.core.rpc.services import certified


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("certificates") / "certs", "ada")


@pytest.fixture(scope="module")
def phone(folder: Path) -> grpc.ChannelCredentials:
    return channel_credentials((folder / "ca.crt").read_bytes())
