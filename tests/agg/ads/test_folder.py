"""The folder of an ad service: a new version is there in full or not at all, and a bad one leaves the old one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.hierarchy import Hierarchy
from reticent.rates import RateTable
from reticent.storage.database import claimed
from reticent.storage.sql import InUse
from reticent_agg import BadAdFolder
from reticent_agg.ads.folder import AdFolder, AdSources
from tests.agg.ads.worlds import EXAMPLE, HIERARCHY, OTHER_HIERARCHY


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with the files of a version."""
    (tmp_path / "given").mkdir()
    EXAMPLE.write(tmp_path / "given")
    return tmp_path / "given"


@pytest.fixture
def folder(tmp_path: Path, given: Path) -> AdFolder:
    """A folder with one version."""
    opened = AdFolder(tmp_path / "ads")
    opened.load(sources(given), {"max_ads": 4})
    return opened


def sources(given: Path) -> AdSources:
    return AdSources(given / "catalogue.csv", given / "rates.npz", given / "hierarchy.json")


def test_a_version_keeps_what_is_not_given(folder: AdFolder, given: Path) -> None:
    first = folder.current()
    assert first is not None
    assert (first.name, first.ads, first.ads_without_rates, first.rates) == ("000001", 4, 1, 4)
    assert (first.nodes, first.hierarchy) == (len(HIERARCHY.nodes), HIERARCHY.fingerprint)
    assert (first.epsilon, first.delta, first.seeded, first.source) == (1.0, 1e-6, True, "a test")
    stamp = folder.stamp()
    dataclasses.replace(EXAMPLE.table(), epsilon=float("inf")).save(given / "rates.npz")
    second = folder.load(AdSources(rates=given / "rates.npz"), {"least_support": 5.0})
    assert folder.current() == second
    assert folder.stamp() != stamp
    assert (second.epsilon, second.settings.max_ads, second.settings.least_support) == (None, 4, 5.0)
    names = {"catalogue.csv", "hierarchy.json", "index.npz", "rates.npz"}
    for version in (first, second):
        assert {each.name for each in (folder.path / version.name).iterdir()} == names
    assert folder.index(second).settings == second.settings
    assert folder.index(first).encoded(0) == folder.index(second).encoded(0)
    folder.load(AdSources(), {})
    assert not (folder.path / "000001").exists()  # nobody reads it any more


def test_the_first_version_needs_all_files(tmp_path: Path, given: Path) -> None:
    opened = AdFolder(tmp_path / "new")
    assert (opened.current(), opened.stamp(), opened.report()) == (None, None, None)
    with pytest.raises(ValueError, match="--rates is required: nothing is loaded into"):
        opened.load(AdSources(given / "catalogue.csv", None, given / "hierarchy.json"), {})
    assert opened.current() is None


def damaged(given: Path) -> None:
    content = bytearray((given / "rates.npz").read_bytes())
    content[-200] ^= 1
    (given / "rates.npz").write_bytes(content)


def with_rate(value: float) -> Callable[[Path], None]:
    """Rates that no program of ours writes."""

    def write(given: Path) -> None:
        table = EXAMPLE.table()
        rate = table.rate.copy()
        rate[1] = value
        object.__setattr__(table, "rate", rate)
        table.save(given / "rates.npz")

    return write


def without_rates(given: Path, **changed: Any) -> None:
    table = EXAMPLE.table()
    none = {name: getattr(table, name)[:0] for name in ("ad", "node", "rate", "low", "high", "views")}
    dataclasses.replace(table, **none, **changed).save(given / "rates.npz")


def of_others(given: Path) -> None:
    without_rates(given, hierarchy=OTHER_HIERARCHY.fingerprint, frequency=np.ones(len(OTHER_HIERARCHY.nodes)))


def with_text(name: str, text: str) -> Callable[[Path], int]:
    return lambda given: (given / name).write_text(text)


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "damaged": (damaged, r"rates\.npz: the rate table is damaged"),
    "not rates": (with_text("rates.npz", "{}"), r"rates\.npz: this is not a rate table"),
    "NaN": (with_rate(float("nan")), r"rates\.npz: .*rate.* is impossible: nan"),
    "negative": (with_rate(-0.25), r"rates\.npz: .*rate.* is impossible: -0\.25"),
    "of another hierarchy": (of_others, r"these are rates of another hierarchy"),
    "no rates": (without_rates, "no ad would be sent"),
    "empty catalogue": (with_text("catalogue.csv", "ad,payment,category,text,cap,contexts\n"), "has no ads"),
    "catalogue of others": (
        with_text("catalogue.csv", "ad,payment,category,text,cap,contexts\ntea,1,cafe,b,0,\n"),
        "the catalogue has none of the ads",
    ),
    "no hierarchy": (with_text("hierarchy.json", "[]"), r"hierarchy\.json: this is not a hierarchy"),
    "another hierarchy": (lambda given: OTHER_HIERARCHY.save(given / "hierarchy.json"), r"no node|another hierarchy"),
    "missing": (lambda given: (given / "rates.npz").unlink(), r"rates\.npz"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_and_the_old_version_stays(folder: AdFolder, given: Path, kind: str) -> None:
    before = {path: path.read_bytes() for path in folder.path.rglob("*.*") if path.is_file()}
    spoil, sentence = BAD[kind]
    spoil(given)
    with pytest.raises((ValueError, OSError), match=sentence):
        folder.load(sources(given), {})
    assert {path: path.read_bytes() for path in folder.path.rglob("*.*") if path.is_file()} == before
    with pytest.raises(ValueError, match="the most ads"):
        folder.load(AdSources(), {"max_ads": 0})


def test_a_load_that_is_killed_at_any_moment_leaves_the_old_version_or_the_new_one(
    folder: AdFolder, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill is an exception that nothing cleans up after, at each call that changes the disk."""
    whole = folder.path.with_name("before")
    shutil.copytree(folder.path, whole)
    names, moment, count = list[str](), 0, 0

    class Killed(BaseException):
        pass

    def dies(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > moment:
                raise Killed
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow, and here no power is lost
    for owner, *changes in ((os, "fsync", "open"), (Path, "mkdir", "rename", "replace", "unlink"), (shutil, "rmtree")):
        for name in changes:
            monkeypatch.setattr(owner, name, dies(getattr(owner, name)))
    while len(names) < 100:
        moment, count = 10**9, 0
        shutil.rmtree(folder.path)
        shutil.copytree(whole, folder.path)
        moment, count = len(names), 0
        try:
            folder.load(sources(given), {})
        except Killed:
            moment = 10**9
            version = folder.current()
            assert version is not None
            folder.index(version)
            names.append(version.name)
        else:
            break
    assert set(names) == {"000001", "000002"}
    assert names == sorted(names)


def test_drafts_and_versions_of_killed_loads_are_deleted(folder: AdFolder) -> None:
    draft = folder.path / f".000002.{'0' * 16}.tmp"
    draft.mkdir()
    (folder.path / "000007").mkdir()
    version = folder.load(AdSources(), {})
    assert version.name == "000008"
    assert sorted(each.name for each in folder.path.iterdir() if each.is_dir()) == ["000001", "000008"]


def test_one_process_loads_at_a_time_and_one_serves(folder: AdFolder) -> None:
    with claimed(folder.path / "load"), pytest.raises(InUse, match="another process loads ads into"):
        folder.load(AdSources(), {})
    with (
        folder.serve_alone(),
        pytest.raises(InUse, match="another process serves from"),
        AdFolder(folder.path).serve_alone(),
    ):
        pass


@pytest.mark.parametrize("content", ["", "{}", '{"format": "reticent-ads", "version": 1}', '{"format": "a"'])
def test_a_damaged_folder_is_refused(folder: AdFolder, content: str) -> None:
    (folder.path / "current.json").write_text(content)
    with pytest.raises(BadAdFolder, match=r"current\.json"):
        folder.current()


def test_a_version_of_a_later_program_is_refused(folder: AdFolder) -> None:
    document = json.loads((folder.path / "current.json").read_text())
    (folder.path / "current.json").write_text(json.dumps(document | {"version": 2}))
    with pytest.raises(BadAdFolder, match="has format version 2: this program reads 1"):
        folder.current()


def test_the_files_of_a_version_are_those_that_were_checked(folder: AdFolder, given: Path) -> None:
    version = folder.current()
    assert version is not None
    kept = folder.path / version.name
    assert (kept / "catalogue.csv").read_bytes() == (given / "catalogue.csv").read_bytes()
    assert Hierarchy.load(kept / "hierarchy.json") == HIERARCHY
    assert RateTable.load(kept / "rates.npz").fingerprint == EXAMPLE.table().fingerprint
