"""HTML and SVG elements as text that is escaped by construction: a plain string is content, `Markup` is not escaped."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "join", "tag"]

_VOID = {"br", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def join(*parts: str, by: str = "") -> Markup:
    """Elements and plain strings, one after the other.

    >>> join("a < b", tag("b", "c"))
    'a &lt; b<b>c</b>'
    """
    return Markup(by.join(part if isinstance(part, Markup) else escape(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element; `class_` stands for `class`, `stroke_width` for `stroke-width`; an attribute of None is left out.

    >>> tag("p", "a & b", class_="note", data_x=1 / 3)
    '<p class="note" data-x="0.333333">a &amp; b</p>'
    """
    texts = {
        key.rstrip("_").replace("_", "-"): value if isinstance(value, str) else f"{value:.6g}"
        for key, value in attributes.items()
        if value is not None
    }
    opening = "".join([f"<{name}", *(f' {key}="{escape(value)}"' for key, value in texts.items()), ">"])
    return Markup(f"{opening[:-1]}/>" if name in _VOID else f"{opening}{join(*children)}</{name}>")
