"""Where a phone keeps what must survive a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from reticent.storage import files
from reticent_client.errors import FileError


class Store(Protocol):
    """A place for one text. What `write` has taken is there after any kill, or it has raised."""

    def read(self) -> str | None:
        """What was written last, None where nothing ever was."""

    def write(self, text: str) -> None:
        """Put the text in the place of what was there; whole or not at all."""


class FileStore:
    """One file, readable by its owner only. A store belongs to one `MaskIt` at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> str | None:
        """What the file holds, None without a file."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise FileError(f"{self.path} is damaged: it holds no text") from error

    def write(self, text: str) -> None:
        """Replace the file; on disk when this returns."""
        files.replace(self.path, text.encode("utf-8"))
