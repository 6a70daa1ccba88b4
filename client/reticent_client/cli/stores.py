"""The option that names a phone's store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

STORE = Path("phone.db")

StoreFile = Annotated[Path, Parameter(name="--store")]


def check_exists(store: Path) -> None:
    """Refuse a store that is not there.

    Raises:
        ValueError: There is none.
    """
    if not store.is_file():
        raise ValueError(f"there is no phone store at {store}")
