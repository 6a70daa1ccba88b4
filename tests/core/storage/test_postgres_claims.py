"""PostgreSQL: the claims of processes that serve."""

from __future__ import annotations

import contextlib

import pytest

from reticent.storage.sql import InUse
from tests.core.storage.notes import kill_connections, opened

pytestmark = pytest.mark.slow


def test_each_slot_has_one_process_and_ends_with_its_connection(postgres: str) -> None:
    with opened(postgres) as one, opened(postgres) as other, contextlib.ExitStack() as stack:
        first = stack.enter_context(one.claim())
        with pytest.raises(InUse, match="another process serves"), other.claim():
            pass
        assert stack.enter_context(other.claim(slots=2)).slot == 1
        first.check()
        kill_connections(postgres)
        with other.claim() as again:
            assert again.slot == 0
            with pytest.raises(InUse, match="is lost"):
                first.check()


def test_a_lost_claim_is_made_again_on_another_slot(postgres: str) -> None:
    with opened(postgres) as one, opened(postgres) as other, one.claim(slots=2) as first:
        first.renew()
        assert first.slot == 0
        kill_connections(postgres)
        with other.claim(slots=2) as second:
            assert second.slot == 0
            first.renew()
            first.check()
            assert first.slot == 1
            with pytest.raises(InUse), other.claim(slots=2):
                pass
