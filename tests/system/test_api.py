"""The public names: what packages export, and docs/api.md lists."""

import ast
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.documents import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PACKAGES = re.findall(r"^## `([\w.]+)`$", PAGE, re.MULTILINE)
INTERNAL = {
    "reticent.privacy.mechanisms",
    "reticent.rpc",
    "reticent_sim.engine.backends",
    "reticent_sim.engine.faults",
    "reticent_sim.engine.malice",
    "reticent_sim.report.run",
    "reticent_sim.world",
}
"""Packages that export names for other packages of the project only."""

FOLDERS = ["core", "client", "server_keys", "server_agg", "analyst", "simulation"]


def rows(package: str) -> dict[str, str]:
    """The names that the page lists of a package, with their descriptions."""
    section = PAGE.partition(f"## `{package}`\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_every_exported_name_with_a_description(package: str) -> None:
    module = import_module(package)
    assert list(rows(package)) == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert all(len(description) > 10 for description in rows(package).values())


def test_the_page_lists_every_package_that_exports_names() -> None:
    exporting = {
        ".".join(init.parent.relative_to(ROOT / folder).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
        if re.search(r"^__all__", init.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert exporting - INTERNAL == set(PACKAGES)


class Import(NamedTuple):
    """A name that a file imports from a module."""

    file: Path
    module: str
    name: str


@cache
def imports() -> list[Import]:
    """The imports of names, in all packages."""
    return [
        Import(path, node.module, alias.name)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    ]


def misnamed(package: Path, found: Sequence[Import]) -> dict[str, str]:
    """The modules of a package of the core whose name does not say whether others import them."""
    prefix = ".".join(package.relative_to(ROOT / "core").parts)
    outside = [each for each in found if package not in each.file.parents]
    used = {each.module for each in outside} | {f"{each.module}.{each.name}" for each in outside}
    wrong = {}
    for module in sorted({path.stem for path in package.glob("*.py")} - ENTRIES):
        if (f"{prefix}.{module}" in used) == module.startswith("_"):
            wrong[f"{prefix}.{module}"] = (
                "others import it" if module.startswith("_") else "no other package imports it"
            )
    return wrong


CORE = sorted(init.parent for init in (ROOT / "core" / "reticent").glob("[a-z]*/__init__.py"))
ENTRIES = {"__init__", "cli"}
"""The program imports `cli` by its name."""
GENERATED = ROOT / "core" / "reticent" / "v1"


@pytest.mark.parametrize("package", [each for each in CORE if each != GENERATED], ids=lambda package: package.name)
def test_a_module_of_the_core_begins_with_an_underscore_if_only_its_package_imports_it(package: Path) -> None:
    assert misnamed(package, imports()) == {}


def test_a_module_whose_name_says_the_wrong_thing_is_found() -> None:
    package = ROOT / "core" / "reticent" / "rpc"
    stranger = Import(ROOT / "client" / "reticent_client" / "phone.py", "reticent.rpc._rate_limits", "RateLimit")
    assert misnamed(package, [*imports(), stranger]) == {"reticent.rpc._rate_limits": "others import it"}
    inside = [each for each in imports() if package in each.file.parents]
    assert set(misnamed(package, inside).values()) == {"no other package imports it"}


def bypassing(found: Sequence[Import]) -> list[Import]:
    """Imports from inside a package of the core of a name that the package exports, at any depth."""
    packages = sorted(init.parent for init in (ROOT / "core" / "reticent").rglob("__init__.py"))
    names = {".".join(package.relative_to(ROOT / "core").parts): package for package in packages}
    exported = {name: set(getattr(import_module(name), "__all__", ())) for name in names}
    return [
        each
        for each in found
        if any(
            each.module.startswith(f"{name}.") and each.name in exported[name] and package not in each.file.parents
            for name, package in names.items()
        )
    ]


def test_names_that_a_package_of_the_core_exports_are_imported_from_it() -> None:
    assert bypassing(imports()) == []


@pytest.mark.parametrize("module", ["reticent.privacy._query", "reticent.privacy.mechanisms.gaussian"])
def test_an_import_past_the_package_that_exports_the_name_is_found(module: str) -> None:
    name = "Query" if module.endswith("_query") else "THESIS_EPSILON"
    stranger = Import(ROOT / "analyst" / "reticent_analyst" / "plan.py", module, name)
    assert bypassing([stranger, stranger._replace(name="other")]) == [stranger]
    inside = stranger._replace(file=ROOT / "core" / "reticent" / "privacy" / "_limits.py")
    assert bypassing([inside]) == []


def test_the_test_of_types_uses_public_names_only() -> None:
    path = ROOT / "tests" / "typing" / "test_public_api.py"
    used = {
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("reticent")
    }
    assert used <= set(PACKAGES)


def test_a_class_name_means_one_thing_in_all_packages() -> None:
    files: dict[str, list[Path]] = {}
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if GENERATED not in path.parents):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name.lstrip("_"), []).append(path.relative_to(ROOT))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
