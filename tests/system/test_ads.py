"""A phone and the ad service together: each context gets its own ad, and all look alike to whoever carries them."""

from __future__ import annotations

import csv
import datetime as dt
from pathlib import Path

import numpy as np

from reticent.rates import RateTable
from reticent.tls.certificates import Certificate, create
from reticent_agg.ads.catalogue import COLUMNS
from reticent_agg.ads.folder import AdFolder, AdSources
from reticent_agg.ads.service import AdServer
from reticent_client.ads.messages import REPLY_SIZE
from tests.client.ads.world import CITY, HIERARCHY, LATTE, PLACES, StubService, ad_phone, number
from tests.client.apps.phones import limited

OWN_RATES, OTHER_RATE = dict.fromkeys(PLACES, 0.5) | {"elsewhere": 0.75}, 0.25
"""In the place of an ad, and in all others."""


def load_ads(folder: Path) -> AdFolder:
    """A service whose ads have their best rate in one place each."""
    places = list(PLACES.values())
    leaves = HIERARCHY.leaves.tolist()
    pairs = [(ad, leaf) for ad in range(len(places)) for leaf in leaves]
    own = list(OWN_RATES.values())
    rates = np.array([own[a] if HIERARCHY.nodes[n].values[0] == places[a] else OTHER_RATE for a, n in pairs])
    RateTable(
        hierarchy=HIERARCHY.fingerprint,
        ads=tuple(f"near {place}" for place in PLACES),
        frequency=HIERARCHY.leaf_counts / len(leaves),
        ad=np.array([ad for ad, _ in pairs], np.int32),
        node=np.array([leaf for _, leaf in pairs], np.int32),
        rate=rates,
        low=rates / 2,
        high=rates,
        views=np.full(len(pairs), 100.0),
        epsilon=1.0,
        delta=1e-6,
        level=0.95,
        seeded=True,
        source="a test",
    ).save(folder / "rates.npz")
    HIERARCHY.save(folder / "hierarchy.json")
    with (folder / "catalogue.csv").open("w", newline="") as file:
        lines = [[f"near {place}", "2", "music", f"Buy near {place}!", "1", ""] for place in PLACES]
        csv.writer(file).writerows([COLUMNS, *lines])
    ads = AdFolder(folder / "ads")
    files = AdSources(folder / "catalogue.csv", folder / "rates.npz", folder / "hierarchy.json")
    ads.load(files, {"max_ads": 4, "rates_per_ad": 36, "least_support": 1.0})
    return ads


@limited
async def test_a_phone_shows_the_ad_of_its_own_place_among_those_of_the_city(tmp_path: Path) -> None:
    """The service sees the city, or nothing where the step is suppressed; each ad is shown once, because of its cap."""
    folder = load_ads(tmp_path)
    create(tmp_path / "authority", hosts=["localhost"], analysts=[])
    credentials = Certificate.load(tmp_path / "authority", "ads").server_credentials(mutual=False)
    with folder.serve_alone():
        async with AdServer(folder, phones="localhost:0", credentials=credentials) as server:
            changed = {"service": server.address, "authority": tmp_path / "authority" / "ca.crt", "ads": 4}
            async with ad_phone(tmp_path, StubService(), changed=changed) as home:
                shown = []
                for context in ("work", "home", "hospital", "work", "work"):
                    await home.live(context)
                    ad = await home.show("latte")
                    shown.append((None if ad is None else ad.text, home.last.node))
                city, root = str(HIERARCHY.nodes[number(LATTE, CITY)]), str(HIERARCHY.nodes[0])
                assert shown == [
                    ("Buy near work!", city),
                    ("Buy near home!", city),
                    ("Buy near elsewhere!", root),  # the first of the service that is left
                    ("Buy near hospital!", city),
                    (None, city),
                ]
                assert {len(reply) for _, reply in home.replies} == {REPLY_SIZE}
                explanation = home.last.explanation
                assert explanation is not None
                assert [list(each["removed_by"]) for each in explanation["candidates"]] == [["cap"]] * 4
                assert {each["rate"]["rate"] for each in explanation["candidates"]} == {0.25, 0.5}
                assert home.replies[0][0].time() == dt.time(12, 30, 1)
