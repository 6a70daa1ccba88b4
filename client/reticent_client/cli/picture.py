"""`reticent mask picture`: days under a policy, what was silent when, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from reticent.randomness import secure, seeded
from reticent.storage import files
from reticent_client.cli.mask_files import Output, busy, place_of, read_policy, read_policy_days
from reticent_client.mask.day_view import view_days
from reticent_client.mask.days_file import DayRecord

WEEK = 7
MOST = 60
"""The largest number of days in a picture."""


def draw_picture(
    policy: Path,
    days: Path | None = None,
    /,
    *,
    output: Output,
    names: Annotated[list[str] | None, Parameter(name="--day")] = None,
    last: int = WEEK,
    seed: int | None = None,
) -> None:
    """Draw days under a policy as a PNG: what happened, what was released, and why the rest was silent.

    A single day is drawn with the beliefs of an adversary: of several, the one whose belief rises most. The picture
    shows what the user did.

    Args:
        policy: The policy.
        days: CSV with the header day,step,context; an empty context is a gap. The default is standard input.
        output: The file for the picture. It needs matplotlib.
        names: Draw this day, by its name. May be repeated.
        last: Without --day, draw this many days, the last ones of the file.
        seed: A seed for the coins. For simulation only.
    """
    files.check_distinct([output], [policy, days])
    files.check_writable([output])
    from reticent_client.pictures.days import draw_days  # noqa: PLC0415  # matplotlib is in an extra

    loaded = read_policy(policy)
    chosen = _chosen(read_policy_days(days, loaded), names, last, place_of(days))
    with busy("Drawing"):
        views = view_days(
            loaded, [(day.name, day.labels) for day in chosen], secure() if seed is None else seeded(seed)
        )
        draw_days(loaded, views, output)


def _chosen(days: list[DayRecord], names: list[str] | None, last: int, place: str) -> list[DayRecord]:
    """The days to draw, in their order."""
    if names is not None:
        known = {day.name for day in days}
        for name in names:
            if name not in known:
                raise ValueError(f"{place}: there is no day {name!r}")
    elif last < 1:
        raise ValueError(f"--last must be at least 1: got {last}")
    chosen = days[-last:] if names is None else [day for day in days if day.name in names]
    if not chosen:
        raise ValueError(f"{place}: there are no days to draw")
    if len(chosen) > MOST:
        raise ValueError(f"a picture shows at most {MOST} days: got {len(chosen)}")
    return chosen
