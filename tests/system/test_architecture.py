"""What docs/architecture.md says of the house is how the house is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.documents import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CLIENT = ROOT / "client" / "reticent_client"
PACKAGES = ("core", "client", "server_keys", "server_agg", "simulation")


def rows() -> list[list[str]]:
    """The client's modules as the table has them: `serving.wire`, `stream` in one row are both of `serving`."""
    found = []
    for line in PAGE.splitlines():
        if cell := re.fullmatch(r"\| (`[^|]+`) \|[^|]*\|", line):
            row: list[str] = []
            for name in re.findall(r"`([\w.]+)`", cell[1]):
                package = row[-1].rpartition(".")[0] if row else ""
                row.append(f"{package}.{name}" if package and "." not in name else name)
            found.append(row)
    return found


def client_modules() -> dict[str, Path]:
    """The client's modules by their names within it, without those that only gather others."""
    return {
        ".".join(path.relative_to(CLIENT).with_suffix("").parts): path
        for path in sorted(CLIENT.rglob("*.py"))
        if path.name != "__init__.py"
    }


def imported(path: Path) -> Iterator[str]:
    """What a module of the client imports from the client when it is imported, by the names within it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "reticent_client":
            inside = (node.module or "").partition(".")[2]
            for each in node.names:
                as_module = f"{inside}.{each.name}".lstrip(".")
                yield as_module if as_module in MODULES else inside


MODULES = client_modules()
ROWS = rows()


def test_every_module_of_the_client_stands_in_one_row() -> None:
    named = [name for row in ROWS for name in row]
    assert sorted(named) == sorted(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_from_its_row_and_from_those_above(name: str) -> None:
    place = {each: number for number, row in enumerate(ROWS) for each in row}
    below = [each for each in imported(MODULES[name]) if each in place and place[each] > place[name]]
    assert not below


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
