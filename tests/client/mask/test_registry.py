"""The registry lists every check, and whatever shows or documents checks reads it."""

import ast
from pathlib import Path

import reticent_client
from reticent_client.mask.checks import registry
from reticent_client.mask.checks.registry import CHECKS
from reticent_sim.experiments.systems import COMPUTED, SYSTEMS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "client" / "reticent_client" / "mask" / "checks"


def test_every_file_of_the_folder_is_registered_and_every_check_has_its_file() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", "registry", *CHECKS}
    assert {path.stem for path in FOLDER.glob("*.py") if "def " + path.stem in path.read_text()} == set(CHECKS)


def test_every_check_is_public_under_its_name() -> None:
    assert set(registry.__all__) == set(CHECKS) <= set(reticent_client.__all__)
    for name, check in CHECKS.items():
        assert getattr(reticent_client, name) is check.compute


def test_a_check_is_private_if_it_takes_a_delta() -> None:
    for check in CHECKS.values():
        assert check.private == ("delta" in check.options)


def test_the_experiments_compare_every_check() -> None:
    assert set(SYSTEMS) >= set(CHECKS)
    assert set(COMPUTED) == set(SYSTEMS) - {"hybrid"}


def test_every_check_is_documented_with_the_sentence_of_the_registry() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    for check in CHECKS.values():
        assert f"| `{check.name}` | {check.summary} |" in page


def test_no_other_module_lists_the_checks() -> None:
    """A list that names four checks or more is a second registry, or a choice that says why it is one."""
    folders = ("core", "client", "analyst", "server_agg", "server_keys", "simulation", "benchmarks", "tests")
    chosen = {
        "benchmarks/utility.py",  # the order that the checks must have, and figures of a prototype
        "simulation/reticent_sim/experiments/systems.py",  # the names of the published checks
    }
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if _lists_checks(path.read_text(encoding="utf-8"))
    }
    registered = {"client/reticent_client/mask/checks/registry.py"}
    assert found - chosen == registered


def _lists_checks(source: str) -> bool:
    if sum(name in source for name in CHECKS) < 4:
        return False  # no need to parse it
    return any(len(_names(node) & set(CHECKS)) >= 4 for node in ast.walk(ast.parse(source)))


def _names(node: ast.AST) -> set[str]:
    """The strings and names of one collection in the source."""
    if isinstance(node, ast.Dict):
        parts = [*node.keys, *node.values]
    elif isinstance(node, ast.List | ast.Set | ast.Tuple):
        parts = [*node.elts]
    else:
        return set()
    texts = (part.value if isinstance(part, ast.Constant) else getattr(part, "id", "") for part in parts)
    return {text for text in texts if isinstance(text, str)}
