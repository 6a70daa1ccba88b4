"""Ads in a sandbox: a small city, a catalogue, an ad service, and phones with made-up private logs."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from itertools import product
from pathlib import Path

import numpy as np

from reticent.hierarchy import Decimals, Hierarchy, Tree
from reticent.randomness import seeded
from reticent_client import AdSettings, PhoneStore
from reticent_client.ads.log import LogEntry, PrivateLog
from reticent_sim.ad_log import AdLog
from reticent_sim.engine import AdServerProcess, ServerPair

__all__ = ["APP", "PLACES", "AdSandbox"]

APP = "maps"
"""The app that may show ads."""

PLACES = {
    "harbour": "40.701,-74.016",
    "old town": "40.713,-74.002",
    "campus": "40.808,-73.962",
    "park": "40.782,-73.965",
}
"""The locations of the labels of the mask."""

INTERESTS = {"jazz": "music", "choir": "music", "running": "sport", "yoga": "sport"}
QUERIES = {"espresso": "coffee", "pizza": "meals", "guitar": "instruments", "clinic": "health"}
_ABOVE = {"coffee": "food", "meals": "food", "instruments": "services", "health": "services"}
SEQUENCE = ((0, 0, 0), (0, 0, 1), (0, 1, 1), (4, 1, 1), (4, 1, 2))

CATALOGUE = (
    # ad, payment, category, text, cap
    ("cafe", 0.30, "coffee", "Espresso at the quay", 3),
    ("roastery", 0.25, "coffee", "Fresh beans, roasted today", 3),
    ("pizzeria", 0.40, "meals", "Two pizzas for one", 3),
    ("luthier", 0.90, "instruments", "Guitars repaired", 2),
    ("choir", 0.20, "instruments", "Sing with us on Mondays", 2),
    ("pharmacy", 0.50, "health", "Open at night", 2),
)
FITTING, OTHER = 0.5, 0.05
"""The probabilities of a click on an ad whose category fits the search, and on another ad."""

VIEWS, OTHERS_VIEWS = 12, 4000
"""The ads that each phone has seen, and those of made-up people, whose rates the service begins with."""

_SENSITIVE = "clinic"
_DELTA = 0.25
_KEPT = dt.timedelta(days=90)


class AdSandbox:
    """The files of the ads of a sandbox, and the ad service.

    Args:
        servers: The two servers, whose certificates the ad service shares.
    """

    def __init__(self, servers: ServerPair) -> None:
        self.folder = servers.folder
        self.hierarchy = Hierarchy(
            [
                Decimals("location"),
                Tree("interest", 2, INTERESTS),
                Tree("query", 3, QUERIES | _ABOVE),
            ],
            product(PLACES.values(), INTERESTS, QUERIES),
            SEQUENCE,
        )
        self.server = AdServerProcess(self.folder, servers.certs)
        self.hierarchy.save(self.hierarchy_file)
        self.catalogue_file.write_text(_catalogue(), encoding="utf-8")
        self.settings_file.write_text(_settings(self.server.endpoint.address, servers.certs), encoding="utf-8")
        _views(self.hierarchy, OTHERS_VIEWS, "others").rates("made-up people").save(self.folder / "others.npz")
        servers.run(
            *("ads", "load", "--folder", self.server.files, "--hierarchy", self.hierarchy_file),
            *("--catalogue", self.catalogue_file, "--rates", self.folder / "others.npz"),
        )

    @property
    def hierarchy_file(self) -> Path:
        """The hierarchy of contexts."""
        return self.folder / "hierarchy.json"

    @property
    def catalogue_file(self) -> Path:
        """The ads."""
        return self.folder / "catalogue.csv"

    @property
    def settings_file(self) -> Path:
        """The settings of each phone's user."""
        return self.folder / "ads.toml"

    def settings(self) -> AdSettings:
        """The settings of each phone's user."""
        return AdSettings.from_toml(self.settings_file.read_text(encoding="utf-8"), self.folder)

    def add_views(self, store: PhoneStore, phone: int) -> None:
        """Make up the ads that a phone has shown before."""
        views, log = _views(self.hierarchy, VIEWS, phone), PrivateLog(store)
        now = dt.datetime.now(dt.UTC)
        for number, (context, ad, clicked) in enumerate(zip(views.context, views.ad, views.clicked, strict=True)):
            showing = f"{phone}/{number}"
            at = now - dt.timedelta(days=1 + number)
            log.add(
                LogEntry(
                    at=at,
                    day=at.date(),
                    app=APP,
                    position=None,
                    context=self.hierarchy.contexts[context],
                    node=str(self.hierarchy.nodes[0]),
                    ad=views.ads[ad],
                    showing=showing,
                    explanation=None,
                ),
                _KEPT,
            )
            if clicked:
                log.click(APP, showing, now)


def _views(hierarchy: Hierarchy, number: int, *path: str | int) -> AdLog:
    """Views of one made-up user: random ads in random contexts."""
    rng = seeded("sandbox", "ads", *path)
    context = rng.integers(len(hierarchy.contexts), size=number)
    ad = rng.integers(len(CATALOGUE), size=number)
    wanted = np.array([QUERIES[values[-1]] for values in hierarchy.contexts])[context]
    fits = np.array([category for _, _, category, _, _ in CATALOGUE])[ad] == wanted
    return AdLog(
        hierarchy=hierarchy,
        ads=tuple(name for name, *_ in CATALOGUE),
        users=1,
        user=np.zeros(number, dtype=np.int64),
        context=context,
        ad=ad,
        clicked=rng.random(number) < np.where(fits, FITTING, OTHER),
    )


def _catalogue() -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["ad", "payment", "category", "text", "cap", "contexts"])
    writer.writerows([*row, ""] for row in CATALOGUE)
    return text.getvalue()


def _settings(address: str, certs: Path) -> str:
    sensitive = [[place, interest, _SENSITIVE] for place, interest in product(PLACES.values(), INTERESTS)]
    lines = [
        'hierarchy = "hierarchy.json"',
        f"service = {json.dumps(address)}",
        f"authority = {json.dumps(str(certs / 'ca.crt'))}",
        f"apps = [{json.dumps(APP)}]",
        'interest = "jazz"',
        'default_query = "espresso"',
        "ads = 3",
        f"delta = {_DELTA}",
        "sensitive = [",
        *(f"    {json.dumps(each)}," for each in sensitive),
        "]",
        "[places]",
        *(f"{json.dumps(label)} = {json.dumps(place)}" for label, place in PLACES.items()),
    ]
    return "\n".join(lines) + "\n"
