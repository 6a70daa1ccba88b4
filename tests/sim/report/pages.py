"""The page of a run, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from reticent_sim.report.run import write_report

Element = ET.Element


def page_of(data: dict[str, Any], folder: Path) -> Element:
    """The page of a run; it is also well-formed XML."""
    path = folder / "report.html"
    write_report(data, path)
    return ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # our own page


def find(page: Element, name: str) -> Element:
    """The element with an id."""
    [found] = page.findall(f".//*[@id='{name}']")
    return found


def text_of(element: Element) -> str:
    """The text of an element with plain spaces."""
    return " ".join("".join(element.itertext()).split())


def sentence(page: Element, figure: str) -> str:
    """The sentence over a figure."""
    return text_of(find(page, f"{figure}-sentence"))


def numbers(page: Element, figure: str) -> list[list[str]]:
    """The rows of a figure's table."""
    return [[text_of(cell) for cell in row] for row in find(page, f"{figure}-numbers").findall("tbody/tr")]


def figures(page: Element) -> list[str]:
    """The names of the figures."""
    return [each.attrib["id"] for each in page.iter("figure")]
