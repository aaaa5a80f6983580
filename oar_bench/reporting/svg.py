"""Puts a figure into the page: no style attribute is left, so the page's policy can be strict."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from markupsafe import Markup

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
REFERENCE = re.compile(r"url\(#([^)]+)\)")


class Styles:
    """Collects inline styles as classes, with colours that dark mode can replace.

    >>> styles = Styles()
    >>> styles.name_of("fill: #0072b2"), styles.name_of("fill: #0072b2")
    ('v0', 'v0')
    >>> styles.css()
    '.v0{fill: var(--c-0072b2, #0072b2)}'
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name_of(self, style: str) -> str:
        """The class that carries this style."""
        return self._names.setdefault(style, f"v{len(self._names)}")

    def css(self) -> str:
        """All rules, one a line."""
        return "\n".join(
            f".{name}{{{COLOUR.sub(_themed, style)}}}" for style, name in self._names.items()
        )


def _themed(match: re.Match[str]) -> str:
    return f"var(--c-{match[0][1:]}, {match[0]})"


def inline(document: str, name: str, label: str, styles: Styles) -> Markup:
    """An SVG document as an element of the page.

    Style attributes become classes of `styles`; ids get `name` in front, since several figures
    share one page; `label` is what a screen reader says.
    """
    root = ElementTree.fromstring(document)
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "style":
                del element.attrib[key]
                element.set("class", styles.name_of(REFERENCE.sub(rf"url(#{name}-\1)", value)))
            elif key == "id":
                element.set(key, f"{name}-{value}")
            elif key == f"{{{XLINK}}}href":
                del element.attrib[key]
                element.set("href", f"#{name}-{value.removeprefix('#')}")
            elif "url(#" in value:
                element.set(key, REFERENCE.sub(rf"url(#{name}-\1)", value))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", label)
    ElementTree.register_namespace("", SVG)
    return Markup(ElementTree.tostring(root, encoding="unicode"))
