"""The confirmation of an analyst before phones spend their budget."""

from __future__ import annotations

import sys

from reticent_analyst.errors import NotConfirmed

__all__ = ["confirm"]


def confirm(question: str, refusal: str) -> None:
    """Ask for confirmation at the terminal.

    Args:
        question: The question, which is answered by yes or no.
        refusal: The message of the error, if the analyst does not confirm.

    Raises:
        NotConfirmed: The analyst does not confirm.
        ValueError: There is no terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise ValueError("confirmation needs a terminal: use --yes to announce without it")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise NotConfirmed(refusal)
