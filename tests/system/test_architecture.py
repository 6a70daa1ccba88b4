"""docs/architecture.md names the modules and the exceptions that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.system.documents import ROOT
from tests.system.test_house import SETTINGS, SHIPPED

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [Path(each) for each in SHIPPED if not each.startswith("protos")]


TITLES = {
    "reticent": "core",
    "reticent_client": "client",
    "reticent_keys": "key server",
    "reticent_agg": "aggregation server",
    "reticent_analyst": "analyst",
    "reticent_sim": "simulation",
}


def rows_of(package: str) -> list[list[str]]:
    """The modules of a package from top to bottom, as the import contract orders them."""
    contracts = SETTINGS["tool"]["importlinter"]["contracts"]
    [rows] = [each["layers"] for each in contracts if each.get("containers") == [package]]
    return [row.split(" | ") for row in rows]


@pytest.mark.parametrize("package", SETTINGS["tool"]["importlinter"]["root_packages"])
def test_the_page_and_the_contract_name_every_module_in_the_same_order(package: str) -> None:
    [folder] = [ROOT / each for each in PACKAGES if each.name == package]
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    row = {name: number for number, names in enumerate(rows_of(package)) for name in names}
    assert set(row) == found - {"__init__", "__main__"}
    table = PAGE.partition(f"| module of the {TITLES[package]} |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)))
    assert set(named) == set(row)
    assert [row[name] for name in named] == sorted(row[name] for name in named)


def exceptions() -> dict[str, list[str]]:
    """All exceptions of the project, by name: of which kinds each is."""
    classes: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                    classes.setdefault(node.name, []).extend(bases)
    known = {"ReticentError"}
    while more := {name for name, bases in classes.items() if known & set(bases)} - known:
        known |= more
    return {name: sorted(set(classes[name]) & known) for name in known}


def test_the_tree_of_errors_is_whole() -> None:
    tree = next(block for block in PAGE.split("```") if block.startswith("text\n   ReticentError"))
    named = {name for line in re.findall(r"── ([A-Z]\w+(?:, [A-Z]\w+)*)", tree) for name in line.split(", ")}
    assert named | {"ReticentError"} == set(exceptions())
