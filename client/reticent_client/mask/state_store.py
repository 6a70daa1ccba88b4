"""Stores for the state of a mask, which must survive kills."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from reticent.storage import files
from reticent_client.errors import FileError


class Store(Protocol):
    """Holds one text. After `write` returns, the text survives any kill."""

    def read(self) -> str | None:
        """The text that was written last; None if there is none."""

    def write(self, text: str) -> None:
        """Replace the text, whole or not at all."""


class FileStore:
    """One file, readable by its owner only. A store belongs to one `MaskIt` at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> str | None:
        """The text of the file; None without a file."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise FileError(f"{self.path} is damaged: it holds no text") from error

    def write(self, text: str) -> None:
        """Replace the file; on disk when this returns."""
        files.replace(self.path, text.encode("utf-8"))
