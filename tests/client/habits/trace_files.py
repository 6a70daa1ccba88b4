"""Files of traces, and how they are refused."""

import fnmatch
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = """user,time,context
bob,2027-03-01T08:00:00Z,home
ada,2027-03-01T09:00:00Z,work
ada,2027-03-01T08:00:00+01:00,home
ada,2027-03-01T10:00:00Z,
"""


def written(folder: Path, content: str | bytes, name: str = "traces.csv") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(action: Callable[[], object]) -> str:
    """What a `ValueError` says, in one line."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is what is tested, by the caller
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


def matches(text: str, pattern: str) -> bool:
    """Whether a text begins as a pattern says, in which "*" stands for anything."""
    return fnmatch.fnmatchcase(text, pattern + "*")
