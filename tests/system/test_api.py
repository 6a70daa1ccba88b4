"""The public names: what packages export, and docs/api.md lists."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.system.documents import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
PACKAGES = re.findall(r"^## `([\w.]+)`$", PAGE, re.MULTILINE)
PRIVATE_MODULES = ["reticent.privacy", "reticent.paillier"]
INTERNAL = {"reticent.privacy.mechanisms", "reticent.rpc", "reticent_sim.world"}
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


@pytest.mark.parametrize("package", PRIVATE_MODULES)
def test_private_modules_are_used_by_their_package_only(package: str) -> None:
    folder = ROOT / "core" / Path(*package.split("."))
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert all(module.startswith("_") for module in modules)
    for path in (path for each in FOLDERS for path in (ROOT / each).rglob("*.py") if folder not in path.parents):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith(f"{package}._"), path
