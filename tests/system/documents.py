"""Reads the fenced blocks of the project's documents, for the tests and for trying the wheel."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[^\s`]*)[^`]*$")
SHELLS = {"console", "sh"}


def documents() -> list[Path]:
    """The documents whose examples must run."""
    return [
        path
        for path in (
            ROOT / "README.md",
            ROOT / "CONTRIBUTING.md",
            *sorted(ROOT.glob("docs/**/*.md")),
        )
        if path.exists()
    ]


@dataclass(frozen=True)
class Block:
    """One fenced block: where it starts, its language and its lines without the fences."""

    place: str  # "README.md:12", the line of the opening fence
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command of a shell block, and what the document says that it prints."""

    line: str
    shown: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The command as the shell would split it, without comments."""
        return shlex.split(self.line, comments=True)


def blocks(document: Path) -> Iterator[Block]:
    """The fenced blocks of a document, in order.

    Raises:
        ValueError: A fence is not closed.
    """
    lines = iter(enumerate(document.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        inside: list[str] = []
        for _, later in lines:
            if later.strip() == opening["ticks"]:
                break
            inside.append(later.removeprefix(opening["indent"]))
        else:
            raise ValueError(f"{document.name}:{number}: the fence is never closed")
        text = "".join(f"{each}\n" for each in inside)
        yield Block(f"{document.name}:{number}", number, opening["language"], text)


def commands(block: Block) -> list[Command]:
    """The commands of a shell block.

    Lines after "$ " are commands, lines after "> " continue them, all others are what they print. A
    block without any "$ " is commands only.
    """
    lines = block.text.splitlines()
    if not any(line.startswith("$ ") for line in lines):
        script = block.text.replace("\\\n", " ")
        return [Command(line, ()) for line in script.splitlines() if line.strip() and not line.startswith("#")]
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif not found:
            raise ValueError(f"{block.place}: output stands before the first command")
        elif line.startswith("> ") or found[-1][0].endswith("\\"):
            command, shown = found.pop()
            found.append((f"{command}\n{line.removeprefix('> ')}", shown))
        else:
            found[-1][1].append(line)
    return [Command(line, tuple(shown)) for line, shown in found]


def first_example(document: Path) -> str:
    """The first Python block of a document: what a reader would try."""
    return next(block.text for block in blocks(document) if block.language == "python")
