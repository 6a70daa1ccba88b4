"""Caps and quiet times follow the user's local days, through midnight and the days on which the clock is set."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from reticent_client.ads.log import EXPLAINED, LogEntry, PrivateLog
from reticent_client.store import PhoneStore
from tests.client.ads.world import StubService, ad_phone, wire_ad
from tests.client.apps.phones import limited, releasing

NEW_YORK = ZoneInfo("America/New_York")
HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("day", "hours"), [(dt.date(2027, 3, 14), 23), (dt.date(2027, 6, 1), 24), (dt.date(2027, 11, 7), 25)], ids=str
)
@limited
async def test_caps_hold_for_each_local_day(day: dt.date, hours: int, tmp_path: Path) -> None:
    """A request each hour: at most two ads a day and one of them once, and none from 23:30 to 01:30."""
    start = dt.datetime.combine(day, dt.time(0, 15), NEW_YORK).astimezone(dt.UTC)
    service = StubService([wire_ad("shoes", {0: 0.5}, cap=1), wire_ad("boots", {0: 0.1})])
    changed = {"max_per_day": 2, "quiet": ((dt.time(23, 30), dt.time(1, 30)),), "cache_for": 1e6}
    async with ad_phone(tmp_path, service, policy=releasing(2), start=start, zone=NEW_YORK, changed=changed) as home:
        shown: list[tuple[dt.datetime, str]] = []
        for hour in range(hours + 4):
            await home.clock.move_to(start + hour * HOUR)
            ad = await home.show()
            if ad is not None:
                shown.append((start + hour * HOUR, ad.id))
        local = [(instant.astimezone(NEW_YORK), ad) for instant, ad in shown]
        assert Counter((each.date(), ad) for each, ad in local) == {
            (date, ad): 1 for date in (day, day + DAY) for ad in ("shoes", "boots")
        }
        assert [each for each, ad in local if ad == "shoes"] == [
            min(
                instant.astimezone(NEW_YORK)
                for instant in (start + hour * HOUR for hour in range(hours + 4))
                if instant.astimezone(NEW_YORK).date() == date and instant.astimezone(NEW_YORK).time() >= dt.time(1, 30)
            )
            for date in (day, day + DAY)
        ]


def test_old_entries_are_deleted_and_explanations_are_few() -> None:
    """Requests without an ad do not fill the disk, and what was chosen for a sequence goes with its entries."""
    start = dt.datetime(2027, 3, 1, 12, tzinfo=dt.UTC)

    def entry(at: dt.datetime, ad: str | None) -> LogEntry:
        return LogEntry(at, at.date(), "weather", None, None, "4", ad, ad, {"candidates": []})

    with contextlib.closing(PhoneStore()) as store:
        log = PrivateLog(store)
        for number in range(EXPLAINED + 20):
            log.add(entry(start, None if number % 2 else f"ad {number}"), 3 * DAY)
        entries = log.last(1000)
        assert [each.explanation is not None for each in entries] == [True] * EXPLAINED + [False] * 10
        assert [each.ad is not None for each in entries[EXPLAINED:]] == [True] * 10
        assert len(log.views()) == EXPLAINED // 2 + 10
        log.add(entry(start + 3 * DAY, "late"), 3 * DAY)
        assert len(log.views()) == EXPLAINED // 2 + 11
        log.add(entry(start + 4 * DAY, "later"), 3 * DAY)
        assert [view.ad for view in log.views()] == ["late", "later"]
