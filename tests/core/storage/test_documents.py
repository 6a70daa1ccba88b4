"""Documents of one format and version are read, and no others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.storage.documents import DocumentFormat, parse_json, parse_toml

VALUES = st.none() | st.booleans() | st.integers() | st.text()
CONTENT = st.dictionaries(st.text().filter(lambda key: key not in {"format", "version"}), VALUES)


class BadNotes(Exception):
    """A notebook that cannot be read."""


NOTES = DocumentFormat("notes", 2, "a notebook", BadNotes)


@given(CONTENT)
def test_a_document_comes_back_as_it_was_written(content: dict[str, object]) -> None:
    document = NOTES.document(content)
    assert list(document)[:2] == ["format", "version"]
    assert NOTES.content(document) == NOTES.parse(json.dumps(document)) == content


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "2",
        '"notes"',
        "{}",
        '{"version": 2}',
        '{"format": "letters", "version": 2}',
        b"\xff",
        "[" * 100_000,
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_no_such_document_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadNotes, match=r"^this is not a notebook written by Reticent$"):
        NOTES.parse(text)


def test_what_is_nested_too_deeply_is_a_bad_value() -> None:
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        parse_json('{"a": ' * 100_000)
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        parse_toml("a = " + "[" * 10_000)


@pytest.mark.parametrize("version", [1, 3, None, "2", [2]])
def test_another_version_is_refused_with_both_numbers(version: object) -> None:
    with pytest.raises(BadNotes, match=r"^the notebook has format version .+: this program reads 2$") as caught:
        NOTES.content({"format": "notes", "version": version})
    assert repr(version) in str(caught.value)
