"""Parsers of text that others may have written, and JSON documents that name their format and its version."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["DocumentFormat", "parse_json", "parse_toml"]

Text = TypeVar("Text")
Result = TypeVar("Result")


@dataclass(frozen=True)
class DocumentFormat:
    """The format of a JSON document.

    Args:
        name: Of the format, as documents have it.
        version: The one that this program writes and reads.
        title: With an article, as in "this is not a chain".
        error: What is raised with a sentence about a document of another format or version.

    >>> notes = DocumentFormat("notes", 1, "a notebook")
    >>> notes.text({"lines": 2})
    '{"format": "notes", "version": 1, "lines": 2}'
    >>> notes.parse('{"format": "notes", "version": 1, "lines": 2}')
    {'lines': 2}
    """

    name: str
    version: int
    title: str
    error: Callable[[str], Exception] = ValueError

    def document(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content, after the name of the format and its version."""
        return {"format": self.name, "version": self.version, **content}

    def text(self, content: Mapping[str, Any], *, indent: int | None = None) -> str:
        """The document as text, on one line unless an indent is given."""
        return json.dumps(self.document(content), indent=indent, allow_nan=False)

    def content(self, document: object) -> dict[str, Any]:
        """The content of a document.

        Raises:
            error: The document is of another format or version.
        """
        if not isinstance(document, dict) or document.get("format") != self.name:
            raise self.error(f"this is not {self.title} written by Reticent")
        if (version := document.get("version")) != self.version:
            the = f"the {self.title.partition(' ')[2]}"
            raise self.error(f"{the} has format version {version!r}: this program reads {self.version}")
        return {key: value for key, value in document.items() if key not in {"format", "version"}}

    def parse(self, text: str | bytes) -> dict[str, Any]:
        """The content of a document as text.

        Raises:
            error: The text is not such a document.
        """
        try:
            document = parse_json(text)
        except (ValueError, TypeError) as error:
            raise self.error(f"this is not {self.title} written by Reticent") from error
        return self.content(document)


def parse_json(text: str | bytes) -> Any:
    """The content of a text in JSON.

    Raises:
        ValueError: The text is no JSON, or nested too deeply.
    """
    return _parse(json.loads, text)  # noqa: TID251


def parse_toml(text: str) -> dict[str, Any]:
    """The content of a text in TOML.

    Raises:
        ValueError: The text is no TOML, or nested too deeply.
    """
    return _parse(tomllib.loads, text)  # noqa: TID251


def _parse(parser: Callable[[Text], Result], text: Text) -> Result:
    try:
        return parser(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
