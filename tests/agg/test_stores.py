"""The store conforms on both databases, and stores that break a promise do not."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from reticent_agg import BadStore, SqlStore
from tests.agg import broken_stores
from tests.agg.store_conformance import CHECKS, Check, atomicity, contributions, decisions
from tests.agg.store_conformance.values import collecting

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@every_check
def test_the_store_conforms_on_sqlite(check: Check, path: Path) -> None:
    check(partial(SqlStore, path))


@pytest.mark.slow
@every_check
def test_the_store_conforms_on_postgresql(check: Check, postgres: str) -> None:
    check(partial(SqlStore, postgres))


BROKEN = [
    (broken_stores.ForgetsReceipts, contributions.check_the_first_contribution_of_a_phone_stands),
    (broken_stores.CommitsEachBatch, atomicity.check_a_batch_that_fails_leaves_nothing_of_any_batch),
    (broken_stores.ReadsBeforeItCloses, contributions.check_what_races_with_the_close_is_counted_once_or_late),
    (broken_stores.DecidesAgain, decisions.check_a_cohort_is_decided_once),
    (broken_stores.LeasesForEver, decisions.check_an_item_has_one_owner_while_its_lease_is_valid),
    (broken_stores.LeasesToAnybody, decisions.check_an_item_has_one_owner_while_its_lease_is_valid),
    (broken_stores.LeasesToAnybody, decisions.check_one_of_two_that_claim_an_item_gets_it),
]
BROKEN_FILES = [  # with a server, they race in a way of their own, or cannot be made
    (broken_stores.ForgetsReceipts, contributions.check_one_of_two_that_race_for_a_phone_is_counted),
    (broken_stores.CommitsLate, atomicity.check_all_is_there_after_opening_the_store_again),
]


@pytest.mark.parametrize(("broken", "check"), BROKEN + BROKEN_FILES, ids=lambda each: each.__name__)
def test_a_broken_store_does_not_conform_on_sqlite(broken: type[SqlStore], check: Check, path: Path) -> None:
    with pytest.raises(AssertionError):
        check(partial(broken, path))


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "check"), BROKEN, ids=lambda each: each.__name__)
def test_a_broken_store_does_not_conform_on_postgresql(broken: type[SqlStore], check: Check, postgres: str) -> None:
    with pytest.raises(AssertionError):
        check(partial(broken, postgres))


def test_damage_that_is_found_while_reading_names_the_file(path: Path) -> None:
    with closing(SqlStore(path)) as store:
        collecting(store)
    content = path.read_bytes()
    page = int.from_bytes(content[16:18], "big")
    path.write_bytes(content[:page] + b"\xff" * (len(content) - page))
    with closing(SqlStore(path)) as store, pytest.raises(BadStore, match=f"{path} is damaged"):
        store.query_ids()
