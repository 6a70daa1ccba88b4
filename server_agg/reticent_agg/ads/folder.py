"""The folder of an ad service: versions of its catalogue, rates and hierarchy, one of which is current.

folder/current.json   the current version, replaced in one step
folder/000001/        the files of a version, which never change: catalogue.csv, hierarchy.json, rates.npz
folder/service.json   what the running service reports about itself: totals, no requests
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from reticent.clock import SystemClock
from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable
from reticent.storage.database import claimed
from reticent.storage.documents import DocumentFormat
from reticent.storage.files import create, drafted_folder, make_folder, replace
from reticent.storage.sql import InUse
from reticent_agg.ads.catalogue import Catalogue
from reticent_agg.ads.index import AdIndex, IndexSettings
from reticent_agg.errors import BadAdFolder, NotServed

__all__ = ["AdFolder", "AdSources", "AdVersion", "ServiceReport"]

CATALOGUE, HIERARCHY, RATES = "catalogue.csv", "hierarchy.json", "rates.npz"
INDEX = "index.npz"
_CURRENT = DocumentFormat("reticent-ads", 1, "the current version of an ad service", BadAdFolder)
_REPORT = DocumentFormat("reticent-ads-report", 1, "the report of an ad service", BadAdFolder)
_PAUSE = 0.05  # seconds between two looks at the report
_NAME = re.compile("[0-9]{6,9}")
_DRAFT = re.compile(r"\.[0-9]{6,9}\.[0-9a-f]{16}\.tmp")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class AdSources:
    """The files of a new version; a file that is not given is that of the current version.

    Args:
        catalogue: The ads, in CSV.
        rates: The rates, as `reticent rates estimate` saves them.
        hierarchy: The hierarchy of contexts.
    """

    catalogue: Path | None = None
    rates: Path | None = None
    hierarchy: Path | None = None


@dataclass(frozen=True)
class AdVersion:
    """A version of an ad service's data.

    Args:
        name: Of its folder.
        loaded: When it was loaded.
        settings: The rules by which its ads are selected.
        ads: The number of ads.
        ads_without_rates: The number of ads whose rates are unknown, and which are never sent.
        rates: The number of rates of the table.
        nodes: The number of nodes of the hierarchy.
        hierarchy: The fingerprint of the hierarchy.
        epsilon: The privacy bound of the rates; None if they were made without noise.
        delta: With this delta.
        seeded: Whether the noise of the rates is from a seed, so that they are not private.
        source: Where the rates come from.
    """

    name: str
    loaded: dt.datetime
    settings: IndexSettings
    ads: int
    ads_without_rates: int
    rates: int
    nodes: int
    hierarchy: str
    epsilon: float | None
    delta: float
    seeded: bool
    source: str

    def to_document(self) -> dict[str, Any]:
        """The version as plain data."""
        return asdict(self) | {"loaded": self.loaded.isoformat()}

    @classmethod
    def from_document(cls, content: dict[str, Any]) -> AdVersion:
        """The version of plain data."""
        settings = IndexSettings(**content["settings"])
        loaded = dt.datetime.fromisoformat(content["loaded"])
        return cls(**content | {"settings": settings, "loaded": loaded})


@dataclass(frozen=True)
class ServiceReport:
    """The report of a running service about itself.

    Args:
        serving: The version that it serves; None if there is none.
        rejected: The version that it could not load; None if it could, or if `current.json` is damaged.
        reason: The reason; None if it could load the current version.
        started: When it started.
        reported: When it wrote this.
        stopped: Whether it has stopped since.
        served: The replies with ads since it started.
        refused: The refused requests.
    """

    serving: str | None
    rejected: str | None
    reason: str | None
    started: dt.datetime
    reported: dt.datetime
    stopped: bool
    served: int
    refused: int

    def to_document(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self) | {"started": self.started.isoformat(), "reported": self.reported.isoformat()}

    @classmethod
    def from_document(cls, content: dict[str, Any]) -> ServiceReport:
        """The report of plain data."""
        times = {name: dt.datetime.fromisoformat(content[name]) for name in ("started", "reported")}
        return cls(**content | times)


class AdFolder:
    """The folder of an ad service.

    Args:
        path: Of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._current = path / "current.json"
        self._report = path / "service.json"

    def current(self) -> AdVersion | None:
        """The current version; None before the first one."""
        return _read(self._current, _CURRENT, AdVersion.from_document)

    def stamp(self) -> tuple[int, ...] | None:
        """Something that changes whenever the current version does."""
        try:
            state = self._current.stat()
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    def index(self, version: AdVersion) -> AdIndex:
        """The index of a version."""
        return AdIndex.load(self.path / version.name / INDEX)

    def files(self, version: AdVersion) -> tuple[Catalogue, Hierarchy, RateTable]:
        """The content of a version."""
        folder = self.path / version.name
        return _files(folder / CATALOGUE, folder / HIERARCHY, folder / RATES)

    def load(self, sources: AdSources, settings: dict[str, Any]) -> AdVersion:
        """Check files in full, copy them into a new version, and make it the current one.

        Args:
            sources: The files.
            settings: The fields of `IndexSettings` that differ from the current version's.

        Raises:
            ValueError: A file is bad, or missing. The current version stays.
            InUse: Another process loads into the folder.
        """
        make_folder(self.path)
        with claimed(self.path / "load", InUse(f"another process loads ads into {self.path}")):
            former = self.current()
            paths = [
                given or self._kept(former, name)
                for given, name in (
                    (sources.catalogue, CATALOGUE),
                    (sources.hierarchy, HIERARCHY),
                    (sources.rates, RATES),
                )
            ]
            chosen = IndexSettings(**(asdict(former.settings) if former else {}) | settings)
            catalogue, hierarchy, table = _files(*paths)
            index = AdIndex.build(catalogue, hierarchy, table, chosen)
            if index.is_empty:
                raise ValueError(
                    "no ad would be sent: none has a rate above 0 with the least support and the least rate"
                )
            version = _described(self._next_name(former), chosen, catalogue, hierarchy, table)
            with drafted_folder(self.path / version.name) as draft:
                create(draft / CATALOGUE, paths[0].read_bytes())
                hierarchy.save(draft / HIERARCHY)
                table.save(draft / RATES)
                index.save(draft / INDEX)
            replace(self._current, _CURRENT.text(version.to_document(), indent=2).encode())
            # The service may still read the former one.
            self._prune({version.name, former.name if former else version.name})
        return version

    def report(self) -> ServiceReport | None:
        """The last report of the service; None if none ever ran."""
        return _read(self._report, _REPORT, ServiceReport.from_document)

    def wait_until_served(self, version: AdVersion, timeout: float) -> None:
        """Wait until the running service serves a version.

        Raises:
            NotServed: The service cannot serve it, or does not within these seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            report = self.report()
            if report is not None and report.serving == version.name and not report.stopped:
                return
            if report is not None and report.rejected == version.name:
                raise NotServed(f"the service cannot serve version {version.name}: {report.reason}")
            if time.monotonic() > deadline:
                raise NotServed(f"version {version.name} is loaded, and no service serves it yet: is one running?")
            time.sleep(_PAUSE)

    def write_report(self, report: ServiceReport) -> None:
        """Replace the report."""
        replace(self._report, _REPORT.text(report.to_document(), indent=2).encode())

    @contextlib.contextmanager
    def serve_alone(self) -> Iterator[None]:
        """Be the one process that serves from the folder."""
        make_folder(self.path)
        with claimed(self.path / "serve", InUse(f"another process serves from {self.path}")):
            yield

    def _kept(self, version: AdVersion | None, name: str) -> Path:
        if version is None:
            option = "--" + name.partition(".")[0]
            raise ValueError(f"{option} is required: nothing is loaded into {self.path} yet")
        return self.path / version.name / name

    def _next_name(self, former: AdVersion | None) -> str:
        names = [each.name for each in self.path.iterdir() if _NAME.fullmatch(each.name)]
        return f"{max(map(int, [former.name if former else '0', *names])) + 1:06}"

    def _prune(self, kept: set[str]) -> None:
        """Delete other versions, and drafts that a killed process left."""
        for each in self.path.iterdir():
            if each.name not in kept and (_NAME.fullmatch(each.name) or _DRAFT.fullmatch(each.name)):
                shutil.rmtree(each, ignore_errors=True)


def _files(catalogue: Path, hierarchy: Path, rates: Path) -> tuple[Catalogue, Hierarchy, RateTable]:
    contexts = Hierarchy.load(hierarchy)
    return Catalogue.load(catalogue, contexts), contexts, RateTable.load(rates)


def _read(path: Path, form: DocumentFormat, parse: Callable[[dict[str, Any]], Parsed]) -> Parsed | None:
    """The content of a document; None if there is no such file."""
    try:
        return parse(form.parse(path.read_bytes()))
    except FileNotFoundError:
        return None
    except BadAdFolder as error:
        raise BadAdFolder(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise BadAdFolder(f"{path}: the document is damaged") from error


def _described(
    name: str, settings: IndexSettings, catalogue: Catalogue, hierarchy: Hierarchy, table: RateTable
) -> AdVersion:
    return AdVersion(
        name=name,
        loaded=SystemClock().now(),
        settings=settings,
        ads=len(catalogue.ads),
        ads_without_rates=len(set(catalogue.ads) - {table.ads[ad] for ad in np.unique(table.ad)}),
        rates=len(table),
        nodes=len(hierarchy.nodes),
        hierarchy=hierarchy.fingerprint,
        epsilon=None if table.epsilon == math.inf else table.epsilon,
        delta=table.delta,
        seeded=table.seeded,
        source=table.source,
    )
