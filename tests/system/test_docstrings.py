"""Docstrings name things by nouns."""

import ast
from collections.abc import Iterator

import pytest

from tests.system.documents import ROOT
from tests.system.test_house import SHIPPED

VAGUE = {"How", "That", "What", "When", "Where", "Which", "Who", "Whose", "Why"}
"""Words that a docstring does not begin with; "Whether" is right for a truth value."""

KNOWN = {
    "How long a lease lasts, and after what time it is renewed.",
}


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.body:
                match each:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield text


def vague(source: str) -> list[str]:
    """The first lines of the docstrings that begin with such a word."""
    return [text.splitlines()[0] for text in docstrings(source) if text.split()[0].strip(",.:") in VAGUE]


@pytest.mark.parametrize("package", [each for each in SHIPPED if not each.startswith("protos")])
def test_no_docstring_begins_with_a_pronoun(package: str) -> None:
    found = {
        text
        for path in (ROOT / package).rglob("*.py")
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        for text in vague(path.read_text(encoding="utf-8"))
    }
    assert found <= KNOWN


def test_a_pronoun_is_found() -> None:
    source = '"""What it is."""\nclass A:\n    """Whether."""\n    x = 1\n    """Where."""\n    def f(): "How."\n'
    assert vague(source) == ["What it is.", "Where.", "How."]
